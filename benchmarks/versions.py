"""Everyday work in two checkouts of this repository, in turns: what a change of the code did to its time.

    git worktree add ../before COMMIT
    python -m benchmarks.versions ../before . --starts 7 --turns 5

starts a process for each checkout, which does each case once in turn with the other, on one thread, and starts both
anew: where a process happens to lie in memory can make a third of a difference, which no number of turns averages out.
A start's ratio of processor time is the median over its turns; the table has the median over the starts, and quartiles.
Cases take only names that both checkouts have.
"""

import argparse
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

Work = Callable[[], object]


def stack(n_layers: int, width: int, rows: int) -> Work:
    import torch
    from torch import nn

    from fracdnn.nn import FractionalStack

    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(n_layers)]
    network, x = FractionalStack(layers, order=0.5, step_size=0.2), torch.randn(rows, width)
    return lambda: network(x).pow(2).mean().backward()


def paper_size(width: int, rows: int) -> Work:
    import torch

    from fracdnn.nn import FractionalNetwork
    from fracdnn.training import Objective, backward

    torch.manual_seed(0)
    network = FractionalNetwork(width, 4, n_layers=35, order=0.5, step_size=0.2).double()
    x, target = torch.randn(rows, width, dtype=torch.float64), torch.randint(4, (rows,))
    return lambda: [backward(Objective(), network, x, target) for _ in range(20)]


def perfume() -> Work:
    import torch

    from fracdnn.nn import FractionalNetwork
    from fracdnn.training import MiniBatchTraining, Objective, Task

    torch.manual_seed(0)
    x, target = torch.randn(560, 2, dtype=torch.float64), torch.randint(20, (560,))

    def work() -> None:
        generator = torch.Generator().manual_seed(0)
        network = FractionalNetwork(2, 20, n_layers=35, order=0.9, step_size=0.2, generator=generator).double()
        task = Task(network, Objective(), x, target, generator=generator)
        MiniBatchTraining(n_batches=12).fit(task)

    return work


def default_fit() -> Work:
    from fracdnn import FractionalClassifier

    random = np.random.default_rng(0)
    X = random.normal(size=(500, 20)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + X[:, 2] > 0.3 * random.normal(size=500)
    return lambda: FractionalClassifier(random_state=0).fit(X, y)


def equation(name: str, *, gradient: bool) -> Work:
    import torch

    from fracdnn import fdeint

    torch.manual_seed(0)
    fields = torch.randn(32, 32, dtype=torch.float64) / 6
    start = torch.randn(256, 32, dtype=torch.float64) if name == "field" else torch.tensor(1.0, dtype=torch.float64)
    t = torch.tensor([0.0, 1.0], dtype=torch.float64)

    def work() -> None:
        rate = torch.tensor(1.0, dtype=torch.float64, requires_grad=gradient)
        functions = {
            "field": lambda t, u: torch.tanh(rate * u @ fields) - u,
            "linear": lambda t, u: -4 * rate * u,
            "power": lambda t, u: t**2 - rate * u.abs() ** 1.5,
        }
        last = fdeint(functions[name], start, t, order=0.5, rtol=1e-6)[-1]
        if gradient:
            last.sum().backward()

    return work


CASES: dict[str, Callable[[], Work]] = {
    "stack, 100 layers of width 64, 256 rows": lambda: stack(100, 64, 256),
    "stack, 1,000 layers of width 64, 64 rows": lambda: stack(1000, 64, 64),
    "paper's size, width 2, 280 rows": lambda: paper_size(2, 280),
    "paper's size, width 8, 2,000 rows": lambda: paper_size(8, 2000),
    "paper's training, 12 mini-batches": perfume,
    "default fit, 500 x 20": default_fit,
    **{
        f"fdeint, {name}, {'with gradient' if gradient else 'values'}": lambda name=name, gradient=gradient: equation(
            name, gradient=gradient
        )
        for name in ("power", "linear", "field")
        for gradient in (False, True)
    },
}


def serve() -> None:
    """Do the cases that come by name, one line each, and answer with the seconds of processor time."""
    known: dict[str, Work] = {}
    for line in sys.stdin:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            name = line.rstrip("\n")
            if name not in known:
                known[name] = CASES[name]()
                known[name]()
            began = time.process_time()
            known[name]()
            print(time.process_time() - began, flush=True)


class Checkout:
    """A process that works with the package of one checkout."""

    def __init__(self, root: Path) -> None:
        env = {**os.environ, "PYTHONPATH": str(root.resolve() / "src"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-P", str(Path(__file__).resolve()), "--serve"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def seconds(self, name: str) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(name, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline() or "nan")

    def close(self) -> None:
        self._process.communicate()


def one_start(roots: list[Path], name: str, turns: int) -> list[list[float]]:
    """Seconds [turns, 2] of a case in two fresh processes, in turns."""
    both = [Checkout(root) for root in roots]
    seconds = [[each.seconds(name) for each in both] for _ in range(turns)]
    for each in both:
        each.close()
    return seconds


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="*", type=Path, help="two folders: before, after")
    parser.add_argument("--starts", type=int, default=7, help="how often both processes start anew (%(default)s)")
    parser.add_argument("--turns", type=int, default=5, help="how often each start times a case (%(default)s)")
    parser.add_argument("--only", nargs="+", metavar="WORD", default=[], help="cases whose names hold all these words")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.serve:
        serve()
        return 0
    if len(options.checkouts) != 2:
        parser.error("two folders are needed: before, after")
    print("| case | before (s) | after (s) | after / before |\n| --- | --- | --- | --- |", flush=True)
    for name in [name for name in CASES if all(word in name for word in options.only)]:
        starts = np.array([one_start(options.checkouts, name, options.turns) for _ in range(options.starts)])
        (old, new), ratios = np.median(starts, axis=(0, 1)), np.median(starts[..., 1] / starts[..., 0], axis=1)
        low, ratio, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        print(f"| {name} | {old:.3g} | {new:.3g} | {ratio:.2f} ({low:.2f} to {high:.2f}) |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
