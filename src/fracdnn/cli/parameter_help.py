"""One line on each parameter of the estimators, for people at a command line; their docstrings say more."""

MEANINGS = {
    "n_layers": "Layers of the network: time steps of the equation.",
    "order": "Order of the equation: 1 is a residual network, less remembers earlier layers longer.",
    "width": "Values each layer works with; none takes as many as there are features.",
    "step_size": "Time between two layers: how much one of them may change.",
    "activation": "The nonlinear function in each layer.",
    "bias": "What each layer adds: a number, one for each of its values, or nothing.",
    "learn_order": "Learn the order too, beginning with --order.",
    "alpha": "Decay of the weights; more makes a smoother model.",
    "solver": "adam for mini-batches; lbfgs and bfgs take all rows at once, for small tables.",
    "max_iter": "Epochs of adam, or iterations of lbfgs and bfgs, at most.",
    "tolerance": "lbfgs and bfgs end where the gradient is smaller.",
    "learning_rate": "Size of adam's first steps; they shrink to 0.",
    "batch_size": "Rows in a mini-batch of adam.",
    "early_stopping": "Hold out rows while training, and stop when their loss no longer falls.",
    "validation_fraction": "Share of the rows that --early-stopping holds out.",
    "n_iter_no_change": "Epochs or iterations that --early-stopping waits for a better loss.",
    "checkpoint": "A file to go on from with --resume; none writes none.",
    "checkpoint_every": "Epochs or iterations between two checkpoints.",
    "resume": "Go on from the checkpoint of a training that was cut short.",
    "warm_start": "Go on from an earlier fit, which only Python has; no use here.",
    "random_state": "Seed of all that is drawn: rows held out, first weights, mini-batches.",
    "device": "Where to train: cpu, cuda, or auto for a GPU where there is one.",
    "dtype": "Precision of training; predictions are always float64.",
    "label_smoothing": "Classification: share of each label given to all classes alike, against overconfidence.",
    "class_weight": "Classification: balanced makes rare classes count as much as frequent ones.",
}
# Defaults that the command has instead of the estimators'.
DEFAULTS = {
    "random_state": "0",
    "checkpoint": "with --run model.ckpt in its folder, else none",
    "checkpoint_every": "with --run a twentieth of --max-iter, 50 at most, else 50",
}
