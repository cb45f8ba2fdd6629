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
from fracdnn.solver.rules import advance

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
    begin = times[0].detach()
    history = _GrowingHistory(method, span)
    mass = (span ** method.problem.orders.detach() / gamma(method.problem.orders.detach() + 1.0)).unsqueeze(-1)
    last, before = method.first(clock[0].detach()), None
    history.append(0.0, last.entry)
    now, step, last_step, rejected = 0.0, min(first_output, 0.01 * span), 0.0, 0
    accepted_in_a_row = True
    while now < span:
        rest = span - now
        step = rest if step > 0.9 * rest else min(step, rest / 2.0) if step > 0.5 * rest else step
        if step < _SMALLEST * span:
            raise NotConvergedError(
                f"the step became shorter than {_SMALLEST:g} of the span at t = {float(begin) + now:.6g} "
                f"after {len(history.times) - 1} steps; the solution may end there: "
                f"ask for earlier times only, or for larger rtol and atol"
            )
        trial = span if step == rest else now + step
        node = _trial(method, history, begin, clock, now, trial, last, before, last_step)
        error = math.inf
        if node is not None:
            error = _error(method, node, last, before, step, last_step, mass, min(trial / first_output, 1.0), spacing)
        exponent = 0.5 if before is not None else 1.0 / (_FORGETTING + float(method.problem.orders.min()))
        factor = _SAFETY * error**-exponent if error > 0 else _GROW
        if error <= 1.0:
            history.append(trial, node.entry)
            now, last_step = trial, step
            last, before = node, last
            step *= min(max(factor, _SHRINK), _GROW if accepted_in_a_row else 1.0)
            accepted_in_a_row = True
        else:
            rejected += 1
            accepted_in_a_row = False
            step *= min(max(factor if math.isfinite(error) else 0.0, _SHRINK if before is not None else 1e-3), 0.9)
    shares = torch.tensor(history.times, dtype=torch.float64, device=times.device) / span
    shares[-1] = 1.0
    return FoundGrid(shares, len(shares) - 1, rejected)


def _trial(method, history, begin, clock, now, trial, last, before, last_step) -> Node | None:
    """The node a step would make, or None where it is not finite or cannot be solved for."""
    sums, newest = history.row(trial)
    elapsed = begin.new_tensor(trial)
    dtype = last.state.dtype
    stage = Stage(
        number=len(history.times),
        time=(begin + trial).to(clock.dtype),
        last_time=(begin + now).to(clock.dtype),
        step=elapsed.new_tensor(trial - now).to(dtype),
        last_step=None if before is None else elapsed.new_tensor(last_step).to(dtype),
        without_memory=method.problem.without_memory(elapsed),
        sums=sums,
        newest=newest,
    )
    try:
        node = method.step(stage, last, before)
    except NotConvergedError:
        return None
    return node if bool(torch.isfinite(node.entry).all()) else None


def _error(method, node, last, before, step, last_step, mass, share, spacing) -> float:
    """The error a step leaves, in tolerances."""
    scale = spacing.atol + spacing.rtol * torch.maximum(node.state.abs(), last.state.abs()).to(torch.float64)
    if before is None:
        slopes = _FIRST * (node.entry - last.entry).abs()
        states = _FIRST * (node.state - last.state).abs()
    else:
        # The line misses by u''/2 · τ (τ + τ'), the interpolation on average by u''/12 · τ².
        ratio, part = step / last_step, step / (6.0 * (step + last_step))
        slopes = part * (node.entry - last.entry - ratio * (last.entry - before.entry)).abs()
        states = part * (node.state - last.state - ratio * (last.state - before.state)).abs()
    error = mass * slopes.to(torch.float64)
    if method.implicit:  # where old errors die out, that of a state is the one of its own interpolation
        error = torch.minimum(error, states.to(torch.float64))
    return float((error / scale).max()) * share**_FORGETTING


class _GrowingHistory:
    """Nodes and entries so far; sums over them at any later time."""

    def __init__(self, method: Method, span: float) -> None:
        self._rules = method.rules()
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
        if self._far:
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
