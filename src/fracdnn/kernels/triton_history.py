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
"""

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

# Numbers of a state for a program of four warps: sixteen bytes of float32 a thread, the widest load there is.
TILE = 512
WARPS = 4


@triton.jit
def _numbers(TILE: tl.constexpr):
    """Which numbers of a state are this program's."""
    return tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)


@triton.jit
def _stored(place, length, inside, kind: tl.constexpr, COUNT: tl.constexpr):
    """States that lie one after the other."""
    states = ()
    for k in tl.static_range(COUNT):
        states += (tl.load(place + k * length, mask=inside).to(kind),)
    return states


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
def _store_row(
    out, scaled, row, newest, change, factor, scale, at, inside,
    CHANGE: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """What every row ends with: the layer's step, and the newest state times a number."""
    kind = row.dtype
    if CHANGE:
        row += tl.load(factor).to(kind) * tl.load(change + at, mask=inside).to(kind)
        newest = row
    tl.store(out + at, row.to(out.dtype.element_ty), mask=inside)
    if SCALED:
        tl.store(scaled + at, (tl.load(scale).to(kind) * newest).to(scaled.dtype.element_ty), mask=inside)


@triton.jit
def _added(rows, x, weights, n_rows=8):
    """Eight rows, each with its weight times x more; there are `n_rows` weights."""
    more = ()
    for n in tl.static_range(8):
        more += (rows[n] + tl.load(weights + n, mask=n < n_rows, other=0.0) * x,)
    return more


@triton.jit
def _summed(total, states, weights, step, COUNT: tl.constexpr):
    """States with weights that lie `step` apart, added to a total."""
    for k in tl.static_range(COUNT):
        total += tl.load(weights + k * step) * states[k]
    return total


@triton.jit
def _store_bases(place, length, inside, n_rows, rows, COUNT: tl.constexpr):
    """All but the first of the rows, as many as there are."""
    for n in tl.static_range(1, COUNT):
        tl.store(place + n * length, rows[n], mask=inside & (n < n_rows))


@triton.jit(
    do_not_specialize=["base_row", "has_base", "begin", "weight", "weight_step", "count"],
    do_not_specialize_on_alignment=["factor", "scale"],
)
def finish(
    out, scaled, base, states, latest, change, weights, factor, scale,
    size, base_row, has_base, begin, weight, weight_step, count,
    LATEST: tl.constexpr, CHANGE: tl.constexpr, SCALED: tl.constexpr, TILE: tl.constexpr,
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
    _store_row(out, scaled, row, newest, change, factor, scale, at, inside, CHANGE, SCALED)


@triton.jit(do_not_specialize=["has_base", "rows"], do_not_specialize_on_alignment=["factor", "scale"])
def start_half(
    out, scaled, base, states, latest, change, weights, factor, scale,
    size, has_base, rows,
    LATEST: tl.constexpr, CHANGE: tl.constexpr, SCALED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Rows 4 … 7 of a block with their bases and states 0 … 3; weights [8, 8] has a line for each row."""
    kind = weights.dtype.element_ty
    at, length = _numbers(TILE), tl.cast(size, tl.int64)
    inside, place = at < size, states + at
    states = _stored(place, length, inside, kind, 3)
    newest = _newest(latest + at, place + 3 * length, inside, LATEST).to(kind)
    states += (newest,)
    place, known = base + 4 * length + at, inside & (has_base != 0)
    bases, sums = (), ()
    for n in tl.static_range(4):
        bases += (tl.load(place + n * length, mask=known & (n < rows), other=0.0).to(kind),)
    for n in tl.static_range(4):
        sums += (_summed(bases[n], states, weights + 32 + 8 * n, 1, 4),)
    _store_bases(place, length, inside, rows, sums, 4)
    _store_row(out, scaled, sums[0], newest, change, factor, scale, at, inside, CHANGE, SCALED)


@triton.jit(
    do_not_specialize=["n_far", "has_far", "has_first", "oldest_row", "rows"],
    do_not_specialize_on_alignment=["factor", "scale"],
)
def start_block(
    out, scaled, base, states, latest, change, first, far, near_weights, far_weights, oldest, factor, scale,
    size, n_far, has_far, has_first, oldest_row, rows,
    TRANSPOSED: tl.constexpr,
    LATEST: tl.constexpr, CHANGE: tl.constexpr, SCALED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Rows of a new block from the eight states before it, the far states and the first state.

    `far_weights` [n_far, 17]: of each far state its weights in the rows, what it takes in of the eight states, what is
    left of it. The first state, `has_first`, has weights of its own; transposed, one more far state has the last row's.
    """
    kind = near_weights.dtype.element_ty
    at, length = _numbers(TILE), tl.cast(size, tl.int64)
    inside, known, place = at < size, (at < size) & (has_far != 0), states + at
    states = (tl.load(place, mask=inside & (has_first == 0), other=0.0).to(kind),)
    states += _stored(place + length, length, inside, kind, 6)
    newest = _newest(latest + at, place + 7 * length, inside, LATEST).to(kind)
    states += (newest,)
    sums = (tl.zeros([TILE], kind),) * 8
    for k in tl.static_range(8):  # `near_weights` [8, 8] has a line for each state
        sums = _added(sums, states[k], near_weights + 8 * k)
    # Two far states are loaded before this one is stored: the compiler would not dare to.
    i, place = 0, far + at
    z, after = _far_state(place, known & (n_far > 0)), _far_state(place + length, known & (n_far > 1))
    while i < n_far:
        coming = _far_state(place + (i + 2) * length, known & (i + 2 < n_far))
        weights = far_weights + 17 * i
        sums = _added(sums, z, weights)
        z = _summed(tl.load(weights + 16) * z, states, weights + 8, 1, 8)
        tl.store(place + i * length, z, mask=inside, eviction_policy="evict_first")
        i, z, after = i + 1, after, coming
    if TRANSPOSED:
        z = _far_state(place + i * length, known)
        tl.store(place + i * length, _summed(z, states, oldest + oldest_row, -1, 8), mask=inside)
    else:
        sums = _added(sums, tl.load(first + at, mask=inside).to(kind), oldest + oldest_row, rows)
    _store_bases(base + at, length, inside, rows, sums, 8)
    _store_row(out, scaled, sums[0], newest, change, factor, scale, at, inside, CHANGE, SCALED)


def try_out(device: torch.device) -> None:
    """Run a kernel: an error where Triton cannot compile for a device."""
    one = torch.ones(1, device=device)
    options = {"LATEST": False, "CHANGE": False, "SCALED": False, "TILE": TILE}
    with torch.cuda.device(device) if one.is_cuda else nullcontext():
        finish[(1,)](*[one] * 9, 1, 0, 1, 0, 0, 1, 0, **options, num_warps=WARPS)
