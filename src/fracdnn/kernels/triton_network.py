# mypy: ignore-errors
"""A small dense network on a GPU: all layers in one launch forward, with the loss, and one launch back. Needs Triton.

A program takes `TILE` samples through all layers. Every layer sums over all states before it; a program wrote them
itself, so they lie in the caches of its processor. States are [N + 1, rows, width], with as many rows as all programs
have samples: those that are none are 0, and so are their cotangents. Weights of the memory are [N, N], row n for state
n + 1, as `ExactPlan` has them. Features are padded to `WIDTH`, outputs to `OUTPUTS`: sizes of products, at least 16.
"""

import triton
import triton.language as tl

from fracdnn.kernels.codes import CROSS_ENTROPY, STATE
from fracdnn.kernels.triton_activations import activated, through_slope, to_keep

_STATE, _CROSS_ENTROPY = tl.constexpr(STATE), tl.constexpr(CROSS_ENTROPY)
# States that are loaded at a time.
_AT_A_TIME = tl.constexpr(8)


@triton.jit
def _next(states, weights, at, inside, length, n, n_layers, newest, MEMORY: tl.constexpr):
    """Row n + 1 of the memory: from the states 0 … n − 1 as they are stored, and the newest."""
    row = newest
    if MEMORY:
        weights += n * n_layers
        total = tl.zeros(at.shape, states.dtype.element_ty)
        begin = 0
        while begin < n:
            for i in tl.static_range(_AT_A_TIME):
                k = begin + i
                x = tl.load(states + k * length + at, mask=inside & (k < n), other=0.0)
                total += tl.load(weights + k, mask=k < n, other=0.0) * x
            begin += _AT_A_TIME
        row = total + tl.load(weights + n) * newest
    return row


@triton.jit
def _matrix(place, down, along, rows, columns, DOWN: tl.constexpr, ALONG: tl.constexpr):
    """A matrix [rows, columns], padded with zeros."""
    r, c = tl.arange(0, DOWN)[:, None], tl.arange(0, ALONG)[None, :]
    return tl.load(place + r * down + c * along, mask=(r < rows) & (c < columns), other=0.0)


@triton.jit
def _operator(K, j, width, down, along, WIDTH: tl.constexpr):
    """K of a layer, or its transpose."""
    return _matrix(K + j * width * width, down, along, width, width, WIDTH, WIDTH)


@triton.jit
def _bias(b, j, down, along, width, WIDTH: tl.constexpr):
    column = tl.arange(0, WIDTH)[None, :]
    return tl.load(b + j * down + column * along, mask=column < width, other=0.0)


@triton.jit
def _cross_entropy(outputs, known, label, share, smoothing, n_outputs):
    """Share · (log Σ exp l − (1 − s) l_label − s · mean l), and its gradient; NaN where there is no such label."""
    kind = outputs.dtype
    smoothing = tl.load(smoothing)
    column = tl.arange(0, outputs.shape[1])[None, :]
    top = tl.max(tl.where(known, outputs, float("-inf")), 1)
    powers = tl.where(known, tl.exp(outputs - top[:, None]), 0.0)
    total = tl.sum(powers, 1)
    wanted = tl.where(known & (column == label[:, None]), 1.0 - smoothing, 0.0).to(kind)
    wanted += tl.where(known, smoothing / n_outputs, 0.0).to(kind)
    fits = (label >= 0) & (label < n_outputs)
    loss = tl.where(fits, tl.log(total) + top - tl.sum(wanted * outputs, 1), float("nan"))
    return share * loss, share[:, None] * tl.where(known, powers / total[:, None] - wanted, 0.0)


@triton.jit
def _loss(
    y, row, W, target, shares, outputs, cotangents, losses, n, n_outputs, width, smoothing,
    KIND: tl.constexpr, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write outputs, losses and the cotangents of the outputs; give that of Y_N."""
    kind = y.dtype
    out = tl.dot(y, _matrix(W, 1, width, width, n_outputs, WIDTH, OUTPUTS), input_precision=PRECISION, out_dtype=kind)
    column = tl.arange(0, OUTPUTS)[None, :]
    is_sample, inside = row < n, (row < n)[:, None] & (column < n_outputs)
    at, share = row[:, None] * n_outputs + column, tl.load(shares + row, mask=is_sample, other=0.0)
    tl.store(outputs + at, out, mask=inside)
    if KIND == _CROSS_ENTROPY:
        label = tl.load(target + row, mask=is_sample, other=0)
        loss, cotangent = _cross_entropy(out, column < n_outputs, label, share, smoothing, n_outputs)
    else:
        error = tl.where(inside, out - tl.load(target + at, mask=inside, other=0.0), 0.0)
        cotangent = error * (share / n_outputs)[:, None]
        loss = 0.5 * tl.sum(error * cotangent, 1)
    tl.store(losses + row, loss, mask=is_sample)
    tl.store(cotangents + at, cotangent, mask=inside)
    W_rows = _matrix(W, width, 1, n_outputs, width, OUTPUTS, WIDTH)
    return tl.dot(cotangent.to(kind), W_rows, input_precision=PRECISION, out_dtype=kind)


@triton.jit(do_not_specialize=["n"])
def forward(
    samples, K, b, factors, weights, states, kept,
    W, target, shares, outputs, cotangents, losses, start, smoothing,
    n, rows, n_layers, width, n_outputs, b_down, b_along,
    MEMORY: tl.constexpr, ACTIVATION: tl.constexpr, KIND: tl.constexpr, PRECISION: tl.constexpr,
    TILE: tl.constexpr, WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """`states` and what is `kept` for the slopes from samples [n, width]; with a loss, the cotangent of Y_N at `start`.

    `b_down` and `b_along` are how far apart the biases of layers and of features lie: 0 and 0 with one 0 for all.
    """
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    column = tl.arange(0, WIDTH)[None, :]
    at, length = row[:, None] * width + column, tl.cast(rows, tl.int64) * width
    inside = tl.broadcast_to(column < width, at.shape)
    y = tl.load(samples + at, mask=inside & (row < n)[:, None], other=0.0)
    tl.store(states + at, y, mask=inside)
    j, operator, bias = 0, _operator(K, 0, width, 1, width, WIDTH), _bias(b, 0, b_down, b_along, width, WIDTH)
    while j < n_layers:
        # What the next layer needs is loaded before this one is computed, where there are registers for it.
        after = tl.minimum(j + 1, n_layers - 1)
        next_operator = operator
        if AHEAD:
            next_operator = _operator(K, after, width, 1, width, WIDTH)
        next_bias = _bias(b, after, b_down, b_along, width, WIDTH)
        factor = tl.load(factors + j)
        memory = _next(states, weights, at, inside, length, j, n_layers, y, MEMORY)
        z = tl.dot(y, operator, input_precision=PRECISION, out_dtype=y.dtype) + bias
        value = activated(z, ACTIVATION)
        tl.store(kept + j * length + at, to_keep(z, value, ACTIVATION), mask=inside)
        y = memory + factor * tl.where(inside, value, 0.0)
        tl.store(states + (j + 1) * length + at, y, mask=inside)
        tl.debug_barrier()  # a state may be read by other threads than wrote it
        if not AHEAD:
            next_operator = _operator(K, after, width, 1, width, WIDTH)
        j, operator, bias = j + 1, next_operator, next_bias
    if KIND != _STATE:
        q = _loss(
            y, row, W, target, shares, outputs, cotangents, losses, n, n_outputs, width, smoothing,
            KIND, OUTPUTS, WIDTH, PRECISION,
        )  # fmt: skip
        tl.store(start + at, q, mask=inside & (row < n)[:, None])


@triton.jit(do_not_specialize=["n"])
def backward(
    start, K, factors, weights, kept, adjoints, scaled,
    n, rows, n_layers, width,
    MEMORY: tl.constexpr, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
    TILE: tl.constexpr, WIDTH: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """From the cotangent of Y_N at `start`, [n, width], that of Y_0 in its place.

    `adjoints` become Q_N … Q_1, and `scaled` c Q σ' of each layer, which may take the place of what was kept.
    """
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    column = tl.arange(0, WIDTH)[None, :]
    at, length = row[:, None] * width + column, tl.cast(rows, tl.int64) * width
    inside = tl.broadcast_to(column < width, at.shape)
    q = tl.load(start + at, mask=inside & (row < n)[:, None], other=0.0)
    i, operator = 0, _operator(K, n_layers - 1, width, width, 1, WIDTH)
    while i < n_layers:
        j = n_layers - 1 - i
        next_operator = operator
        if AHEAD:
            next_operator = _operator(K, tl.maximum(j - 1, 0), width, width, 1, WIDTH)
        slope, factor = tl.load(kept + j * length + at, mask=inside, other=0.0), tl.load(factors + j)
        memory = _next(adjoints, weights, at, inside, length, i, n_layers, q, MEMORY)
        tl.store(adjoints + i * length + at, q, mask=inside)
        z = through_slope(factor * q, slope, ACTIVATION)
        tl.debug_barrier()  # before what was kept is written over, all of it has been read
        tl.store(scaled + j * length + at, z, mask=inside)
        q = memory + tl.dot(z, operator, input_precision=PRECISION, out_dtype=z.dtype)
        if not AHEAD:
            next_operator = _operator(K, tl.maximum(j - 1, 0), width, width, 1, WIDTH)
        i, operator = i + 1, next_operator
    tl.store(start + at, q, mask=inside & (row < n)[:, None])
