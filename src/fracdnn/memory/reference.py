"""The definition of a network with memory, to be read; every faster implementation answers to it.

Layer j is an average of all earlier states plus a step,

    Y_j = Σ_{k=0}^{j−1} H_jk Y_k + c_j f_{j−1}(Y_{j−1}),

with the rows of H from `fracdnn.caputo`: positive, summing to 1. Row j−1 of the matrix holds the weights of layer j.
"""

from collections.abc import Callable

import torch


def propagate(
    matrix: torch.Tensor,
    factors: torch.Tensor,
    step: Callable[[int, torch.Tensor], torch.Tensor],
    y0: torch.Tensor,
) -> list[torch.Tensor]:
    """Y_0, …, Y_N, where `step(j, Y_j)` is f_j. O(N²) sums; differentiable by autograd with an O(N²) graph."""
    history = [y0]
    for j, row in enumerate(matrix):
        change = factors[j].to(y0.dtype) * step(j, history[-1])
        remembered = sum(weight.to(state.dtype) * state for weight, state in zip(row, history, strict=False))
        history.append(remembered + change)
    return history
