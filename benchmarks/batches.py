"""What a batch of solves costs: tables of docs/how-to/batches.md.

    python -m benchmarks.batches [--samples 10000] [--device cuda] [--out docs/results/batches.json]

Linear chains with an oscillating input, 1, 2 and 4 components, rtol 1e-6, without a gradient and with one by the
rates: at orders 0.5 to 0.9 against a loop over the samples, and at order 1 against torchode as well. The loop's time is
that of 40 samples, a share of all; all take turns, and the median of three is shown. With a device, the batches are
solved there, and the loop, which is quicker so, on the CPU. Errors are relative, the largest at the end.
"""

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import torchode_adaptive
from fracdnn import fdeint
from fracdnn.version import versions

FLOAT64 = torch.float64
TIMES = torch.linspace(0.0, 2.0, 5, dtype=FLOAT64)
RTOL, ATOL = 1e-6, 1e-8
LOOPED, TURNS = 40, 3
Row = dict[str, Any]


def chain(rates: torch.Tensor) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """For rates [B, d] with times [B], or [d] with a time."""

    def func(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -rates * y + 0.3 * y.roll(1, -1) * torch.cos(t)[..., None]

    return func


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def measured(samples: int, components: int, device: str, *, fractional: bool, gradient: bool) -> Row:
    """Seconds and errors of a batch, of a loop over all samples and, at order 1, of torchode."""
    generator = torch.Generator().manual_seed(0)
    rates = 0.2 + 3.0 * torch.rand(samples, components, dtype=FLOAT64, generator=generator)
    orders = 0.5 + 0.4 * torch.rand(samples, dtype=FLOAT64, generator=generator)
    starts = 0.5 + torch.rand(samples, components, dtype=FLOAT64, generator=generator)
    orders = orders if fractional else torch.ones_like(orders)
    there, orders_there, starts_there = (each.to(device) for each in (rates, orders, starts))
    there = there.detach().requires_grad_(gradient)
    last: dict[str, torch.Tensor] = {}

    def whole(name: str, solve: Callable[[], torch.Tensor]) -> Callable[[], None]:
        def run() -> None:
            with torch.set_grad_enabled(gradient):
                states = solve()
            if gradient:
                float(torch.autograd.grad(states.sum(), there)[0].sum())  # which waits for a GPU
            last[name] = states[-1].detach().cpu()

        return run

    def batch(rtol: float = RTOL, atol: float = ATOL) -> torch.Tensor:
        return fdeint(chain(there), starts_there, TIMES, order=orders_there, rtol=rtol, atol=atol, batched=True)

    def loop() -> None:
        for sample in range(LOOPED):
            own = rates[sample].detach().requires_grad_(gradient)
            with torch.set_grad_enabled(gradient):
                states = fdeint(chain(own), starts[sample], TIMES, order=orders[sample], rtol=RTOL, atol=ATOL)
            if gradient:
                torch.autograd.grad(states.sum(), own)

    runs = {"batch": whole("batch", batch), "loop": loop}
    if not fractional and importlib.util.find_spec("torchode"):
        runs["torchode"] = whole("torchode", lambda: torchode_adaptive(chain(there), starts_there, TIMES, RTOL, ATOL))
    for name in ("loop", "torchode"):
        runs.get(name, loop)()  # warm
    turns = [{name: seconds(run) for name, run in runs.items()} for _ in range(TURNS)]
    found = {name: statistics.median(turn[name] for turn in turns) for name in runs}
    found["loop"] *= samples / LOOPED
    with torch.no_grad():
        exact = batch(1e-10, 1e-12)[-1].cpu()
    errors = {name: float(((state - exact).abs() / exact.abs().clip(min=1e-2)).max()) for name, state in last.items()}
    return {"fractional": fractional, "components": components, "gradient": gradient, "s": found, "error": errors}


def cells(row: Row) -> list[str]:
    """Of a table."""
    s, error = row["s"], row["error"]
    found = [str(row["components"]), "value + gradient" if row["gradient"] else "value", f"{s['batch']:.2g}"]
    found += [f"{s['loop']:.3g}", f"{s['loop'] / s['batch']:.2g}"]
    if "torchode" in s:
        found += [f"{s['torchode']:.2g}", f"{s['batch'] / s['torchode']:.2g}"]
    return [*found, *(f"{error[name]:.1g}" for name in ("batch", "torchode") if name in error)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[Row] = []
    heads = ["components", "pass", f"batch of {options.samples:,}, s", "loop, s", "loop / batch"]
    for fractional in (True, False):
        print(f"{'orders 0.5 to 0.9' if fractional else 'order 1'}, {torch.get_num_threads()} threads")
        more = [] if fractional else ["torchode, s", "batch / torchode"]
        errors = ["error"] if fractional else ["error", "of torchode"]
        print(f"| {' | '.join([*heads, *more, *errors])} |\n|{' --- |' * len([*heads, *more, *errors])}")
        for components in (1, 2, 4):
            for gradient in (False, True):
                row = measured(options.samples, components, options.device, fractional=fractional, gradient=gradient)
                rows.append(row)
                print(f"| {' | '.join(cells(row))} |", flush=True)
    if options.out:
        setting = {"samples": options.samples, "device": options.device, "threads": torch.get_num_threads()}
        text = json.dumps({"versions": versions(), **setting, "rows": rows}, indent=1)
        options.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
