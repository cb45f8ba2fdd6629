"""Find a grid whose error meets a tolerance; the solve itself is then one on a known grid, with an exact gradient.

The solution is an integral of slopes, so its error is the integral of the error with which slopes are interpolated.
That is what is controlled: the slope at a new node against the line through the two before it. Up to the first time
that is asked for, errors count less, since little of them is left by then; so a start like t^order takes few steps.
"""

import math
from dataclasses import dataclass

import torch

from fracdnn.caputo.modes import Modes, kernel_modes
from fracdnn.caputo.weights import gamma
from fracdnn.exceptions import NotConvergedError
from fracdnn.solver.grids import Spacing
from fracdnn.solver.methods.base import Method, Node, Stage
from fracdnn.solver.rules import Rule, advance

_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 2.5
_FORGETTING = 0.75  # the power of time with which errors count up to the first output
_FIRST = 0.2  # of a first interval's change of slope that is error, for slopes like t^order
_SMALLEST = 1e-14  # of a step, in spans
_WINDOW = 128  # nodes before the older half of them becomes far
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class FoundGrid:
    """Nodes as shares of the span, and how many steps were tried for them."""

    shares: torch.Tensor
    n_accepted: int
    n_rejected: int


@torch.no_grad()
def find_grid(
    method: Method, times: torch.Tensor, clock: torch.Tensor, *, first_output: float, spacing: Spacing
) -> FoundGrid:
    """A grid from the first to the last time; `first_output` counts from the first one."""
    span = float(times[-1] - times[0])
    search = _Search(method, times[0].detach(), clock, span, first_output, spacing)
    step, rejected, growth = min(first_output, 0.01 * span), 0, _GROW
    while search.now < span:
        rest = span - search.now
        if step > 0.9 * rest:
            step = rest
        elif step > 0.5 * rest:
            step = rest / 2.0
        if step < _SMALLEST * span:
            raise NotConvergedError(
                f"the step became shorter than {_SMALLEST:g} of the span at t = {search.clock_time():.6g} "
                f"after {len(search.history.times) - 1} steps; the solution may end there: "
                f"ask for earlier times only, or for larger rtol and atol"
            )
        error = search.attempt(span if step == rest else search.now + step)
        factor = _SAFETY * error**-search.exponent if error > 0 else _GROW
        if error <= 1.0:
            search.accept()
            step *= min(max(factor, _SHRINK), growth)
            growth = _GROW
        else:
            rejected += 1
            growth = 1.0
            step *= min(max(factor, search.largest_cut), 0.9)
    shares = torch.tensor(search.history.times, dtype=torch.float64, device=times.device) / span
    shares[-1] = 1.0
    return FoundGrid(shares, len(shares) - 1, rejected)


class _Search:
    """Where the search stands: the nodes so far, and the one being tried."""

    def __init__(
        self,
        method: Method,
        begin: torch.Tensor,
        clock: torch.Tensor,
        span: float,
        first_output: float,
        spacing: Spacing,
    ) -> None:
        orders = method.problem.orders.detach()
        self._method, self._begin, self._clock, self._spacing = method, begin, clock, spacing
        self._first_output = first_output
        self._mass = (span**orders / gamma(orders + 1.0)).unsqueeze(-1)
        self._smallest_order = float(orders.min())
        self._last = method.first(clock[0].detach())
        self._before: Node | None = None
        self._trial, self._node = 0.0, self._last
        self.now, self._last_step = 0.0, 0.0
        self.history = _GrowingHistory(method.rules(None), span)
        self.history.append(0.0, self._last.entry)

    @property
    def exponent(self) -> float:
        """Of the error, for the factor of a step."""
        return 0.5 if self._before is not None else 1.0 / (_FORGETTING + self._smallest_order)

    @property
    def largest_cut(self) -> float:
        """Of a step at once; the first one may have to become much shorter."""
        return _SHRINK if self._before is not None else 1e-3

    def clock_time(self) -> float:
        return float(self._begin) + self.now

    def attempt(self, trial: float) -> float:
        """The error of a step to that time, in tolerances; infinite where it cannot be made."""
        self._trial = trial
        step, dtype = self._begin.new_tensor(trial - self.now), self._last.state.dtype
        sums, newest = self.history.row(trial)
        stage = Stage(
            number=len(self.history.times),
            time=(self._begin + trial).to(self._clock.dtype),
            last_time=(self._begin + self.now).to(self._clock.dtype),
            step=step.to(dtype),
            last_step=None if self._before is None else step.new_tensor(self._last_step).to(dtype),
            without_memory=self._method.problem.without_memory(step.new_tensor(trial)),
            sums=sums,
            newest=newest,
        )
        try:
            self._node = self._method.step(stage, self._last, self._before)
        except NotConvergedError:
            return math.inf
        if not bool(torch.isfinite(self._node.entry).all()):
            return math.inf
        return self._error(trial - self.now) * min(trial / self._first_output, 1.0) ** _FORGETTING

    def accept(self) -> None:
        """Take the node that was tried last."""
        self.history.append(self._trial, self._node.entry)
        self.now, self._last_step = self._trial, self._trial - self.now
        self._last, self._before = self._node, self._last

    def _error(self, step: float) -> float:
        node, last, before = self._node, self._last, self._before
        largest = torch.maximum(node.state.abs(), last.state.abs()).to(torch.float64)
        scale = self._spacing.atol + self._spacing.rtol * largest
        if before is None:
            slopes, states = (_FIRST * (new - old) for new, old in _pairs(node, last))
        else:
            # The line misses by u''/2 · τ (τ + τ'), the interpolation on average by u''/12 · τ².
            ratio, part = step / self._last_step, step / (6.0 * (step + self._last_step))
            slopes, states = (
                part * (new - old - ratio * (old - older))
                for (new, old), (_, older) in zip(_pairs(node, last), _pairs(last, before), strict=True)
            )
        error = self._mass * slopes.abs().to(torch.float64)
        if self._method.implicit:  # where old errors die out, that of a state is the one of its own interpolation
            error = torch.minimum(error, states.abs().to(torch.float64))
        return float((error / scale).max())


def _pairs(node: Node, other: Node) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    return (node.entry, other.entry), (node.state, other.state)


class _GrowingHistory:
    """Nodes and entries so far; sums over them at any later time."""

    def __init__(self, rules: list[Rule], span: float) -> None:
        self._rules = rules
        self._span = span
        self.times: list[float] = []
        self._entries: list[torch.Tensor] = []
        self._begin = 0
        self._modes: Modes | None = None
        self._shortest = 0.0
        self._far: list[torch.Tensor] = []

    def append(self, time: float, entry: torch.Tensor) -> None:
        """One more node."""
        self.times.append(time)
        self._entries.append(entry)
        if len(self._entries) > _WINDOW:
            self._absorb()

    def row(self, time: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums [G, R, d] over the nodes so far at a time, and the weights [G, R, 1] of the node there."""
        nodes = torch.tensor([*self.times[self._begin :], time], dtype=torch.float64, device=self._entries[0].device)
        window = torch.stack(self._entries, dim=1)
        weights = torch.cat([rule.near(nodes[-1:], nodes) for rule in self._rules], dim=1).to(window.dtype)
        sums = torch.bmm(weights[..., :-1], window)
        if self._modes is not None:
            distance = nodes[-1:] - nodes[0]
            far = [rule.far(self._modes, distance).to(window.dtype) for rule in self._rules]
            sums = sums + torch.cat([torch.bmm(each, old) for each, old in zip(far, self._far, strict=True)], dim=1)
        return sums, weights[..., -1:]

    def _absorb(self) -> None:
        """Make the older half of the window far, unless it is nearer than the modes can tell."""
        half = len(self._entries) // 2
        distance = self.times[-1] - self.times[self._begin + half]
        if self._modes is None:
            self._shortest = distance
            self._modes = kernel_modes(distance, self._span, _TOLERANCE).to(self._entries[0].device)
        elif distance < self._shortest:
            return
        device = self._entries[0].device
        nodes = torch.tensor(self.times[self._begin : self._begin + half + 1], dtype=torch.float64, device=device)
        window = torch.stack(self._entries[: half + 1], dim=1)
        fresh = [torch.matmul(rule.absorb(self._modes, nodes).to(window.dtype), window) for rule in self._rules]
        duration = nodes[-1] - nodes[0]
        if self._far:
            fresh = [new + advance(self._modes, old, duration) for new, old in zip(fresh, self._far, strict=True)]
        self._far = fresh
        self._entries = self._entries[half:]
        self._begin += half
