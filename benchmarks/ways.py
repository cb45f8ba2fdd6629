"""Other ways to compute what the library computes: the definition, plain autograd, the double loop; and distances."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch

from fracdnn.caputo import l1_step_factor, l1_weights, memory_matrix
from fracdnn.memory import reference

Step = Callable[[int, torch.Tensor], torch.Tensor]


@lru_cache
def _numbers(order: float, step_size: float, n: int) -> tuple[torch.Tensor, float]:
    """The rows of weights and the factor of a step, made once: no rival pays for them."""
    return memory_matrix(order, n), float(l1_step_factor(order, step_size))


@lru_cache
def _lag_weights(order: float, n: int) -> list[float]:
    return l1_weights(order, n).tolist()


def definition(step: Step, y0: torch.Tensor, n: int, order: float, step_size: float) -> torch.Tensor:
    """Y_n by the library's definition, to which every rival answers."""
    matrix, factor = _numbers(order, step_size, n)
    return reference.propagate(matrix, torch.full((n,), factor, dtype=torch.float64), step, y0)[-1]


def double_loop(step: Step, y0: torch.Tensor, n: int, order: float, step_size: float) -> torch.Tensor:
    """Alg. 1 as printed: for each layer a loop over the differences of all earlier ones."""
    a, (_, c) = _lag_weights(order, n), _numbers(order, step_size, n)
    states = [y0]
    for j in range(1, n + 1):
        z = torch.zeros_like(y0)
        for k in range(1, j):
            z = z + a[j - k] * (states[k] - states[k - 1])
        states.append(states[-1] - z + c * step(j - 1, states[-1]))
    return states[-1]


def sum_by_layer(step: Step, y0: torch.Tensor, n: int, order: float, step_size: float) -> torch.Tensor:
    """One weighted sum over the history a layer: what a careful user of PyTorch would write."""
    matrix, c = _numbers(order, step_size, n)
    matrix = matrix.to(y0.dtype)
    y, flat = y0, [y0.reshape(1, -1)]
    for j in range(n):
        memory = (matrix[j : j + 1, : j + 1] @ torch.cat(flat)).view_as(y0)
        y = torch.add(memory, step(j, y), alpha=c)
        flat.append(y.reshape(1, -1))
    return y


def residual(step: Step, y0: torch.Tensor, n: int, step_size: float) -> torch.Tensor:
    """The same layers without memory."""
    y = y0
    for j in range(n):
        y = torch.add(y, step(j, y), alpha=step_size)
    return y


def distance(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """The largest relative distance of one tensor from another; what is below 1e-3 is compared with that."""
    pairs = zip(found, expected, strict=True)
    errors = [((a - b).norm() / b.norm().clamp(min=1e-3)).detach().double() for a, b in pairs]
    return float(torch.stack(errors).max())
