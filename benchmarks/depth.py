"""Forward + backward of a network with memory against the same layers as a plain residual network, by depth.

    python -m benchmarks.depth            # the table of docs/benchmarks.md
    python -m benchmarks.depth --quick

Each line is one interleaved run: the rivals take turns, the medians of several turns are compared. Values and gradients
are checked against the definition before anything is timed. Peak memory is that of a fresh process for each rival.
"""

import argparse
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from fracdnn.caputo import l1_step_factor, l1_weights, memory_matrix
from fracdnn.memory import reference
from fracdnn.nn import FractionalStack

ORDER, STEP_SIZE = 0.5, 0.2


@dataclass(frozen=True)
class Case:
    n_layers: int
    width: int = 256
    batch: int = 256
    dtype: torch.dtype = torch.float32
    turns: int = 7
    naive: bool = False


CASES = [
    Case(100, naive=True),
    Case(300),
    Case(500, turns=5),
    Case(1000, turns=5),
    Case(4000, turns=3),
    Case(35, width=2, batch=280, dtype=torch.float64, turns=41, naive=True),
]
QUICK = [Case(40, width=64, batch=64, turns=3, naive=True), Case(35, width=2, batch=280, dtype=torch.float64, turns=9)]


class Rivals:
    """The same layers three ways."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        self.case = case
        layers = [nn.Sequential(nn.Linear(case.width, case.width), nn.Tanh()) for _ in range(case.n_layers)]
        self.stack = FractionalStack(layers, order=ORDER, step_size=STEP_SIZE).to(case.dtype)
        self.layers = list(self.stack.layers)
        self.x = torch.randn(case.batch, case.width, dtype=case.dtype)

    def ours(self) -> torch.Tensor:
        return self.stack(self.x)

    def residual(self) -> torch.Tensor:
        y = self.x
        for layer in self.layers:
            y = torch.add(y, layer(y), alpha=STEP_SIZE)
        return y

    def naive(self) -> torch.Tensor:
        """Alg. 1 as printed: a double loop of differences under autograd."""
        a = l1_weights(ORDER, self.case.n_layers).tolist()
        c = float(l1_step_factor(ORDER, STEP_SIZE))
        states = [self.x]
        for j in range(1, self.case.n_layers + 1):
            z = torch.zeros_like(self.x)
            for k in range(1, j):
                z = z + a[j - k] * (states[k] - states[k - 1])
            states.append(states[-1] - z + c * self.layers[j - 1](states[-1]))
        return states[-1]

    def step(self, name: str) -> float:
        """One forward and backward pass; seconds."""
        self.stack.zero_grad()
        start = time.perf_counter()
        getattr(self, name)().pow(2).mean().backward()
        return time.perf_counter() - start


def check(case: Case) -> None:
    """Values and gradients against the definition, with fewer samples and layers where it would take too long."""
    small = Case(min(case.n_layers, 150), case.width, min(case.batch, 16), case.dtype)
    rivals = Rivals(small)
    rivals.stack.history = FractionalStack(rivals.layers * 20, order=ORDER).history_ if case.n_layers > 200 else "auto"
    factors = l1_step_factor(ORDER, STEP_SIZE).expand(small.n_layers)
    matrix = memory_matrix(ORDER, small.n_layers)
    expected = reference.propagate(matrix, factors, lambda j, y: rivals.layers[j](y), rivals.x)[-1]
    parameters = list(rivals.stack.parameters())
    theirs = torch.autograd.grad(expected.pow(2).mean(), parameters)
    result = rivals.ours()
    ours = torch.autograd.grad(result.pow(2).mean(), parameters)
    tolerance = 1e-10 if case.dtype == torch.float64 else 1e-4
    for mine, other in zip((result, *ours), (expected, *theirs), strict=True):
        error = float(((mine - other).norm() / other.norm()).detach())
        if not error <= tolerance:
            raise SystemExit(f"{case}: relative error {error:.1e} exceeds {tolerance:.0e}; nothing is timed")


def high_water_mark() -> float:
    """MiB that this process has held at most."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def peak_memory(case: Case, name: str) -> float:
    """MiB above a process that has everything but the pass."""
    code = (
        "import torch; from benchmarks.depth import Case, Rivals, high_water_mark;"
        f"rivals = Rivals(Case({case.n_layers}, {case.width}, {case.batch}, {case.dtype}));"
        f"before = high_water_mark(); rivals.step('{name}'); print(high_water_mark() - before)"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def measure(case: Case) -> str:
    check(case)
    rivals = Rivals(case)
    names = ["residual", "ours", "naive"] if case.naive else ["residual", "ours"]
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(case.turns + 1):
        for name in names:
            seconds = rivals.step(name)
            if turn:  # the first turn warms up
                times[name].append(seconds)
    median = {name: statistics.median(found) for name, found in times.items()}
    spread = statistics.quantiles([b / a for a, b in zip(times["residual"], times["ours"], strict=True)], n=4)
    naive = f"{median['naive'] / median['ours']:.1f}" if case.naive else "-"
    memory = peak_memory(case, "ours") / peak_memory(case, "residual") if case.n_layers >= 100 else None
    cells = [
        case.n_layers,
        f"{case.batch} x {case.width}",
        str(case.dtype).removeprefix("torch."),
        rivals.stack.history_,
        f"{1e6 * median['residual'] / case.n_layers:.0f}",
        f"{1e6 * median['ours'] / case.n_layers:.0f}",
        f"{median['ours'] / median['residual']:.2f} ({spread[0]:.2f}-{spread[2]:.2f})",
        naive,
        "-" if memory is None else f"{memory:.2f}",
    ]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small cases, to see that it runs")
    arguments = parser.parse_args()
    print(
        f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, "
    )
    print(f"order {ORDER}; microseconds per layer, forward + backward; ratio: median (quartiles)\n")
    print("| layers | state | dtype | history | residual | ours | ours / residual | naive / ours | memory ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in QUICK if arguments.quick else CASES:
        print(measure(case), flush=True)


if __name__ == "__main__":
    main()
