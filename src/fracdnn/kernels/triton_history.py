# mypy: ignore-errors
"""Rows of a compressed history sum on a GPU, one kernel a row. Needs Triton.

There a history sum spends its time on reading states and on launches. So a row is one kernel, which reads each state
once for all that is made of it, and also does what the chain of layers would do with the row or the state:

`finish`      a row: its base, the states of its half of a block before it, the layer's step
`start_half`  the first row of the second half of a block, and the first half brought into the bases of the others
`start_block` the first row of a block, the bases of its other rows, and the far states brought up to date

States lie one after the other in blocks of 8 rows, for which a thread has registers. Sums are in the numbers that the
weights have, float32 or float64, whatever numbers the states have. All sizes that change from row to row are arguments,
not constants, so that a kernel is compiled once for a kind of state. Factors are read from the device, where they may
be learned.

What all write: `out` the row, with CHANGE plus factor · change; with LATEST, the newest state is read from `latest`
and stored where it belongs; with SCALED, `scaled` is scale times the newest state, which is the row's own where there
is a change and `latest` where there is one.

With ACTIVATION, "tanh" or "relu", a row also does what a layer σ(K y + b) does beside its products. Forward, `change`
holds K y: σ(K y + b) takes its place and is the change; `bias` has a number for each of WIDTH features, and is not read
where WIDTH is 0. With SCALED it goes back: `scaled` holds σ(K y + b), and scale · state ⊙ σ' takes its place.
"""

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

from fracdnn.kernels.triton_activations import activated, through_slope

# Numbers of a state for a program of four warps: sixteen bytes of float32 a thread, the widest load there is.
TILE = 512
WARPS = 4


@triton.jit
def _numbers(TILE: tl.constexpr):
    """Which numbers of a state are this program's."""
    return tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)


@triton.jit
def _three(place, length, inside, kind: tl.constexpr):
    """Three states that lie one after the other."""
    x, y = tl.load(place, mask=inside), tl.load(place + length, mask=inside)
    return x.to(kind), y.to(kind), tl.load(place + 2 * length, mask=inside).to(kind)


@triton.jit
def _newest(latest, place, inside, LATEST: tl.constexpr):
    """The newest state: what is stored at its place, or the latest, which then is stored there."""
    x = tl.load(latest if LATEST else place, mask=inside)
    if LATEST:
        tl.store(place, x.to(place.dtype.element_ty), mask=inside)
    return x


@triton.jit
def _far_state(place, known):
    """0 where it is not known or not written yet; not to be kept in the cache, as it is read once a block."""
    return tl.load(place, mask=known, other=0.0, eviction_policy="evict_first")


@triton.jit
def _activated_in_place(place, bias, at, inside, kind: tl.constexpr, ACTIVATION: tl.constexpr, WIDTH: tl.constexpr):
    """What a layer makes of the products at a place, where it then lies."""
    x = tl.load(place, mask=inside).to(kind)
    if WIDTH:
        x += tl.load(bias + at % WIDTH, mask=inside).to(kind)
    x = activated(x, ACTIVATION)
    # Not to be kept in the cache either: it is read again only when all layers are done.
    tl.store(place, x.to(place.dtype.element_ty), mask=inside, eviction_policy="evict_first")
    return x


@triton.jit
def _store_row(
    out, scaled, row, newest, change, bias, factor, scale, at, inside,
    CHANGE: tl.constexpr, SCALED: tl.constexpr, ACTIVATION: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """What every row ends with: the layer's step, and the newest state times a number."""
    kind = row.dtype
    if CHANGE:
        if ACTIVATION != "" and not SCALED:
            x = _activated_in_place(change + at, bias, at, inside, kind, ACTIVATION, WIDTH)
        else:
            x = tl.load(change + at, mask=inside).to(kind)
        row += tl.load(factor).to(kind) * x
        newest = row
    tl.store(out + at, row.to(out.dtype.element_ty), mask=inside)
    if SCALED:
        x = tl.load(scale).to(kind) * newest
        if ACTIVATION != "":
            x = through_slope(x, tl.load(scaled + at, mask=inside).to(kind), ACTIVATION)
        tl.store(scaled + at, x.to(scaled.dtype.element_ty), mask=inside)


@triton.jit
def _added(r0, r1, r2, r3, r4, r5, r6, r7, x, weights, rows=8):
    """Eight rows, each with its weight times x more; there are as many weights as rows."""
    r0 += tl.load(weights) * x
    r1 += tl.load(weights + 1, mask=rows > 1, other=0.0) * x
    r2 += tl.load(weights + 2, mask=rows > 2, other=0.0) * x
    r3 += tl.load(weights + 3, mask=rows > 3, other=0.0) * x
    r4 += tl.load(weights + 4, mask=rows > 4, other=0.0) * x
    r5 += tl.load(weights + 5, mask=rows > 5, other=0.0) * x
    r6 += tl.load(weights + 6, mask=rows > 6, other=0.0) * x
    r7 += tl.load(weights + 7, mask=rows > 7, other=0.0) * x
    return r0, r1, r2, r3, r4, r5, r6, r7


@triton.jit
def _summed(total, x0, x1, x2, x3, x4, x5, x6, x7, weights, step):
    """Eight states with weights that lie `step` apart, added to a total."""
    total += tl.load(weights) * x0
    total += tl.load(weights + step) * x1
    total += tl.load(weights + 2 * step) * x2
    total += tl.load(weights + 3 * step) * x3
    total += tl.load(weights + 4 * step) * x4
    total += tl.load(weights + 5 * step) * x5
    total += tl.load(weights + 6 * step) * x6
    total += tl.load(weights + 7 * step) * x7
    return total


@triton.jit
def _by_near(x0, x1, x2, x3, x4, x5, x6, x7, weights, TILE: tl.constexpr):
    """Eight rows from the eight states before them; weights [8, 8] has a line for each state."""
    r0 = tl.zeros([TILE], weights.dtype.element_ty)
    r1, r2, r3, r4, r5, r6, r7 = r0, r0, r0, r0, r0, r0, r0
    r0, r1, r2, r3, r4, r5, r6, r7 = _added(r0, r1, r2, r3, r4, r5, r6, r7, x0, weights)
    r0, r1, r2, r3, r4, r5, r6, r7 = _added(r0, r1, r2, r3, r4, r5, r6, r7, x1, weights + 8)
    r0, r1, r2, r3, r4, r5, r6, r7 = _added(r0, r1, r2, r3, r4, r5, r6, r7, x2, weights + 16)
    r0, r1, r2, r3, r4, r5, r6, r7 = _added(r0, r1, r2, r3, r4, r5, r6, r7, x3, weights + 24)
    r0, r1, r2, r3, r4, r5, r6, r7 = _added(r0, r1, r2, r3, r4, r5, r6, r7, x4, weights + 32)
    r0, r1, r2, r3, r4, r5, r6, r7 = _added(r0, r1, r2, r3, r4, r5, r6, r7, x5, weights + 40)
    r0, r1, r2, r3, r4, r5, r6, r7 = _added(r0, r1, r2, r3, r4, r5, r6, r7, x6, weights + 48)
    return _added(r0, r1, r2, r3, r4, r5, r6, r7, x7, weights + 56)


@triton.jit
def _store_bases(place, length, inside, rows, r1, r2, r3, r4, r5, r6, r7):
    """All but the first of the rows, as many as there are."""
    tl.store(place + length, r1, mask=inside & (rows > 1))
    tl.store(place + 2 * length, r2, mask=inside & (rows > 2))
    tl.store(place + 3 * length, r3, mask=inside & (rows > 3))
    tl.store(place + 4 * length, r4, mask=inside & (rows > 4))
    tl.store(place + 5 * length, r5, mask=inside & (rows > 5))
    tl.store(place + 6 * length, r6, mask=inside & (rows > 6))
    tl.store(place + 7 * length, r7, mask=inside & (rows > 7))


@triton.jit
def _of_four(total, x0, x1, x2, x3, weights):
    total += tl.load(weights) * x0
    total += tl.load(weights + 1) * x1
    total += tl.load(weights + 2) * x2
    return total + tl.load(weights + 3) * x3


@triton.jit(
    do_not_specialize=["base_row", "has_base", "begin", "weight", "weight_step", "count"],
    do_not_specialize_on_alignment=["factor", "scale"],
)
def finish(
    out, scaled, base, states, latest, change, bias, weights, factor, scale,
    size, base_row, has_base, begin, weight, weight_step, count,
    LATEST: tl.constexpr, CHANGE: tl.constexpr, SCALED: tl.constexpr,
    ACTIVATION: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Row = base + Σ_{k < count} weights[weight + k weight_step] state_{begin + k}, of at most eight states."""
    kind = weights.dtype.element_ty
    at, length = _numbers(TILE), tl.cast(size, tl.int64)
    inside, place, weights = at < size, states + begin * length + at, weights + weight
    row = tl.load(base + base_row * length + at, mask=inside & (has_base != 0), other=0.0).to(kind)
    newest, stored = row, count - 1 if LATEST else count
    for k in tl.static_range(8):
        x = tl.load(place + k * length, mask=inside & (k < stored), other=0.0).to(kind)
        row += tl.load(weights + k * weight_step, mask=k < stored, other=0.0) * x
    if LATEST:
        newest = _newest(latest + at, place + stored * length, inside, LATEST).to(kind)
        row += tl.load(weights + stored * weight_step) * newest
    _store_row(out, scaled, row, newest, change, bias, factor, scale, at, inside, CHANGE, SCALED, ACTIVATION, WIDTH)


@triton.jit(do_not_specialize=["has_base", "rows"], do_not_specialize_on_alignment=["factor", "scale"])
def start_half(
    out, scaled, base, states, latest, change, bias, weights, factor, scale,
    size, has_base, rows,
    LATEST: tl.constexpr, CHANGE: tl.constexpr, SCALED: tl.constexpr,
    ACTIVATION: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Rows 4 … 7 of a block with their bases and states 0 … 3; weights [8, 8] has a line for each row."""
    kind = weights.dtype.element_ty
    at, length = _numbers(TILE), tl.cast(size, tl.int64)
    inside, place = at < size, states + at
    x0, x1, x2 = _three(place, length, inside, kind)
    x3 = _newest(latest + at, place + 3 * length, inside, LATEST).to(kind)
    place, known = base + 4 * length + at, inside & (has_base != 0)
    r0 = tl.load(place, mask=known, other=0.0).to(kind)
    r1 = tl.load(place + length, mask=known & (rows > 1), other=0.0).to(kind)
    r2 = tl.load(place + 2 * length, mask=known & (rows > 2), other=0.0).to(kind)
    r3 = tl.load(place + 3 * length, mask=known & (rows > 3), other=0.0).to(kind)
    r0 = _of_four(r0, x0, x1, x2, x3, weights + 32)
    r1 = _of_four(r1, x0, x1, x2, x3, weights + 40)
    r2 = _of_four(r2, x0, x1, x2, x3, weights + 48)
    r3 = _of_four(r3, x0, x1, x2, x3, weights + 56)
    tl.store(place + length, r1, mask=inside & (rows > 1))
    tl.store(place + 2 * length, r2, mask=inside & (rows > 2))
    tl.store(place + 3 * length, r3, mask=inside & (rows > 3))
    _store_row(out, scaled, r0, x3, change, bias, factor, scale, at, inside, CHANGE, SCALED, ACTIVATION, WIDTH)


@triton.jit(
    do_not_specialize=["n_far", "has_far", "has_first", "oldest_row", "rows"],
    do_not_specialize_on_alignment=["factor", "scale"],
)
def start_block(
    out, scaled, base, states, latest, change, bias, first, far, near_weights, far_weights, oldest, factor, scale,
    size, n_far, has_far, has_first, oldest_row, rows,
    TRANSPOSED: tl.constexpr,
    LATEST: tl.constexpr, CHANGE: tl.constexpr, SCALED: tl.constexpr,
    ACTIVATION: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Rows of a new block from the eight states before it, the far states and the first state.

    `far_weights` [n_far, 17]: of each far state its weights in the rows, what it takes in of the eight states, what is
    left of it. The first state, `has_first`, has weights of its own; transposed, one more far state has the last row's.
    """
    kind = near_weights.dtype.element_ty
    at, length = _numbers(TILE), tl.cast(size, tl.int64)
    inside, known, place = at < size, (at < size) & (has_far != 0), states + at
    x0 = tl.load(place, mask=inside & (has_first == 0), other=0.0).to(kind)
    x1, x2, x3 = _three(place + length, length, inside, kind)
    x4, x5, x6 = _three(place + 4 * length, length, inside, kind)
    x7 = _newest(latest + at, place + 7 * length, inside, LATEST).to(kind)
    r0, r1, r2, r3, r4, r5, r6, r7 = _by_near(x0, x1, x2, x3, x4, x5, x6, x7, near_weights, TILE)
    # Two far states are loaded before this one is stored: the compiler would not dare to.
    i, place = 0, far + at
    z, after = _far_state(place, known & (n_far > 0)), _far_state(place + length, known & (n_far > 1))
    while i < n_far:
        coming = _far_state(place + (i + 2) * length, known & (i + 2 < n_far))
        weights = far_weights + 17 * i
        r0, r1, r2, r3, r4, r5, r6, r7 = _added(r0, r1, r2, r3, r4, r5, r6, r7, z, weights)
        z = _summed(tl.load(weights + 16) * z, x0, x1, x2, x3, x4, x5, x6, x7, weights + 8, 1)
        tl.store(place + i * length, z, mask=inside, eviction_policy="evict_first")
        i, z, after = i + 1, after, coming
    if TRANSPOSED:
        z = _far_state(place + i * length, known)
        tl.store(place + i * length, _summed(z, x0, x1, x2, x3, x4, x5, x6, x7, oldest + oldest_row, -1), mask=inside)
    else:
        x = tl.load(first + at, mask=inside).to(kind)
        r0, r1, r2, r3, r4, r5, r6, r7 = _added(r0, r1, r2, r3, r4, r5, r6, r7, x, oldest + oldest_row, rows)
    _store_bases(base + at, length, inside, rows, r1, r2, r3, r4, r5, r6, r7)
    _store_row(out, scaled, r0, x7, change, bias, factor, scale, at, inside, CHANGE, SCALED, ACTIVATION, WIDTH)


def try_out(device: torch.device) -> None:
    """Run a kernel: an error where Triton cannot compile for a device."""
    one = torch.ones(1, device=device)
    options = {"LATEST": False, "CHANGE": False, "SCALED": False, "ACTIVATION": "", "WIDTH": 0}
    options |= {"TILE": TILE, "num_warps": WARPS}
    with torch.cuda.device(device) if one.is_cuda else nullcontext():
        finish[(1,)](*[one] * 10, 1, 0, 1, 0, 0, 1, 0, **options)
