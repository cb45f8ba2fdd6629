"""The network in words: its order and layers, and how the training ended."""

import numpy as np

from fracdnn.caputo import memory_weights
from fracdnn.report.subject import Subject
from fracdnn.report.texts import number
from fracdnn.tables.words import count
from fracdnn.training import History

# The largest weights of the last layer that are listed.
MOST_KEPT = 7
# Reasons for the end of a training, by its status.
ENDS = {
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
    """Return what a reader asks about the network, by name."""
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
    return facts if estimator.temperature_ is None else facts | {"temperature": number(estimator.temperature_)}


def _kept_states(subject: Subject) -> str:
    """Return the largest weights in the last row of the memory, and the sum of the others."""
    weights = memory_weights(subject.estimator.order_, subject.shape.n_layers).numpy()
    most = [k for k in np.sort(np.argsort(-weights, kind="stable")[:MOST_KEPT]) if weights[k]]
    kept = [(weights[k], f"state {k}" if k else "what enters layer 1") for k in most]
    kept += [(1 - weights[most].sum(), "the others")] if np.count_nonzero(weights) > MOST_KEPT else []
    return ", ".join(f"{share:.0%} of {name}" for share, name in kept)


def why_ended(history: History) -> str:
    """Return the number of iterations and the reason for the end."""
    text = count(len(history.records), "iteration")
    if history.status == "partial":
        return f"{text} of partial_fit"
    return f"{text}; {ENDS[history.status]}" if history.status in ENDS else text
