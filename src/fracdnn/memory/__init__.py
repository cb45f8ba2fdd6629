"""The history engine: the weighted sum over all earlier states and its transpose.

`reference` is the definition, `exact` the blocked sum, `compressed` the sum for any depth; `chain` runs layers over
one of them with the exact adjoint as its backward pass.
"""

from fracdnn.memory.chain import Tape, propagate
from fracdnn.memory.plan import (
    HISTORIES,
    MemoryPlan,
    choose_history,
    default_tolerance,
    equal_steps_plan,
    grid_plan,
)
from fracdnn.memory.residual import ResidualTape, propagate_residual

__all__ = [
    "HISTORIES",
    "MemoryPlan",
    "ResidualTape",
    "Tape",
    "choose_history",
    "default_tolerance",
    "equal_steps_plan",
    "grid_plan",
    "propagate",
    "propagate_residual",
]
