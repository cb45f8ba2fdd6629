"""Equations with delays: what a tolerance costs and gives, the table of docs/solver.md.

    python -m benchmarks.delays

D^order u = −0.7 u(t − 0.9) from the state 1 up to t = 3.6, four delays: errors at the end, of the solution and of its
derivatives by delay and order, against the closed solution. A second table has the errors of the usual predictor and
corrector, Adams, Bashforth and Moulton's, on equal steps, which divide the delay.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import math
import time

import numpy as np
import torch

from fracdnn.solver import Solution, fdeint_delay

RATE, DELAY, END = 0.7, 0.9, 3.6
ORDERS, RTOLS = (1.0, 0.6, 0.3), (1e-3, 1e-5, 1e-7, 1e-9)
STEPS = (512, 2048, 8192)


def closed(delay: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Σ_k (−rate)^k (t − (k − 1) delay)^(k order)/Γ(k order + 1) at the end, by the method of steps."""
    total = torch.ones((), dtype=torch.float64)
    for k in range(1, round(END / DELAY) + 1):
        power = (END - (k - 1) * delay) ** (k * order) / torch.exp(torch.lgamma(k * order + 1.0))
        total = total + (-RATE) ** k * power
    return total


def by_equal_steps(order: float, per_delay: int) -> float:
    """The end by the fractional Adams–Bashforth–Moulton method, whose corrector needs no iteration here.

    Source: Bhalekar, Daftardar-Gejji, "A predictor-corrector scheme for solving nonlinear delay differential equations
    of fractional order", 2011.
    """
    count, h = round(END / DELAY) * per_delay, DELAY / per_delay
    n = np.arange(count + 1, dtype=np.float64)
    inner = (n + 2) ** (order + 1) + n ** (order + 1) - 2 * (n + 1) ** (order + 1)
    states, slopes = np.ones(count + 1), np.full(count + 1, -RATE)
    for j in range(count):
        first = j ** (order + 1) - (j - order) * (j + 1) ** order
        delayed = states[j + 1 - per_delay] if j + 1 > per_delay else 1.0
        slopes[j + 1] = -RATE * delayed
        total = first * slopes[0] + inner[:j][::-1] @ slopes[1 : j + 1] + slopes[j + 1]
        states[j + 1] = 1.0 + h**order / math.gamma(order + 2) * total
    return float(states[-1])


def row(order: float, rtol: float) -> str:
    given = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (DELAY, order)]
    exact = closed(*given)
    true_gradients = torch.autograd.grad(exact, given)

    def solve(delay: torch.Tensor, order: torch.Tensor) -> Solution:
        t = torch.tensor([0.0, END / 2, END], dtype=torch.float64)
        options = {"slope": 0.0}
        return fdeint_delay(
            lambda t, u, before: -RATE * before,
            1.0,
            t,
            order=order,
            delays=[delay],
            rtol=rtol,
            atol=rtol / 10,
            options=options,
            info=True,
        )

    with torch.no_grad():
        solve(*given)
        begin = time.perf_counter()
        found = solve(*given)
        duration = time.perf_counter() - begin
    error = abs(float(found.states[-1] - exact.detach()))
    allowed = rtol / 10 + rtol * abs(float(exact.detach()))
    gradients = torch.autograd.grad(solve(*given).states[-1], given)
    of_gradients = [abs(float(mine - true)) for mine, true in zip(gradients, true_gradients, strict=True)]
    by_delay, by_order = of_gradients
    return (
        f"| {order:g} | {rtol:.0e} | {error:.1e} ({error / allowed:.1g}) | {by_delay:.1e} | {by_order:.1e} | "
        f"{found.n_accepted} | {found.n_evaluations} | {duration:.2g} |"
    )


def row_of_steps(order: float) -> str:
    exact, cells = float(closed(*(torch.tensor(value, dtype=torch.float64) for value in (DELAY, order)))), []
    for count in STEPS:
        begin = time.perf_counter()
        error = abs(by_equal_steps(order, count // round(END / DELAY)) - exact)
        cells.append(f"{error:.1e}, {time.perf_counter() - begin:.2g} s")
    return f"| {order:g} | {' | '.join(cells)} |"


def main() -> None:
    torch.set_num_threads(1)
    print(
        "| order | rtol | error (in tolerances) | of the derivative by the delay | by the order | panels | calls | s |"
    )
    print(f"|{' --- |' * 8}")
    for order in ORDERS:
        for rtol in RTOLS:
            print(row(order, rtol), flush=True)
    print(f"\n| order | {' | '.join(f'{count} equal steps' for count in STEPS)} |")
    print(f"|{' --- |' * (1 + len(STEPS))}")
    for order in ORDERS:
        print(row_of_steps(order), flush=True)


if __name__ == "__main__":
    main()
