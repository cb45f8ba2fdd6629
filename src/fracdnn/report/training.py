"""What the network is and remembers, in words, and how its training went."""

from typing import Any

import numpy as np

from fracdnn.caputo import memory_weights
from fracdnn.columns.words import count
from fracdnn.report.figures import BLUE, VERMILION
from fracdnn.report.plots import MOST_POINTS, Plot, axis, log_axis, picked, scatter
from fracdnn.report.subject import Subject
from fracdnn.report.texts import number
from fracdnn.training import History

# Earlier states whose weights are told.
MOST_KEPT = 7
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
    estimator = subject.estimator
    shape, n_members = subject.shape, len(estimator.members_)
    order = f"learned, from {estimator.order:.4g}" if estimator.learn_order else "fixed"
    facts = {
        "order": f"{estimator.order_:.4g}, {order}",
        "layers": f"{shape.n_layers}, of width {shape.width}, {shape.activation}",
        "last layer keeps": _kept_states(subject),
        "members": count(n_members, "network") + (", whose predictions are averaged" if n_members > 1 else ""),
        "features": count(len(subject.features), "input"),
        "training": why_ended(estimator.history_),
    }
    if estimator.temperature_ is not None:
        facts["temperature"] = number(estimator.temperature_)
    return facts


def _kept_states(subject: Subject) -> str:
    """What the last layer keeps, the last row of the memory matrix."""
    order, n_layers = subject.estimator.order_, subject.shape.n_layers
    if n_layers == 1 or order == 1:
        return "what enters it" if n_layers == 1 else "only the state before it, as in a residual network"
    weights, names = (
        memory_weights(order, n_layers).numpy(),
        ["what enters layer 1", *map("state {}".format, range(1, n_layers))],
    )
    most = np.sort(np.argsort(-weights, kind="stable")[:MOST_KEPT])
    rest = [f"{1 - weights[most].sum():.0%} of the others"] if n_layers > MOST_KEPT else []
    return ", ".join([*(f"{weights[k]:.0%} of {names[k]}" for k in most), *rest])


def why_ended(history: History) -> str:
    text = count(len(history.records), "iteration")
    if history.status == "partial":
        return f"{text} of partial_fit"
    return f"{text}; {_ENDS[history.status]}" if history.status in _ENDS else text


def training_plot(subject: Subject) -> Plot:
    """Loss on a log axis above, accuracy below where it was recorded."""
    plot, history = Plot("training", "Training"), subject.estimator.history_
    if not history.records:
        plot.note = "Training ended before its first iteration, so there is no curve to show."
        return plot
    kept = picked(len(history.records), MOST_POINTS)
    mode = "lines+markers" if len(kept) < 30 else "lines"
    iterations = [history.records[i].iteration for i in kept]
    loss, validation, accuracy = (
        [history.column(name)[i] for i in kept] for name in ("loss", "validation_score", "accuracy")
    )
    seen = [value if value is not None and value > 0 else None for value in loss]
    plot.data, of = [scatter(mode, iterations, seen, name="loss", line={"color": BLUE})], "at each iteration"
    if any(value is not None for value in validation):
        line, of = {"color": VERMILION, "dash": "dash"}, "and on the rows held out for early stopping"
        plot.data.append(scatter(mode, iterations, validation, name="validation loss", line=line))
    plot.caption = f"The loss on the training data {of}, on a logarithmic axis."
    plot.layout = {"xaxis": axis("iteration"), "yaxis": log_axis("loss", seen + validation)}
    plot.layout["showlegend"] = len(plot.data) > 1
    if any(value is not None for value in accuracy):
        options: dict[str, Any] = {"name": "accuracy", "line": {"color": BLUE}, "yaxis": "y2", "showlegend": False}
        plot.data.append(scatter(mode, iterations, accuracy, **options))
        plot.layout["yaxis"]["domain"] = [0.46, 1]
        plot.layout["yaxis2"] = axis("accuracy", domain=[0, 0.36], tickformat=".0%", nticks=5)
        plot.layout["xaxis"]["anchor"] = "y2"
        plot.caption += " Below, the accuracy on the training data."
    plot.caption += subject.first_member
    return plot
