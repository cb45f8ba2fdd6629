"""The history engine: the weighted sum over all earlier states and its transpose.

`reference` is the definition, `exact` the blocked sum, `compressed` the sum for any depth, `sums` what all share, and
order 1; `plan` holds the weights, `choose_sum` says which sum runs, and `chain` runs layers over it with the exact
adjoint as its backward pass, in segments (`recomputation`) where they are computed again.
"""

from fracdnn.memory.chain import run_chain
from fracdnn.memory.choose_sum import choose_block, choose_compression, choose_triton
from fracdnn.memory.plan import (
    ExactPlan,
    MemorylessPlan,
    MemoryPlan,
    default_compress_tol,
    equal_steps_plan,
    general_weights,
    steps_plan,
)

__all__ = [
    "ExactPlan",
    "MemoryPlan",
    "MemorylessPlan",
    "choose_block",
    "choose_compression",
    "choose_triton",
    "default_compress_tol",
    "equal_steps_plan",
    "general_weights",
    "run_chain",
    "steps_plan",
]
