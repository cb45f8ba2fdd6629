"""Notice explicit steps that are too long to be stable: the solution grows or swings although func pulls it back.

Where a solution of an order up to 1 is larger than ever before, its derivative cannot point back: D^γ u ≥ 0 at a
maximum over all the past. (Source: Luchko, "Maximum principle for the generalized time-fractional diffusion equation",
2009.) Nor can it swing from node to node, no less each time, against func. Above order 1 it may be larger than ever
before, but not with steps that are too long for func; there the trapezoidal rule is not stable for all steps either.
"""

import math
from collections.abc import Sequence

import torch

from fracdnn.exceptions import NotConvergedError
from fracdnn.solver.coupled import DENSE
from fracdnn.solver.grids import Grid
from fracdnn.solver.problem import Problem, time_text
from fracdnn.tracing import being_traced

_WINDOW = 6  # nodes between which a solution has to swing
_KEPT = 3.0  # times the first swing in the window, that the last one is at least
_PART = 1e-3  # of the state, that a swing has to be
_GROWN = 2.0  # of a solution that is larger than ever before, since the beginning or within the window
_STRIDE = 0.05  # of its size, that a solution which grows so fast moves in a step at least
_UNSTABLE = 0.5  # of Γ(1 + order)/rate, a power of the step below which no explicit method is unstable
# The same for orders up to 1 and above, where the solution is larger than ever before while func pulls it back.
_UNSTABLE_LARGEST = (1.0, 0.05)
_SAFE = 0.2  # of Γ(1 + order)/rate, a power of the step that is stable in all explicit methods
_MOST_STEPS = 100_000  # that are worth recommending


class Stability:
    """Sees the states of a method's nodes in order, and raises where they are not stable."""

    def __init__(self, problem: Problem, grid: Grid, method: str) -> None:
        self._problem, self._grid, self._method = problem, grid, method
        self._window = problem.value.detach().unsqueeze(0)  # the last states that were seen
        self._number = 0  # of the last of them
        self._largest = torch.zeros_like(problem.value.detach())  # sizes before the window
        self._early = self._largest  # those of the first window

    def see(self, begin: int, states: Sequence[torch.Tensor]) -> None:
        """The states at nodes begin + 1, begin + 2, …; better many at once, since values are looked at."""
        if being_traced() or begin != self._number:  # such as those that are computed again
            return
        shape = self._problem.value.shape
        known = torch.stack([*self._window, *(state.detach().reshape(shape) for state in states)])
        finite = len(states)
        if not math.isfinite(known.sum()):  # one of them is not, or many are large
            finite = int(known[-finite:].flatten(1).isfinite().all(1).cumprod(0).sum())
            known = known[: len(self._window) + finite]
        self._number += finite
        if len(self._window) < _WINDOW:  # then all nodes are known
            self._early = known[:_WINDOW].abs().amax(0)
        older, self._window = known[:-_WINDOW], known[-_WINDOW:]
        if len(older):
            self._largest = torch.maximum(self._largest, torch.maximum(older.amax(0), -older.amin(0)))
        if len(self._window) == _WINDOW:
            self._check(self._window)

    def _check(self, states: torch.Tensor) -> None:
        moves, sizes = states.diff(dim=0), states.abs()
        signs, lengths = moves.sign(), moves.abs()
        is_largest = (sizes.amax(0) >= self._largest) & (sizes.amax(0) > _GROWN * self._early)
        # Swings that grow by themselves, or that are still there where the solution is larger than ever before.
        swings = (signs[1:] * signs[:-1] < 0).all(0) & (lengths[-1] >= torch.where(is_largest, 1.0, _KEPT) * lengths[0])
        swings &= lengths[-1] > _PART * sizes.amax(0)
        climbs = (sizes[1:] > sizes[:-1]).all(0) & (sizes[0] >= self._largest) & (sizes[-1] > _GROWN * sizes[0])
        climbs &= (self._problem.orders.detach() <= 1.0).unsqueeze(-1)
        if bool((swings | climbs).any()):
            self._confirm(0, swings, climbs, (_UNSTABLE, _UNSTABLE))
        if bool(is_largest.any()):
            self._confirm(_WINDOW - 2, torch.zeros_like(swings), is_largest, _UNSTABLE_LARGEST)

    @torch.no_grad()
    def _confirm(self, place: int, swings: torch.Tensor, climbs: torch.Tensor, unstable: tuple[float, float]) -> None:
        """Whether func pulls these components back, so fast that the steps are too long for it.

        By the two states at a place in the window. `unstable` are powers of the step, for orders up to 1 and above.
        """
        problem, first, states = self._problem, self._number + 1 - _WINDOW + place, self._window[place : place + 2]
        times = self._grid.clock.detach()[first : first + 2].unbind(0)
        # At one time, so that what func does by itself in between does not count.
        devices = [states.device] if states.is_cuda else []
        with torch.random.fork_rng(devices):  # a func that is random goes on as if nobody had asked
            slopes = [problem.packed_slope(times[1], state).double() for state in states]
        pulls, moves = slopes[1] - slopes[0], (states[1] - states[0]).double()
        pulled = pulls.sign() * moves.sign() < 0
        climbs = climbs & (slopes[1].sign() * states[1].sign() < 0) & (moves.abs() > _STRIDE * states[1].abs())
        swings, climbs = swings & pulled, climbs & pulled
        if not bool((swings | climbs).any()):
            return
        rates = (pulls / moves).abs()
        orders = problem.orders.detach().unsqueeze(-1)
        critical = (torch.lgamma(orders + 1.0).exp() / rates) ** (1.0 / orders)
        step = float(self._grid.elapsed.detach().diff().max())
        limit = torch.where(orders > 1.0, unstable[1], unstable[0])
        if bool((limit ** (1.0 / orders) * critical < step)[swings | climbs].any()):
            longest = float((_SAFE ** (1.0 / orders) * critical)[swings | climbs].min())
            raise NotConvergedError(self._message(time_text(times[0]), step, longest))

    def _message(self, time: str, step: float, longest: float) -> str:
        few = self._problem.value.numel() <= DENSE
        remedies = ["the implicit method='collocation' with the same steps, or no steps at all"] if few else []
        count = math.ceil(float(self._grid.elapsed.detach()[-1]) / longest) if longest > 0.0 else _MOST_STEPS + 1
        if count <= _MOST_STEPS:
            remedies.append(f"n_steps={count} or more")
        if not remedies:
            remedies.append("a state of fewer components, for which there are implicit methods")
        return (
            f"steps must be shorter for method {self._method!r} to be stable, got {step:.3g}: from t = {time} the "
            f"solution grows or swings from step to step while func pulls it back; pass {', or '.join(remedies)}"
        )
