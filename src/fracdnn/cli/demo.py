"""`fracdnn demo`: the paper's network on its level-set data, in seconds."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer

from fracdnn.cli.messages import written
from fracdnn.datasets import make_level_set
from fracdnn.extras import require
from fracdnn.nn import FractionalNetwork
from fracdnn.report.figures import BLUE, ORANGE, new_figure, save_figure
from fracdnn.training import (
    MiniBatchTraining,
    Objective,
    Regularization,
    Task,
    accuracy,
    normalize_batch,
    shown_progress,
)

SEED, N_POINTS = 0, 10_000
# The paper's Table 2, its fractional column for the level sets: settings, and the accuracies it reports, in percent.
ORDER, N_LAYERS, STEP_SIZE, N_BATCHES, ITERATIONS = 0.1, 5, 0.2, 6, 30
REGULARIZATION = Regularization(decay_output=1e-1, smooth=1e2, decay_bias=1e-2)
PAPER = {"training": "99.82", "test": "99.79"}


def show_demo(out: Path) -> None:
    require("matplotlib")  # at the end, after the training
    with written(out):
        out.mkdir(parents=True, exist_ok=True)
    X, y = (torch.from_numpy(part) for part in make_level_set(2 * N_POINTS, random_state=SEED))
    X_test, y_test = X[N_POINTS:], y[N_POINTS:]
    generator = torch.Generator().manual_seed(SEED)
    options: Any = {"n_layers": N_LAYERS, "order": ORDER, "step_size": STEP_SIZE, "bias": "scalar"}
    network = FractionalNetwork(2, 2, generator=generator, **options).double()
    objective = Objective(regularization=REGULARIZATION)
    task = Task(network, objective, X[:N_POINTS], y[:N_POINTS], None, generator)
    typer.echo(
        f"{N_LAYERS} layers of order {ORDER:g}, {N_POINTS:,} points, the class is 1 where x <= y; "
        f"{N_BATCHES} mini-batches, {ITERATIONS} BFGS iterations on each",
        err=True,
    )
    with shown_progress(N_BATCHES * ITERATIONS) as watch:
        task.watch = watch
        history = MiniBatchTraining(N_BATCHES, ITERATIONS, normalization="feature").fit(task)
    # As the paper does it: each set is normalized by its own mean and deviation.
    x_test = normalize_batch(X_test, per_feature=True)
    shares = {
        "training": accuracy(task.network, normalize_batch(task.x, per_feature=True), task.target),
        "test": accuracy(task.network, x_test, y_test),
    }
    with torch.no_grad():
        flow = task.network(x_test[:2000], trajectory=True).numpy()
        wrong = (task.network(x_test).argmax(1) != y_test).numpy()
    figure = level_set_figure(X_test.numpy(), y_test.numpy(), wrong, flow, history.column("loss"))
    with written(out):
        picture = save_figure(out / "level-sets.png", figure)
    for name, share in shares.items():
        typer.echo(f"{name} accuracy: {100 * share:.2f} % (paper {PAPER[name]} %)")
    typer.echo(f"picture: {picture}")


def level_set_figure(points: np.ndarray, target: np.ndarray, wrong: np.ndarray, flow: np.ndarray, loss: list) -> Any:
    """The test points by class with those misclassified, where the network carries them, and the loss."""
    figure = new_figure(12, 4)
    left, middle, right = figure.subplots(1, 3)
    for label, color in ((0, BLUE), (1, ORANGE)):
        shown = target[: flow.shape[1]] == label
        left.plot(*points[: flow.shape[1]][shown].T, ".", color=color, markersize=3, label=f"class {label}")
        middle.plot(*flow[-1][shown].T, ".", color=color, markersize=3)
    left.plot(*points[wrong].T, "x", color="black", markersize=6, label=f"wrong, {wrong.sum()} of {len(points):,}")
    left.set(xlabel="$x$", ylabel="$y$", title="test points", aspect="equal")
    left.legend(loc="lower right", fontsize=8, markerscale=2)
    middle.set(xlabel="first feature", ylabel="second feature", title="after the last layer, $Y_N$")
    right.semilogy(range(1, len(loss) + 1), loss, color=BLUE)
    right.set(xlabel="BFGS iteration", ylabel="objective on the mini-batch", title="training")
    return figure
