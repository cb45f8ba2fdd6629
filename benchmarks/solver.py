"""fdeint on the engine against its definition under autograd: the paper's scalar equation, forward + backward.

python -m benchmarks.solver
"""

import statistics
import time
from collections.abc import Callable

import torch

from fracdnn import fdeint, graded_mesh
from fracdnn.caputo import l1_step_factor, memory_matrix
from fracdnn.memory import reference

N_STEPS, TURNS = 200, 5


def problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rate = torch.tensor(-4.0, dtype=torch.float64, requires_grad=True)
    order = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    return rate, order, torch.tensor(0.5, dtype=torch.float64)


def engine() -> torch.Tensor:
    rate, order, y0 = problem()
    u = fdeint(lambda t, u: rate * u, y0, graded_mesh(1.0, N_STEPS), order=order)
    return torch.stack([u[-1], *torch.autograd.grad(u[-1], (rate, order))]).detach()


def definition() -> torch.Tensor:
    rate, order, y0 = problem()
    matrix, factor = memory_matrix(order, N_STEPS), l1_step_factor(order, 1.0 / N_STEPS)
    u = reference.propagate(matrix, factor.expand(N_STEPS), lambda j, u: rate * u, y0)[-1]
    return torch.stack([u, *torch.autograd.grad(u, (rate, order))]).detach()


def seconds(function: Callable[[], torch.Tensor]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    torch.testing.assert_close(engine(), definition(), rtol=1e-10, atol=1e-12)
    turns = [(seconds(engine), seconds(definition)) for _ in range(TURNS)]
    fast, slow = (statistics.median(column) for column in zip(*turns, strict=True))
    print(f"u(1), du/drate, du/dorder: {engine().tolist()}")
    print(f"{N_STEPS} steps: engine {1e3 * fast:.0f} ms, definition {1e3 * slow:.0f} ms, ratio {slow / fast:.1f}")


if __name__ == "__main__":
    main()
