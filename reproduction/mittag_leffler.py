"""The paper's Example: d_t^0.5 u = −4u, u(0) = 0.5, whose solution is 0.5 E_0.5(−4 t^0.5)."""

from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.caputo import mittag_leffler
from fracdnn.datasets import Perfume
from fracdnn.solver import Given, fdeint, graded_mesh


@dataclass(frozen=True)
class Example:
    """Settings as printed in the paper; `step_sizes` adds coarser and finer ones to show the convergence."""

    order: float = 0.5
    rate: float = -4.0
    initial: float = 0.5
    final_time: float = 1.0
    step_size: float = 0.005
    step_sizes: tuple[float, ...] = (0.02, 0.01, 0.005, 0.0025)


def jobs(example: Example) -> list[dict[str, Any]]:
    return [{"step_size": step_size} for step_size in example.step_sizes]


def work(example: Example, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    """The explicit L1 solution for one step size and the exact one; all of both for the paper's step."""
    t = graded_mesh(example.final_time, round(example.final_time / job["step_size"]))
    y0 = torch.tensor(example.initial, dtype=torch.float64)
    numerical = fdeint(lambda t, u: example.rate * u, y0, t, order=example.order, method="l1", grid=Given())
    exact = example.initial * mittag_leffler(example.rate * t**example.order, example.order)
    at_end, error = float(numerical[-1]), float((numerical - exact)[-1].abs())
    found: dict[str, Any] = {"at_end": at_end, "exact": float(exact[-1]), "error": error}
    if job["step_size"] == example.step_size:
        found["curve"] = {"t": t.tolist(), "numerical": numerical.tolist(), "exact": exact.tolist()}
    return found
