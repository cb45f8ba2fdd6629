"""Train a convolutional field by fixed steps: time, peak memory and error of the gradient, and what peers take.

    python -m benchmarks.neural_fde --out results.json

Two 3 × 3 convolutions with group norm and 64 channels, state 128 × 64 × 6 × 6 (a small one on a CPU), order 0.6,
explicit L1; forward and backward pass. Errors are those of the parameters' gradient against float32 autograd.
Peers run where they are installed: torchdiffeq (Euler, order 1) and torchfde (l1).
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fracdnn import fdeint

ORDER, TIME_LIMIT = 0.6, 200.0  # seconds for all rows; those that are left then are skipped
WAYS: dict[str, dict[str, Any]] = {
    "fdeint l1": {},
    "fdeint l1, checkpoint": {"checkpoint": True},
    "fdeint l1, checkpoint, 16-bit states": {"checkpoint": True, "store": torch.float16},
}


class Field(nn.Module):
    """The field, with group norm as neural differential equations of images have it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)]
        norms = [nn.GroupNorm(min(32, channels), channels) for _ in range(2)]
        self.net = nn.Sequential(norms[0], nn.ReLU(), convolutions[0], norms[1], nn.ReLU(), convolutions[1])

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.net(y)


def ours(field: Field, y0: torch.Tensor, n_steps: int, options: dict[str, Any]) -> torch.Tensor:
    return fdeint(field, y0, [0.0, 1.0], order=ORDER, method="l1", n_steps=n_steps, trajectory=False, options=options)


def torchdiffeq_euler(field: Field, y0: torch.Tensor, n_steps: int) -> torch.Tensor:
    from torchdiffeq import odeint

    ends = torch.tensor([0.0, 1.0], device=y0.device)
    return odeint(field, y0, ends, method="euler", options={"step_size": 1.0 / n_steps})[-1]


def torchfde_l1(field: Field, y0: torch.Tensor, n_steps: int) -> torch.Tensor:
    from torchfde import fdeint as peer

    end = torch.tensor(1.0, device=y0.device)
    return peer(field, y0, torch.tensor(ORDER, device=y0.device), t=end, step_size=1.0 / n_steps, method="l1")


def plain_euler(field: Field, y0: torch.Tensor, n_steps: int) -> torch.Tensor:
    """Euler's method at order 1 as a loop: the least that any solver takes."""
    y, times = y0, torch.linspace(0.0, 1.0, n_steps + 1, device=y0.device)
    for t in times[:-1].unbind(0):
        y = y + field(t, y) / n_steps
    return y


def measured(
    solve: Callable[[], torch.Tensor], field: Field, device: str, dtype: torch.dtype | None, repeats: int
) -> dict[str, Any]:
    """Return time and peak memory of a training step, with the gradient; the first pass only warms up."""
    on_gpu, seconds, gradient = device == "cuda", [], torch.empty(0)
    base = peak = 0
    for repeat in range(repeats + 1):
        field.zero_grad(set_to_none=True)
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            base = torch.cuda.memory_allocated()
        begun = time.perf_counter()
        with torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None):
            end = solve()
        end.float().square().mean().backward()
        if on_gpu:
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() - base
        seconds += [time.perf_counter() - begun] * (repeat > 0)
        del end
        gradient = torch.cat([p.grad.double().flatten() for p in field.parameters() if p.grad is not None]).cpu()
    found = {"ms": 1e3 * statistics.median(seconds), "gradient": gradient}
    return found | ({"MB": peak / 1e6} if on_gpu else {})


def rows(device: str, quick: bool) -> list[dict[str, Any]]:
    """Measure all rows of the table, those that fail with their error."""
    torch.manual_seed(0)
    shape = (128, 64, 6, 6) if device == "cuda" else (8, 16, 6, 6)
    field = Field(shape[1]).to(device)
    y0, begun = torch.randn(shape, device=device), time.perf_counter()
    found: list[dict[str, Any]] = []
    peers = {"torchdiffeq Euler": torchdiffeq_euler, "torchfde l1": torchfde_l1, "Euler as a loop": plain_euler}
    for n_steps in (20,) if quick else (100, 400):
        exact = None
        for dtype in (None, torch.bfloat16):
            solves: dict[str, Callable[[], torch.Tensor]] = {
                name: lambda options=options, n=n_steps: ours(field, y0, n, options) for name, options in WAYS.items()
            }
            solves |= {name: lambda peer=peer, n=n_steps: peer(field, y0, n) for name, peer in peers.items()}
            for name, solve in solves.items():
                row: dict[str, Any] = {"solver": name, "steps": n_steps, "dtype": str(dtype or torch.float32)[6:]}
                if time.perf_counter() - begun > TIME_LIMIT:
                    found.append(row | {"skipped": "no time left"})
                    continue
                try:
                    numbers = measured(solve, field, device, dtype, repeats=3)
                except (ImportError, RuntimeError, ValueError, ArithmeticError, TypeError) as error:
                    found.append(row | {"skipped": f"{type(error).__name__}: {error}"[:200]})
                    continue
                gradient = numbers.pop("gradient")
                exact = gradient if exact is None else exact
                if not name.endswith(("Euler", "loop")):
                    row["gradient error"] = float((gradient - exact).norm() / exact.norm())
                found.append(row | numbers)
                print(
                    "  ".join(
                        f"{key} {value:.3g}" if isinstance(value, float) else str(value)
                        for key, value in found[-1].items()
                    ),
                    flush=True,
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the rows to this JSON file")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="20 steps only")
    given = parser.parse_args()
    torch.set_num_threads(1)
    machine = torch.cuda.get_device_name() if given.device == "cuda" else platform.processor() or platform.machine()
    result = {"torch": torch.__version__, "machine": machine, "rows": rows(given.device, given.quick)}
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
