"""Steps of such lengths that a method's error meets a tolerance: the slope at a new node is held against a line."""

import math

import torch

from fracdnn.caputo.modes import Modes, kernel_modes
from fracdnn.caputo.weights import gamma
from fracdnn.exceptions import NotConvergedError, NotFiniteError
from fracdnn.solver.arrays import norm
from fracdnn.solver.grids import Spacing
from fracdnn.solver.methods.base import Method, Node, Stage
from fracdnn.solver.rules import ConstantRule, Rule, advance
from fracdnn.solver.search import Fading, Search

_FIRST = 0.2  # of a first interval's change of slope that is error, for slopes like t^order
_WINDOW = 128  # nodes before the older half of them becomes far
_TOLERANCE = 1e-12
_OF_MOVING = 10.0  # what the error is of states that func's noise keeps moving


class StepSearch(Search):
    """Nodes of a method, one by one."""

    growth = 2.5
    slope_at_begin = True
    listens = False  # the misfits of so low an order are too much alike

    def __init__(self, method: Method, begin: torch.Tensor, clock: torch.Tensor, span: float, spacing: Spacing) -> None:
        super().__init__(method.problem, begin, spacing)
        orders = method.problem.orders.detach().unsqueeze(-1)
        self._method, self._clock, self.stops_at_outputs = method, clock, method.implicit
        self._span, self._growing = span, (orders - 1.0).clip(min=0.0)
        self._mass = span**orders / gamma(orders + 1.0)  # what an error of the slope can become in the solution
        self._last = method.first(clock[0].detach())
        self._before: Node | None = None
        self._end, self._node, self._last_step = 0.0, self._last, 0.0
        rules = method.rules()
        self._held = isinstance(rules[-1], ConstantRule)
        self._history = _GrowingHistory(rules, span)
        self._history.append(0.0, self._last.entry)

    def attempt(self, end: float, fading: Fading) -> float:
        self._end = end
        step, dtype = self.begin.new_tensor(end - self.now), self._last.state.dtype
        sums, newest = self._history.row(end)
        sums = sums + self.problem.without_memory(step.new_tensor(end)).unsqueeze(1)
        stage = Stage(
            number=len(self._history.times),
            time=(self.begin + end).to(self._clock.dtype),
            last_time=(self.begin + self.now).to(self._clock.dtype),
            reach=None if self._before is None else (1.0 + step / self._last_step).to(dtype),
            sums=sums.unbind(1),
            newest=newest.unbind(1),
        )
        try:
            self._node = self._method.step(stage, self._last, self._before or self._last)
        except (NotConvergedError, NotFiniteError):
            self.errors = self.misfit = None
            return math.inf
        error = fading.factor * (self._error(end - self.now, fading.part) + self._uncorrected(stage))
        if self._method.stages.moving is not None:
            error = error + _OF_MOVING * self._method.stages.moving
        allowed = self.tolerances.scale(torch.stack([self._node.state, self._last.state], dim=1))
        self.errors = error / allowed
        return norm(self.errors)

    @property
    def power(self) -> float:
        return 1.0 if self._held else 2.0

    @property
    def state(self) -> torch.Tensor:
        return self._last.state

    def accept(self) -> None:
        super().accept()
        self._history.append(self._end, self._node.entry)
        self._last_step = self._end - self.now
        self._last, self._before = self._node, self._last

    def restart(self) -> None:
        self._before = None

    def _uncorrected(self, stage: Stage) -> torch.Tensor | float:
        """What one more correction would change: the error of an explicit method's last prediction."""
        if self._method.implicit:
            return 0.0
        node = self._node
        return (stage.sums[-1] + stage.newest[-1] * node.entry - node.state).abs().to(torch.float64)

    def _error(self, step: float, left: float) -> torch.Tensor:
        """[G, d], of slopes that the method takes for constant or linear between nodes."""
        node, last, before = self._node, self._last, self._before
        changes = [(new - old).to(torch.float64) for new, old in _pairs(node, last)]
        if self._held:  # slopes hold over a step, and miss half of their change on average
            part = 0.5
        elif before is None:
            part = _FIRST
        else:
            # The line misses by u''/2 · τ (τ + τ'), the interpolation on average by u''/12 · τ².
            ratio, part = step / self._last_step, step / (6.0 * (step + self._last_step))
            changes = [
                new - ratio * (old - older) for new, (old, older) in zip(changes, _pairs(last, before), strict=True)
            ]
        slopes, states = (change.abs() for change in changes)
        sizes = torch.maximum(node.entry.abs(), last.entry.abs()).to(torch.float64)
        error = left * self._mass * part * self.without_noise(slopes, sizes)
        if self._method.implicit:
            # Where old errors die out, that of a state is the one of its own interpolation; above order 1 they grow.
            grown = ((self._span - self.now) / step) ** self._growing
            error = torch.minimum(error, grown * part * states)
        return error


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
            fresh = [new + advance(self._modes.rates, old, duration) for new, old in zip(fresh, self._far, strict=True)]
        self._far = fresh
        self._entries = self._entries[half:]
        self._begin += half
