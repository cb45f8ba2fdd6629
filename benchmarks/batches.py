"""What a batch of solves costs against a loop over its samples: a table of docs/solver.md.

    python -m benchmarks.batches [samples [device]]

Linear chains with an oscillating input, 1, 2 and 4 components, rtol 1e-6, orders 0.5 to 0.9, without a gradient and
with one by the rates. The loop's time is that of 40 samples, a share of all; both take turns, and the median of
three is shown. With a device, the batch is solved there, and the loop, which is quicker so, on the CPU.
"""

import statistics
import sys
import time
from collections.abc import Callable

import torch

from fracdnn import fdeint

FLOAT64 = torch.float64
TIMES = torch.linspace(0.0, 2.0, 5, dtype=FLOAT64)
LOOPED, TURNS = 40, 3


def chain(rates: torch.Tensor) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """For rates [B, d] with times [B], or [d] with a time."""

    def func(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -rates * y + 0.3 * y.roll(1, -1) * torch.cos(t)[..., None]

    return func


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def measured(samples: int, components: int, device: str, *, gradient: bool) -> tuple[float, float]:
    """Seconds of the batch, and of a loop over all samples."""
    generator = torch.Generator().manual_seed(0)
    rates = 0.2 + 3.0 * torch.rand(samples, components, dtype=FLOAT64, generator=generator)
    orders = 0.5 + 0.4 * torch.rand(samples, dtype=FLOAT64, generator=generator)
    starts = 0.5 + torch.rand(samples, components, dtype=FLOAT64, generator=generator)
    theirs, orders_there, starts_there = (each.to(device) for each in (rates, orders, starts))
    theirs = theirs.detach().requires_grad_(gradient)

    def batch() -> None:
        with torch.set_grad_enabled(gradient):
            states = fdeint(chain(theirs), starts_there, TIMES, order=orders_there, rtol=1e-6, batched=True)
        if gradient:
            float(torch.autograd.grad(states.sum(), theirs)[0].sum())  # which waits for a GPU
        else:
            float(states.sum())

    def loop() -> None:
        for sample in range(LOOPED):
            own = rates[sample].detach().requires_grad_(gradient)
            with torch.set_grad_enabled(gradient):
                states = fdeint(chain(own), starts[sample], TIMES, order=orders[sample], rtol=1e-6)
            if gradient:
                torch.autograd.grad(states.sum(), own)

    loop()
    turns = [(seconds(batch), seconds(loop)) for _ in range(TURNS)]
    return statistics.median(turn[0] for turn in turns), samples / LOOPED * statistics.median(turn[1] for turn in turns)


def main() -> None:
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    print(f"| components | pass | batch of {samples:,}, s | loop, s | loop / batch |")
    print("| --- | --- | --- | --- | --- |")
    for components in (1, 2, 4):
        for gradient in (False, True):
            batch, loop = measured(samples, components, device, gradient=gradient)
            passes = "value + gradient" if gradient else "value"
            print(f"| {components} | {passes} | {batch:.3g} | {loop:.3g} | {loop / batch:.3g} |", flush=True)


if __name__ == "__main__":
    main()
