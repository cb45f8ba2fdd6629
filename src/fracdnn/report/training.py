"""What the network is and remembers, and how its training went: in words and plots."""

import numpy as np

from fracdnn.caputo import memory_weights
from fracdnn.columns.words import count
from fracdnn.report.figures import BLUE, VERMILION
from fracdnn.report.plots import MOST_POINTS, Plot, axis, log_axis, picked, scatter, whole
from fracdnn.report.subject import Subject
from fracdnn.report.texts import number
from fracdnn.training import History

# Of fewer layers, weights are told in words.
LEAST_LAYERS = 8
_ENDS = {
    "converged": "the gradient reached `tol`",
    "no improvement": "the loss stopped improving",
    "epoch limit": "reached the limit of epochs",
    "iteration limit": "reached the limit of iterations",
    "line search failed": "the line search failed: no step lowered the loss",
    "not finite": "the loss was no longer finite",
    "time limit": "reached the time limit",
    "interrupted": "interrupted",
}


def network_facts(subject: Subject) -> dict[str, str]:
    """What the network is and how its training ended, in words."""
    estimator = subject.estimator
    shape, n_members = estimator.network_.architecture, len(estimator.members_)
    order = f"learned, from {estimator.order:.4g}" if estimator.learn_order else "fixed"
    facts = {
        "order": f"{estimator.order_:.4g}, {order}",
        "layers": f"{shape.n_layers}, of width {shape.width}, {shape.activation}",
        "last layer keeps": _kept_states(subject),
        "members": count(n_members, "network") + (", whose predictions are averaged" if n_members > 1 else ""),
        "features": count(len(subject.features), "input"),
        "training": why_ended(estimator.history_),
    }
    ratio = gradient_ratio(estimator.history_)
    if ratio is not None and subject.n_layers > 1:
        facts["gradient of the first layer"] = f"{number(ratio, 2)} times that of the last (median over iterations)"
    if estimator.temperature_ is not None:
        facts["temperature"] = number(estimator.temperature_)
    return {name: text for name, text in facts.items() if text}


def _kept_states(subject: Subject) -> str:
    """What the last layer keeps, in words; nothing where a plot says it."""
    if subject.n_layers == 1:
        return "what enters it"
    if subject.estimator.order_ == 1:
        return "only the state before it, as in a residual network"
    if subject.n_layers >= LEAST_LAYERS:
        return ""
    weights = memory_weights(subject.estimator.order_, subject.n_layers).tolist()
    names = ["what enters layer 1", *(f"state {k}" for k in range(1, subject.n_layers))]
    return ", ".join(f"{weight:.0%} of {name}" for weight, name in zip(weights, names, strict=True))


def why_ended(history: History) -> str:
    text = count(len(history.records), "iteration")
    if history.status == "partial":
        return f"{text} of partial_fit"
    return f"{text}; {_ENDS[history.status]}" if history.status in _ENDS else text


def gradient_ratio(history: History) -> float | None:
    """The gradient norm of the first layer over that of the last, the median over the iterations that have both."""
    norms = [(record.layer_gradients[0], record.layer_gradients[-1]) for record in history.records]
    ratios = [first / last for first, last in norms if np.isfinite([first, last]).all() and last > 0]
    return float(np.median(ratios)) if ratios else None


def memory_plot(subject: Subject) -> Plot | None:
    """The weights of Y_0 … Y_{N−1} in Y_N, the last row of the memory matrix; None for few layers or one weight."""
    order, n_layers = subject.estimator.order_, subject.n_layers
    if n_layers < LEAST_LAYERS or order == 1:
        return None
    weights = memory_weights(order, n_layers).numpy()
    kept, mode = picked(n_layers, MOST_POINTS), "lines+markers" if n_layers <= 100 else "lines"
    trace = scatter(mode, kept.tolist(), np.where(weights > 0, weights, np.nan)[kept], line={"color": BLUE})
    trace |= {"marker": {"size": 8}, "hovertemplate": "state %{x}: weight %{y:.4g}<extra></extra>"}
    caption = (
        f"How much the last layer keeps of each earlier state at order {order:.4g}; the weights are positive and add "
        f"up to 1, and state 0 is what enters the first layer."
    )
    positive = np.log10(weights[weights > 0])
    span = [float(positive.min()) - 0.25, float(positive.max()) + 0.25]
    states = axis("earlier state", range=[-0.5, n_layers - 0.5], **whole(kept))
    weight_axis = log_axis("weight in the last layer", weights, range=span)
    return Plot("memory", "Memory of the last layer", caption, [trace], {"xaxis": states, "yaxis": weight_axis})


def training_plot(history: History, n_members: int = 1) -> Plot:
    """Loss on a log axis above, accuracy below where it was recorded."""
    if not history.records:
        return Plot(
            "training", "Training", note="Training ended before its first iteration, so there is no curve to show."
        )
    plot = Plot("training", "Training", "The loss on the training data at each iteration, on a logarithmic axis.")
    kept = picked(len(history.records), MOST_POINTS)
    column = {name: [history.column(name)[i] for i in kept] for name in ("loss", "validation_score", "accuracy")}
    iterations = [history.records[i].iteration for i in kept]
    mode = "lines+markers" if len(kept) < 30 else "lines"
    loss = [value if value is not None and value > 0 else None for value in column["loss"]]
    plot.data.append(scatter(mode, iterations, loss, name="loss", line={"color": BLUE}))
    validation, accuracy = column["validation_score"], column["accuracy"]
    if any(value is not None for value in validation):
        line = {"color": VERMILION, "dash": "dash"}
        plot.data.append(scatter(mode, iterations, validation, name="validation loss", line=line))
        plot.caption = (
            "The loss on the training data and on the rows held out for early stopping, on a logarithmic axis."
        )
    plot.layout = {"xaxis": axis("iteration"), "yaxis": log_axis("loss", loss + validation)}
    plot.layout["showlegend"] = len(plot.data) > 1
    if any(value is not None for value in accuracy):
        trace = scatter(mode, iterations, accuracy, name="accuracy", line={"color": BLUE})
        plot.data.append({**trace, "yaxis": "y2", "showlegend": False})
        plot.layout["yaxis"]["domain"] = [0.46, 1]
        plot.layout["yaxis2"] = axis("accuracy", domain=[0, 0.36], tickformat=".0%", nticks=5)
        plot.layout["xaxis"]["anchor"] = "y2"
        plot.caption += " Below, the accuracy on the training data."
    plot.caption += f" This is the first of {n_members} members." if n_members > 1 else ""
    return plot
