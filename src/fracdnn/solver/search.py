"""What a search for steps is: one step after the other, each tried before it is taken."""

import math
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from fracdnn.solver.arrays import Array, library
from fracdnn.solver.grids import Spacing
from fracdnn.solver.problem import Problem

FIRST_STEP = 0.02  # in lengths of the piece, where nothing better is known
FORGETTING = 0.75  # the power of time with which errors count up to the first output
JUMP_CAUTION = 500.0  # what estimates of errors next to a jump are short of, at most
_RECENT, _VARIES = 8, 10.0  # steps that a longer one is held against, and how much noise varies between them
# A step longer by the first of these factors has a misfit that is larger by more than the second, unless that is noise:
# which is no larger than this part of func, since what is larger is a function that jumps or is random. Noise varies by
# some such factor from one step to the next.
LONGER, MUCH_MORE, _LARGEST_NOISE, _NOISE_CAUTION = 8.0, 4.0, 0.02, 2.0
# The quantile of all components that is usual, where there are so many, and the part of them that has to agree.
_USUAL, _MANY_PARTS, _MOST = 0.9, 16, 0.75


@dataclass(frozen=True)
class Piece:
    """A part of the span, between breakpoints; times count from the solve's start."""

    begin: float
    end: float
    output: float  # the first after the piece's start, perhaps in another piece
    shortest: float  # of its steps

    @property
    def first_output(self) -> float:
        """After the piece's start, and at its end at the latest; up to it, errors count less."""
        return min(self.output, self.end) - self.begin

    def factor(self, end: float) -> float:
        """With which errors of a step to that time count."""
        return min((end - self.begin) / self.first_output, 1.0) ** FORGETTING


@dataclass(frozen=True)
class Fading:
    """How much an error of a step counts: the `factor` for errors all over it, how long it is until the next output,
    and the `part` of an error of slopes that is left where these miss a jump on one step alone; of samples [B, 1] each.
    """

    factor: Array = 1.0
    wait: Array = math.inf
    part: Array = 1.0


@dataclass(frozen=True)
class Tolerances:
    """Absolute and relative, [G, d] or such that they broadcast against that."""

    atol: torch.Tensor
    rtol: torch.Tensor

    def scale(self, states: Array) -> Array:
        """The error allowed for states [G, S, d] of these sizes; [G, d], of their kind."""
        if isinstance(states, torch.Tensor):
            allowed = self.atol + self.rtol * abs(states).amax(1)
        else:
            allowed = self.atol.numpy() + self.rtol.numpy() * abs(states).max(1)
        return allowed.clip(min=sys.float_info.min)  # not 0 where atol is: a component that is 0 has no error


class Search(ABC):
    """Steps one after the other, each tried before it is taken; times count from the start."""

    growth: ClassVar[float]  # of a step, at most
    # Whether a node's slope counts on both sides of it, so that a jump takes two nodes.
    slope_at_begin: ClassVar[bool]
    listens: ClassVar[bool]  # for noise in func
    # Whether steps end at outputs, since between nodes a solution is worse: of a stiff func slopes are not known well.
    stops_at_outputs = False

    def __init__(self, problem: Problem, begin: torch.Tensor, spacing: Spacing) -> None:
        orders = problem.orders.detach()
        self.problem, self.begin, self.spacing = problem, begin, spacing
        self.smallest_order, self.largest_order = float(orders.min()), float(orders.max())
        self.tolerances = Tolerances(
            problem.states.spread(spacing.atol, "atol").to(begin.device),
            problem.states.spread(spacing.rtol, "rtol").to(begin.device),
        )
        self.now = 0.0
        # What a step's error may be at the next output [G, d], where more than that was found to be too much.
        self.goal: Array | None = None
        # Of the step tried last: errors in tolerances, how far slopes are from what the step takes them for, and their
        # sizes; [G, d].
        self.errors: Array | None = None
        self.misfit: Array | None = None
        self.slope_sizes: Array | None = None
        self._recent: deque[tuple[Array, Array]] = deque(maxlen=_RECENT)  # misfits and sizes of the steps taken last
        self._noise_part: Array | None = None  # of func's values, where it has noise

    @property
    @abstractmethod
    def power(self) -> float:
        """Of its length to which the error of a step that is not the first is proportional."""

    @property
    @abstractmethod
    def state(self) -> torch.Tensor:
        """At the end of the last step taken."""

    def first_step(self, span: float) -> float:
        """What to try first."""
        return FIRST_STEP * span

    @abstractmethod
    def attempt(self, end: float, fading: "Fading") -> float:
        """The error of a step to that time, in tolerances; infinite or NaN where it cannot be made."""

    def accept(self) -> None:
        if self.misfit is not None:
            self._recent.append((self.misfit, self.slope_sizes))

    @abstractmethod
    def restart(self) -> None:
        """Forget what the next step would guess from those before: func jumps here."""

    def spent(self) -> float:
        """What errors since `save` have become, in tolerances of the state now; 0 where nobody keeps account."""
        return 0.0

    def tolerance_now(self) -> Array:
        return self.tolerances.scale(self.state[:, None])

    def save(self) -> Callable[[], None]:
        """What brings back the state of now; called where a piece begins."""
        return lambda: None

    def about_start(self) -> str:
        """What makes the last start or breakpoint hard, and the remedy; empty where nothing is known to."""
        return ""

    def heard_noise(self, longer: float) -> bool:
        """Whether func's own noise, rather than its shape, is what limits the steps of late; then it is noted.

        Noise goes on as it was, and a much longer step misses no more of it. Each component is held against its own
        misfits of late, or, where there are many, against what is usual for the others, since noise varies.
        """
        if len(self._recent) < _RECENT:
            return False
        recent = [misfit / slopes for misfit, slopes in self._recent]
        of = library(recent[0])
        overall = [float(of.quantile(parts, _USUAL)) for parts in recent]
        self.attempt(self.now + longer, Fading())
        if not max(overall) <= _VARIES * min(overall) or self.errors is None or self.misfit is None:
            return False
        usual = of.amax(of.stack(recent), 0)
        if math.prod(usual.shape) >= _MANY_PARTS:
            usual = usual.clip(min=float(of.quantile(usual, _USUAL)))
        limits, longest = ~(self.errors <= 1.0), self.misfit / self.slope_sizes
        scatters = int((limits & (longest <= MUCH_MORE * usual)).sum()) >= _MOST * int(limits.sum())
        if not scatters or float(of.quantile(usual, 0.5)) > _LARGEST_NOISE:
            return False
        level = _NOISE_CAUTION * of.maximum(usual, of.where(limits, longest, 0.0))
        self._noise_part = level if self._noise_part is None else of.maximum(_NOISE_CAUTION * self._noise_part, level)
        self.problem.note_noise(float(of.quantile(usual, 0.5)), self.begin + self.now)
        return True

    @property
    def noise(self) -> Array | None:
        """Of func's values at the sizes they have now, where it is known; [G, d]."""
        return None if self._noise_part is None else self._noise_part * self.slope_sizes

    def without_noise(self, misfit: Array, slopes: Array) -> Array:
        """A misfit, 0 where it is no more than the noise of slopes of these sizes."""
        self.misfit, self.slope_sizes = misfit, slopes.clip(min=sys.float_info.min)
        return misfit if self.noise is None else library(misfit).where(misfit <= self.noise, 0.0, misfit)
