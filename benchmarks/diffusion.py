"""Diffusion with memory on a line of m cells and on m x m cells: time, error and linear solves, for docs/solver.md.

    python -m benchmarks.diffusion [--line 100 400 2000] [--square 64 128 256] [--device cuda]

d_t^0.6 u = κ Δu on the unit interval or square, two modes, to T = 0.1 at rtol 1e-6, with the gradient of the mean by
order and κ. The error is that in time, against the Mittag-Leffler solution on the same grid. On the square, on a CPU,
also the steps of the implicit L1 scheme on a graded mesh with exponent (2 − order)/order that reach 1e-6: one linear
solve each and, as steps differ, one factorization each. They are counted on the two modes alone, for which the scheme
does the same. A small problem is solved first, so that imports do not count.
"""

import argparse
import time
from typing import Any

import scipy.sparse.linalg
import torch

from fracdnn import fdeint
from fracdnn.caputo import mittag_leffler
from fracdnn.solver import Graded

FLOAT64 = torch.float64
ORDER, T, RTOL = 0.6, 0.1, 1e-6
MODES = ((1.0, (1, 1)), (0.3, (2, 3)))  # amplitudes, and waves along each side


class Diffusion:
    """On m x m inner cells, or on m of a line."""

    def __init__(self, m: int, dimensions: int = 2) -> None:
        self.h, self.dimensions = 1.0 / (m + 1), dimensions
        self._x = torch.linspace(self.h, 1.0 - self.h, m, dtype=FLOAT64)

    def shape(self, waves: tuple[int, int]) -> torch.Tensor:
        first, *rest = (torch.sin(k * torch.pi * self._x) for k in waves[: self.dimensions])
        return torch.outer(first, *rest) if rest else first

    def rate(self, waves: tuple[int, int]) -> float:
        """Of the discrete Laplacian, negative."""
        half = torch.tensor(waves[: self.dimensions], dtype=FLOAT64) * torch.pi * self.h / 2.0
        return float(-4.0 / self.h**2 * torch.sin(half).square().sum())

    def start(self) -> torch.Tensor:
        return sum(amplitude * self.shape(waves) for amplitude, waves in MODES)  # type: ignore[return-value]

    def exact(self, order: float = ORDER) -> torch.Tensor:
        decayed = [mittag_leffler(self.rate(waves) * T**order, order) for _, waves in MODES]
        return sum(each[0] * u * self.shape(each[1]) for each, u in zip(MODES, decayed, strict=True))  # type: ignore

    def laplacian(self, u: torch.Tensor) -> torch.Tensor:
        if self.dimensions == 1:
            padded = torch.nn.functional.pad(u, (1, 1))
            return (padded[2:] - 2.0 * u + padded[:-2]) / self.h**2
        padded = torch.nn.functional.pad(u, (1, 1, 1, 1))
        sides = padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2]
        return (sides - 4.0 * u) / self.h**2


class Counted:
    """Counts factorizations and solves."""

    def __init__(self) -> None:
        self.factors = self.solves = 0
        self._splu = scipy.sparse.linalg.splu

    def __enter__(self) -> "Counted":
        scipy.sparse.linalg.splu = self._factored
        return self

    def __exit__(self, *_: object) -> None:
        scipy.sparse.linalg.splu = self._splu

    def _factored(self, *arguments: Any, **options: Any) -> "Counted._Factors":
        self.factors += 1
        return self._Factors(self, self._splu(*arguments, **options))

    class _Factors:
        def __init__(self, count: "Counted", factors: Any) -> None:
            self._count, self._factors = count, factors

        def solve(self, *arguments: Any) -> Any:
            self._count.solves += 1
            return self._factors.solve(*arguments)


def steps_of_l1(diffusion: Diffusion, error: float) -> int:
    """Steps of the implicit L1 scheme that reach an error, within a tenth."""
    rates = torch.tensor([diffusion.rate(waves) for _, waves in MODES], dtype=FLOAT64)
    amplitudes = torch.tensor([amplitude for amplitude, _ in MODES], dtype=FLOAT64)
    exact = amplitudes * mittag_leffler(rates * T**ORDER, ORDER)
    n = 100
    while True:
        with torch.no_grad():
            found = fdeint(
                lambda t, u: rates * u,
                amplitudes,
                [0.0, T],
                order=ORDER,
                method="l1-implicit",
                grid=Graded(n, (2.0 - ORDER) / ORDER),
            )[-1]
        if float((found - exact).abs().sum() / exact.abs().sum()) <= error:
            return n
        n = round(1.1 * n) if n > 1000 else 2 * n


def row(m: int, dimensions: int, device: str) -> list[str]:
    """Of the table."""
    diffusion = Diffusion(m, dimensions)
    kappa, order = (torch.tensor(value, dtype=FLOAT64, device=device, requires_grad=True) for value in (1.0, ORDER))
    start = diffusion.start().to(device)

    def func(t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return kappa * diffusion.laplacian(u)

    with Counted() as count:
        begin = time.perf_counter()
        end = fdeint(func, start, [0.0, T], order=order, rtol=RTOL)[-1]
        middle = time.perf_counter()
        by_order = torch.autograd.grad(end.mean(), (kappa, order))[1].cpu()
        last = time.perf_counter()
    exact, step = diffusion.exact(), 1e-4
    slope = (diffusion.exact(ORDER + step) - diffusion.exact(ORDER - step)).mean() / (2.0 * step)
    error = float((end.detach().cpu() - exact).abs().max() / exact.abs().max())
    of_order = abs(float(by_order / slope) - 1.0)
    times = [f"{seconds:.3g}" for seconds in (middle - begin, last - middle)]
    counts = [count.factors, count.solves]
    if dimensions == 2 and device == "cpu":
        counts.append(steps_of_l1(diffusion, RTOL))
    return [" x ".join([str(m)] * dimensions), *times, f"{error:.1g}", f"{of_order:.1g}", *map("{:,}".format, counts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--line", type=int, nargs="*", default=[])
    parser.add_argument("--square", type=int, nargs="*", default=[])
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    row(20, 2, options.device)
    heads = "cells", "value, s", "gradient, s", "error in time", "error of ∂/∂order", "factorizations", "solves"
    for dimensions, sizes in ((1, options.line), (2, options.square)):
        if sizes:
            columns = [*heads, *(["L1 solves"] if dimensions == 2 and options.device == "cpu" else [])]
            print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
        for m in sizes:
            print(f"| {' | '.join(row(m, dimensions, options.device))} |", flush=True)


if __name__ == "__main__":
    main()
