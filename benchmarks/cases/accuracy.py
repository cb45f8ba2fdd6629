"""Accuracy against time: d_t^0.5 u = −4u, u(0) = 0.5, float64, forward only, the error at T = 1 over the steps.

Forward only, since pycaputo has no gradients. PECE is of order 1.5 here, the explicit schemes of order 1.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks import peers
from benchmarks.case import Case, Group, Options, Rival
from benchmarks.ways import double_loop
from fracdnn import fdeint, graded_mesh
from fracdnn.caputo import mittag_leffler

ORDER, RATE, START = 0.5, -4.0, 0.5
EXACT = START * float(mittag_leffler(RATE, ORDER))
NAIVE_REACH = 512


class Relaxation:
    """The paper's scalar equation in n steps."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.y0 = torch.tensor(START, dtype=torch.float64)
        self.solve: dict[str, Callable[[], float]] = {
            "ours, uniform": partial(self._ours, 1.0, "exact"),
            "ours, graded": partial(self._ours, 1 / ORDER, "exact"),
            "ours, compressed": partial(self._ours, 1.0, "compressed"),
            "naive": lambda: float(double_loop(lambda j, u: RATE * u, self.y0, n, ORDER, 1 / n)),
            "fdeint (PyPI)": lambda: float(peers.fdeint_pece(lambda t, u: RATE * u, self.y0.view(1, 1), 1.0, n, ORDER)),
            "pycaputo, PECE": partial(self._pycaputo, "PECE"),
            "pycaputo, Euler": partial(self._pycaputo, "ForwardEuler"),
        }

    def _ours(self, grading: float, history: str) -> float:
        t = graded_mesh(1.0, self.n, grading)
        solution = fdeint(lambda t, u: RATE * u, self.y0, t, order=ORDER, method="l1", grid="given", history=history)
        return float(solution[-1])

    def _pycaputo(self, method: str) -> float:
        found = peers.pycaputo_solution(method, lambda t, u: RATE * u, np.array([START]), 1.0, self.n, ORDER)
        return float(found[0])

    @torch.no_grad()
    def run(self, name: str) -> float:
        return self.solve[name]()

    def error(self, name: str) -> float:
        return abs(self.run(name) / EXACT - 1)


def rival(name: str, problem: Relaxation) -> Rival:
    package = {"fdeint (PyPI)": "FDEint"}.get(name, "pycaputo" if "pycaputo" in name else "fracdnn")
    __import__(package)
    return Rival(partial(problem.run, name), partial(problem.error, name), tolerance=2 / problem.n)


def cases(options: Options) -> list[Case]:
    sizes = (32, 64) if options.quick else (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    names = list(Relaxation(1).solve)
    return [
        Case(
            name=f"{n} steps",
            settings={"steps": n},
            build=partial(Relaxation, n),
            rivals={name: partial(rival, name) for name in names if name != "naive" or n <= NAIVE_REACH},
            turns=2 if options.quick else 5 if n <= 1024 else 3,
            warm_turns=0 if n > 1024 else 1,
            threads=1,
        )
        for n in sizes
    ]


GROUP = Group(
    "accuracy", "error at T = 1 against seconds of a solve, d_t^0.5 u = -4u, float64, one thread, forward only", cases
)
