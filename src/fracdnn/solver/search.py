"""What the searches for panels share, of one solve and of a batch."""

import math
import sys
from dataclasses import dataclass

import torch

from fracdnn.solver.arrays import Array, as_kind, library, sizes

SAFETY, SHRINK = 0.9, 0.2
GROWTH = 3.0  # of a panel, at most
FIRST_SHRINK = 1e-3  # of a first panel, which may have to become much shorter
FIRST_STEP = 0.02  # in lengths of the piece, where nothing better is known
MOST_SPENT = 5.0  # tolerances that may be left of errors at the next output, by estimate
FORGETTING = 0.75  # the power of time with which errors count up to the first output
JUMP_CAUTION = 500.0  # what estimates of errors next to a jump are short of, at most
_ENOUGH = 3e-3  # of the tolerance, for iterates


@dataclass(frozen=True)
class Fading:
    """How much an error of a panel counts; of samples, each is [B, 1].

    The `factor` is for errors all over it, `wait` the time until the next output, and `part` what is left of an error
    of slopes that miss a jump on this panel alone.
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

    def enough(self, states: Array, rounding: float, goal: Array | None = None) -> Array:
        """Which change of states [G, S, d] is small enough for iterates, with a goal for the error as well; [G, d]."""
        allowed, of = self.scale(states), library(states)
        if goal is not None:
            allowed = of.minimum(allowed, as_kind(goal, states))
        return of.maximum(_ENOUGH * allowed, rounding * sizes(states))
