"""How often nominal 95 % intervals of `fracdnn.fit` hold the truth, on synthetic data.

`python -m benchmarks.coverage --out docs/results/coverage.json` runs 500 data sets for each of three models. The size
of the noise is not told to the fit. `--count` takes fewer, `--first` begins elsewhere: data set i has seed i.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fracdnn
from fracdnn.fitting import Body, Circuit
from fracdnn.version import versions


@dataclass(frozen=True)
class Case:
    """A model, where it is measured, its true parameters with bounds, and the noise in parts of |value|, or of 1."""

    model: Callable[..., torch.Tensor]
    t: np.ndarray
    truth: dict[str, tuple[float, float | None, float | None]]
    noise: float
    sigma: str | None = None


RELAXATION, ZENER, CIRCUIT = Body("E1-S1"), Body("p(E0,E1-S1)"), Circuit("R0-p(R1,CPE1)")
CASES = {
    "relaxation": Case(
        RELAXATION.relaxation,
        np.linspace(0.1, 10, 40),
        {"E1": (2.0, 0, None), "S1_V": (2.5, 0, None), "S1_order": (0.7, 0.05, 1.0)},
        0.03,
    ),
    "Zener body": Case(
        ZENER.modulus,
        np.logspace(-3, 3, 30),
        {"E0": (1.0, 0, None), "E1": (20.0, 0, None), "S1_V": (5.0, 0, None), "S1_order": (0.6, 0.05, 1.0)},
        0.03,
        "modulus",
    ),
    "R-CPE circuit": Case(
        CIRCUIT.impedance,
        2 * np.pi * np.logspace(-1, 5, 35),
        {"R0": (10.0, 0, None), "R1": (100.0, 0, None), "CPE1_Q": (2e-5, 0, None), "CPE1_order": (0.85, 0.05, 1.0)},
        0.02,
        "modulus",
    ),
}


def covered(case: Case, seed: int) -> dict[str, tuple[bool, bool]]:
    """For each parameter, whether the profile's interval and estimate ± t · standard error hold the truth."""
    from scipy import stats

    generator = np.random.default_rng(seed)
    exact = case.model(torch.tensor(case.t), **{name: each[0] for name, each in case.truth.items()}).numpy()
    parts = generator.standard_normal((2, len(case.t)))
    noise = case.noise * (np.abs(exact) if case.sigma else 1.0)
    data = exact + noise * (parts[0] + 1j * parts[1] if np.iscomplexobj(exact) else parts[0])
    start = {name: (value * (1.0 if "order" in name else 1.5), *rest) for name, (value, *rest) in case.truth.items()}
    result = fracdnn.fit(case.model, start, case.t, data, case.sigma)
    wide = stats.t.ppf(0.975, result.n_data - len(result.free))
    return {
        name: (
            result.intervals[name][0] <= truth[0] <= result.intervals[name][1],
            abs(result.values[name] - truth[0]) <= wide * result.errors[name],
        )
        for name, truth in case.truth.items()
    }


def measured(count: int, first: int) -> dict[str, Any]:
    """Shares for each model and parameter, and the seconds of a fit with all of its intervals."""
    rows = {}
    for name, case in CASES.items():
        began = time.perf_counter()
        found = [covered(case, seed) for seed in range(first, first + count)]
        seconds = (time.perf_counter() - began) / count
        shares = {
            parameter: {
                "profile": sum(each[parameter][0] for each in found) / count,
                "standard_error": sum(each[parameter][1] for each in found) / count,
            }
            for parameter in case.truth
        }
        rows[name] = {"n_points": len(case.t), "noise": case.noise, "seconds": round(seconds, 3), "coverage": shares}
        for parameter, share in shares.items():
            print(
                f"{name}, {parameter}: {100 * share['profile']:.1f} % (by errors {100 * share['standard_error']:.1f} %)"
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = measured(options.count, options.first)
    spread = 1.96 * math.sqrt(0.95 * 0.05 / options.count)
    document = {"count": options.count, "first_seed": options.first, "chance": round(spread, 4), "versions": versions()}
    if options.out is not None:
        options.out.write_text(json.dumps(document | {"models": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
