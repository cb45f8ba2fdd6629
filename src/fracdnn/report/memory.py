"""How much the last layer keeps of each state before it."""

import numpy as np

from fracdnn.caputo import memory_weights
from fracdnn.report.figures import BLUE
from fracdnn.report.plots import MOST_POINTS, Plot, axis, log_axis, numbers, picked, whole
from fracdnn.report.subject import Subject

# The weights of fewer layers are told in words.
LEAST_LAYERS = 8


def kept_states(subject: Subject) -> str:
    """What the last layer keeps, in words; nothing where a plot says it."""
    if subject.n_layers == 1:
        return "what enters it"
    if subject.estimator.order_ == 1:
        return "the state before it alone, as in a residual network"
    if subject.n_layers >= LEAST_LAYERS:
        return ""
    weights = memory_weights(subject.estimator.order_, subject.n_layers).tolist()
    later = [f"{weight:.0%} of state {k}" for k, weight in enumerate(weights) if k]
    return ", ".join([f"{weights[0]:.0%} of what enters layer 1", *later])


def memory_plot(subject: Subject) -> Plot | None:
    """The weights of Y_0 … Y_{N−1} in Y_N, the last row of the memory matrix; None for few layers or one weight."""
    order, n_layers = subject.estimator.order_, subject.n_layers
    if n_layers < LEAST_LAYERS or order == 1:
        return None
    weights = memory_weights(order, n_layers).numpy()
    kept = picked(n_layers, MOST_POINTS)
    trace = {
        "type": "scatter",
        "mode": "lines+markers" if n_layers <= 100 else "lines",
        "x": kept.tolist(),
        "y": numbers(np.where(weights > 0, weights, np.nan)[kept]),
        "line": {"color": BLUE},
        "marker": {"size": 8},
        "hovertemplate": "state %{x}: weight %{y:.4g}<extra></extra>",
    }
    caption = (
        f"How much the last layer keeps of each earlier state at order {order:.4g}; the weights are positive and add "
        f"up to 1, and state 0 is what enters the first layer."
    )
    positive = np.log10(weights[weights > 0])
    span = [float(positive.min()) - 0.25, float(positive.max()) + 0.25]
    states = axis("earlier state", range=[-0.5, n_layers - 0.5], **whole(kept))
    weight_axis = log_axis("weight in the last layer", weights, range=span)
    return Plot("memory", "Memory of the last layer", caption, [trace], {"xaxis": states, "yaxis": weight_axis})
