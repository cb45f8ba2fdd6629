"""Losses of a tile of samples, and their gradients. Needs Numba."""

import numpy as np

from fracdnn.kernels.compiling import compiled
from fracdnn.kernels.functions import exponential
from fracdnn.kernels.vectors import filled, is_double, lanes_of, load, store, where_above, zeros


@compiled
def cross_entropy(outputs, n_outputs, size, labels, shares, first, smoothing, room):
    """Σ share · loss over the samples of a tile, and its gradient in place of the outputs.

    With outputs l and s = `smoothing`: log Σ_c exp l_c − (1 − s) l_label − s · mean l. The room holds, for each sample,
    its share, Σ_c exp(l_c − max l), and the loss without the logarithm of that.
    """
    step, n, total, rest = lanes_of(outputs), len(labels), size, 2 * size
    for i in range(size):
        room[i] = shares[first + i] if first + i < n else shares.dtype.type(0)
    keep = outputs.dtype.type(1.0 - smoothing)
    spare = outputs.dtype.type(smoothing / n_outputs)
    for i in range(size):
        picked = labels[first + i] * size + i if first + i < n else i
        room[rest + i] = -keep * outputs[picked]
    for i in range(0, size, step):
        top, added = load(outputs, i), zeros(outputs)
        for c in range(n_outputs):
            output = load(outputs, c * size + i)
            top = where_above(output, top, output, top)
            added = added + output
        below = filled(top, -700.0 if is_double(top) else -80.0)
        sum_ = zeros(outputs)
        for c in range(n_outputs):
            t = load(outputs, c * size + i) - top
            power, p = exponential(where_above(below, t, below, t))
            value = power * p + power
            sum_ = sum_ + value
            store(outputs, c * size + i, value)
        store(room, total + i, sum_)
        store(room, rest + i, load(room, rest + i) + top - added * spare)
        weight = load(room, i)
        for c in range(n_outputs):
            at = c * size + i
            store(outputs, at, (load(outputs, at) / sum_ - spare) * weight)
    loss = outputs.dtype.type(0)
    for i in range(min(size, n - first)):
        loss += room[i] * (np.log(room[total + i]) + room[rest + i])
        outputs[labels[first + i] * size + i] -= keep * room[i]
    return loss


@compiled
def squared_error(outputs, n_outputs, size, targets, shares, first):
    """Σ share · half the mean square over the samples of a tile, and its gradient in place of the outputs."""
    loss = outputs.dtype.type(0)
    for i in range(size):
        known = first + i < len(targets)
        share = shares[first + i] / outputs.dtype.type(n_outputs) if known else outputs.dtype.type(0)
        for c in range(n_outputs):
            error = outputs[c * size + i] - targets[first + i, c] if known else outputs.dtype.type(0)
            loss += outputs.dtype.type(0.5) * share * error * error
            outputs[c * size + i] = share * error
    return loss


@compiled
def labels_fit(labels, first, size, n_outputs):
    """Whether there is an output for each label of a tile."""
    fit = True
    for i in range(first, min(first + size, len(labels))):
        fit &= 0 <= labels[i] < n_outputs
    return fit
