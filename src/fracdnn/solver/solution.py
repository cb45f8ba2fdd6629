"""What a solve gives besides states."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from fracdnn.exceptions import FracdnnError, NotFiniteError


class Status(Enum):
    """How a solve ended; the value says what to do about it."""

    SOLVED = "the states are within the tolerances: nothing is to be done"
    NOT_CONVERGED = (
        "no steps keep the tolerances: pass larger rtol and atol, times before the solution ends, or, where func "
        "jumps, options={'breakpoints': …}"
    )
    NOT_FINITE = "func gives NaN or infinity on the way: check it there, or the sample's parameters and start"

    @classmethod
    def of(cls, error: FracdnnError) -> "Status":
        """That an error stands for."""
        return cls.NOT_FINITE if isinstance(error, NotFiniteError) else cls.NOT_CONVERGED


@dataclass(frozen=True)
class Solution:
    """What `fdeint(..., info=True)` gives: the states, and how they came about.

    `grid` holds the times of the nodes, `n_rejected` counts the steps that an adaptive grid tried and gave up, and
    `n_evaluations` the calls of func, those for finding the grid among them.

    With `batched=True` there are a row of `grid` (the last time repeated), a number of steps and a `status` for each
    sample; a sample solved alone has a row of NaN.
    """

    states: Any
    method: str
    grid: torch.Tensor
    n_accepted: Any
    n_rejected: Any
    n_evaluations: int
    status: Any = Status.SOLVED
