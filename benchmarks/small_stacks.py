"""Stacks of small layers, whose time goes between operations: forward + backward, with memory and without it.

Without memory is x = x + step_size * layer(x).

    python -m benchmarks.small_stacks [--turns 31] [--device cuda]

One thread, float32. Both take turns; the ratio is the median of the ratios of processor time turn by turn (on a GPU of
time until the device has ended), with its quartiles.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from fracdnn.nn import FractionalStack

STEP_SIZE = 0.2
# Layers, width, rows.
SIZES = [(12, 64, 64), (40, 8, 32), (100, 64, 256)]
# Seconds of a turn, about.
TURN = 0.05


def seconds(network: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, passes: int) -> float:
    clock = time.perf_counter if x.is_cuda else time.process_time
    began = clock()
    for _ in range(passes):
        network(x).pow(2).mean().backward()
    if x.is_cuda:
        torch.cuda.synchronize()
    return (clock() - began) / passes


def compare(n_layers: int, width: int, rows: int, *, learn_order: bool, turns: int, device: str) -> np.ndarray:
    """Seconds of the stack and of the residual network by turn, [turns, 2]."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(width, width, device=device), nn.Tanh()) for _ in range(n_layers)]
    x = torch.randn(rows, width, device=device)

    def residual(y: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            y = y + STEP_SIZE * layer(y)
        return y

    stack = FractionalStack(layers, order=0.5, step_size=STEP_SIZE, learn_order=learn_order).to(device)
    both = (stack, residual)
    passes = 1 + int(TURN / seconds(residual, x, 3))
    found = [[seconds(each, x, passes) for each in both] for _ in range(turns + 1)]
    return np.array(found[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=31)
    parser.add_argument("--device", default="cpu")
    options = vars(parser.parse_args())
    torch.set_num_threads(1)
    print("| layers | state | order | stack (ms) | residual (ms) | ratio |\n| --- | --- | --- | --- | --- | --- |")
    for n_layers, width, rows in SIZES:
        for learn_order in (False, True):
            found = compare(n_layers, width, rows, learn_order=learn_order, **options)
            ours, residual = 1e3 * np.median(found, axis=0)
            low, ratio, high = np.quantile(found[:, 0] / found[:, 1], [0.25, 0.5, 0.75])
            order = "learned" if learn_order else "fixed"
            name = f"{n_layers} | {rows} x {width} | {order}"
            print(f"| {name} | {ours:.3g} | {residual:.3g} | {ratio:.2f} ({low:.2f} to {high:.2f}) |", flush=True)


if __name__ == "__main__":
    main()
