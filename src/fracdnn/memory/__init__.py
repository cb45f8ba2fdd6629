"""The history engine: the weighted sum over all earlier states and its transpose.

`reference` is the definition, `exact` the blocked sum, `compressed` the sum for any depth, `sums` what all share, and
order 1; `plan` holds the weights, `choose_sum` says which sum runs, and `chain` runs layers over it with the exact
adjoint as its backward pass, in segments (`recomputation`) where they are computed again.
"""

from fracdnn.memory.chain import run_chain
from fracdnn.memory.plan import equal_steps_weights, general_weights

__all__ = ["equal_steps_weights", "general_weights", "run_chain"]
