"""Error against seconds for batches, delays and diffusion: a picture and numbers of docs/benchmarks.md.

    python -m benchmarks.work_precision --out docs/results/work-precision.json --picture docs/images/work-precision.png

Beside ours: for a batch the loop over its samples; for a delay the usual predictor and corrector on equal steps; for
diffusion the implicit L1 scheme on a graded mesh, with sparse factors for each step. One thread, values only, the least
of three times; all errors are relative, at the end, against closed solutions.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch

from benchmarks import delays
from benchmarks.diffusion import MODES, ORDER, Diffusion, T
from fracdnn import fdeint
from fracdnn.caputo import mittag_leffler
from fracdnn.solver import fdeint_delay
from fracdnn.version import versions

F64 = torch.float64
RTOLS = (1e-3, 1e-5, 1e-7, 1e-9)
SAMPLES, LOOPED, CELLS = 500, 5, 32
Point = tuple[float, float]  # seconds and error


def least(run: Callable[[], torch.Tensor], times: int = 3) -> tuple[float, torch.Tensor]:
    """Seconds, and what was found."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        with torch.no_grad():
            found = run()
        taken.append(time.perf_counter() - begin)
    return min(taken), found


def batches() -> dict[str, list[Point]]:
    """D^order u = −rate u, rates 0.2 to 3.2 and orders 0.5 to 0.9, up to t = 2."""
    generator = torch.Generator().manual_seed(0)
    rates, orders = (torch.rand(SAMPLES, dtype=F64, generator=generator) for _ in range(2))
    rates, orders, ones = 0.2 + 3.0 * rates, 0.5 + 0.4 * orders, torch.ones(SAMPLES, dtype=F64)
    exact = torch.stack([mittag_leffler(-r * 2.0**o, o) for r, o in zip(rates, orders.tolist(), strict=True)])
    found: dict[str, list[Point]] = {"fdeint, batched": [], "fdeint, a loop": []}
    for rtol in RTOLS:
        sizes = {"rtol": rtol, "atol": rtol / 100}
        whole = least(
            lambda s=sizes: fdeint(lambda t, u: -rates * u, ones, [0, 2], order=orders, batched=True, **s)[-1]
        )

        def loop(sizes: dict[str, float] = sizes) -> torch.Tensor:
            each = zip(rates[:LOOPED], orders[:LOOPED], strict=True)
            return torch.stack([fdeint(lambda t, u, r=r: -r * u, 1.0, [0, 2], order=o, **sizes)[-1] for r, o in each])

        alone = least(loop)
        found["fdeint, batched"].append((whole[0], float((whole[1] / exact - 1.0).abs().max())))
        error = float((alone[1] / exact[:LOOPED] - 1.0).abs().max())
        found["fdeint, a loop"].append((alone[0] * SAMPLES / LOOPED, error))
    return found


def with_delay(order: float = 0.6) -> dict[str, list[Point]]:
    """D^0.6 u = −0.7 u(t − 0.9)."""
    exact = float(delays.closed(torch.tensor(delays.DELAY, dtype=F64), torch.tensor(order, dtype=F64)))
    ours, theirs = [], []
    for rtol in RTOLS:
        seconds, found = least(
            lambda rtol=rtol: fdeint_delay(
                lambda t, u, before: -delays.RATE * before,
                1.0,
                [0, delays.END],
                order=order,
                delays=[delays.DELAY],
                rtol=rtol,
                atol=rtol / 100,
            )[-1]
        )
        ours.append((seconds, abs(float(found) / exact - 1.0)))
    for per_delay in (32, 128, 512, 2048):
        seconds, found = least(lambda n=per_delay: torch.tensor(delays.by_equal_steps(order, n), dtype=F64))
        theirs.append((seconds, abs(float(found) / exact - 1.0)))
    return {"fdeint_delay": ours, "Adams, equal steps": theirs}


def l1_implicit(diffusion: Diffusion, m: int, n: int) -> torch.Tensor:
    """N steps of the L1 scheme on a graded mesh, factored one by one; the history is kept and summed."""
    t = T * (np.arange(n + 1) / n) ** ((2.0 - ORDER) / ORDER)
    line = scipy.sparse.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(m, m))
    eye = scipy.sparse.eye_array(m)
    matrix = (scipy.sparse.kron(line, eye) + scipy.sparse.kron(eye, line)) / diffusion.h**2
    whole = scipy.sparse.eye_array(m * m)
    states, changes = diffusion.start().numpy().reshape(-1), []
    for j in range(1, n + 1):
        weights = ((t[j] - t[:j]) ** (1 - ORDER) - (t[j] - t[1 : j + 1]) ** (1 - ORDER)) / np.diff(t[: j + 1])
        weights /= math.gamma(2.0 - ORDER)
        known = weights[-1] * states - (weights[:-1] @ np.array(changes) if changes else 0.0)
        after = scipy.sparse.linalg.splu((weights[-1] * whole - matrix).tocsc()).solve(known)
        changes.append(after - states)
        states = after
    return torch.from_numpy(states).reshape(m, m)


def diffusing() -> dict[str, list[Point]]:
    """D^0.6 u = Δu on 32 x 32 cells."""
    diffusion = Diffusion(CELLS)
    exact, ours, theirs = diffusion.exact(), [], []

    def error(found: torch.Tensor) -> float:
        return float((found - exact).abs().max() / exact.abs().max())

    for rtol in RTOLS:
        func, sizes = lambda t, u: diffusion.laplacian(u), {"rtol": rtol, "atol": rtol / 100}
        seconds, found = least(lambda f=func, s=sizes: fdeint(f, diffusion.start(), [0, T], order=ORDER, **s)[-1])
        ours.append((seconds, error(found)))
    for n in (50, 200, 800):
        seconds, found = least(lambda n=n: l1_implicit(diffusion, CELLS, n), times=1)
        theirs.append((seconds, error(found)))
    return {"fdeint": ours, "L1, implicit, graded": theirs}


def draw(results: dict[str, dict[str, list[Point]]], path: Path) -> None:
    """A panel for each kind of problem."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(results), figsize=(11, 4), layout="constrained")
    for axis, (title, curves) in zip(axes, results.items(), strict=True):
        for marker, (name, points) in zip("os", curves.items(), strict=True):
            axis.loglog(*zip(*points, strict=True), marker=marker, label=name)
        axis.set(title=title, xlabel="seconds")
        axis.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, fontsize=9)
        axis.xaxis.set_minor_formatter(plt.NullFormatter())
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("relative error at the end")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    titles = {
        f"batch of {SAMPLES:,}": batches,
        "one delay, order 0.6": with_delay,
        f"diffusion, {CELLS} x {CELLS}, {len(MODES)} modes": diffusing,
    }
    results = {}
    for title, measure in titles.items():
        results[title] = measure()
        for name, points in results[title].items():
            print(title, name, *(f"{seconds:.3g} s {error:.1e};" for seconds, error in points), flush=True)
    if options.out:
        options.out.write_text(
            json.dumps({"versions": versions(), "points": results}, indent=1) + "\n", encoding="utf-8"
        )
    if options.picture:
        draw(results, options.picture)


if __name__ == "__main__":
    main()
