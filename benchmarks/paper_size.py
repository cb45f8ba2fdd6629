"""Value and gradient of the full objective, networks of the paper's size: the compiled pass against torch operations.

    python -m benchmarks.paper_size
    python -m benchmarks.paper_size --quick

The rivals share one network of 35 layers and its parameters: ours; "eager", one weighted sum over the history a layer
in torch operations, the faster of the library's own ("blocked", history="exact") and a "plain" one under autograd; and
"naive", the double loop of differences of Alg. 1 under autograd. Loss and regularisation are the library's for all.
Each line is one interleaved run, its numbers are medians; in each turn a rival goes twice and the second time counts,
as in training, where the step before was one's own. Values and gradients are checked against the definition before
anything is timed. The kernel is compiled before.
"""

import argparse
import copy
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fracdnn.caputo import l1_step_factor, l1_weights, memory_matrix
from fracdnn.memory import reference
from fracdnn.nn import FractionalNetwork
from fracdnn.training.objective import Objective, Regularization

ORDER, STEP_SIZE, N_LAYERS, N_CLASSES = 0.5, 0.2, 35, 4
OBJECTIVE = Objective(regularization=Regularization(class_map=1e-3, operator=1e-3, bias=1e-3))


@dataclass(frozen=True)
class Case:
    width: int
    n: int
    turns: int = 15


CASES = [Case(width, n) for width in (2, 8, 16) for n in (280, 560, 5000)]
QUICK = [Case(2, 280, turns=3), Case(16, 560, turns=3)]


class Rivals:
    """One network four ways."""

    names = ("ours", "blocked", "plain", "naive")

    def __init__(self, case: Case) -> None:
        generator = torch.Generator().manual_seed(0)
        self.network = FractionalNetwork(
            case.width, N_CLASSES, n_layers=N_LAYERS, order=ORDER, step_size=STEP_SIZE, generator=generator
        ).double()
        self.x = torch.randn(case.n, case.width, dtype=torch.float64, generator=generator)
        self.target = torch.arange(case.n) % N_CLASSES
        self.matrix = memory_matrix(ORDER, N_LAYERS)
        self.factor = float(l1_step_factor(ORDER, STEP_SIZE))
        self.a = l1_weights(ORDER, N_LAYERS).tolist()
        self._blocked = copy.copy(self.network)  # the same parameters, another way
        self._blocked._modules = {**self.network._modules, "stack": copy.copy(self.network.stack)}
        assert self._blocked.stack is not None
        self._blocked.stack.history = "exact"

    def ours(self) -> torch.Tensor:
        return OBJECTIVE(self.network, self.x, self.target)

    def blocked(self) -> torch.Tensor:
        return OBJECTIVE(self._blocked, self.x, self.target)

    def plain(self) -> torch.Tensor:
        states, flat = [self.x], [self.x.reshape(1, -1)]
        for j, layer in enumerate(self.network.layers):
            memory = (self.matrix[j : j + 1, : j + 1] @ torch.cat(flat)).view_as(self.x)
            states.append(torch.add(memory, layer(states[-1]), alpha=self.factor))
            flat.append(states[-1].reshape(1, -1))
        return self._objective(states[-1])

    def naive(self) -> torch.Tensor:
        states = [self.x]
        for j, layer in enumerate(self.network.layers, 1):
            z = torch.zeros_like(self.x)
            for k in range(1, j):
                z = z + self.a[j - k] * (states[k] - states[k - 1])
            states.append(states[-1] - z + self.factor * layer(states[-1]))
        return self._objective(states[-1])

    def definition(self) -> torch.Tensor:
        factors = torch.full((N_LAYERS,), self.factor, dtype=torch.float64)
        layers = self.network.layers
        return self._objective(reference.propagate(self.matrix, factors, lambda j, y: layers[j](y), self.x)[-1])

    def _objective(self, y: torch.Tensor) -> torch.Tensor:
        loss = OBJECTIVE.data_loss(self.network.W(y), self.target, None)
        return loss + OBJECTIVE.regularization(self._blocked)

    def step(self, name: str, parameters: list[torch.nn.Parameter]) -> float:
        """Value and gradient; seconds."""
        for parameter in (*parameters, *self.network.parameters()):
            parameter.grad = None
        start = time.perf_counter()
        getattr(self, name)().backward()
        return time.perf_counter() - start


def check(rivals: Rivals) -> None:
    parameters = list(rivals.network.parameters())

    def found(value: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
        result = value()
        return [result.detach(), *torch.autograd.grad(result, parameters)]

    expected = found(rivals.definition)
    for name in rivals.names:
        for mine, other in zip(found(getattr(rivals, name)), expected, strict=True):
            error = float((mine - other).norm() / other.norm().clamp(min=1e-3))
            if not error <= 1e-10:
                raise SystemExit(f"{name}: relative error {error:.1e}; nothing is timed")


def measure(case: Case) -> str:
    rivals = Rivals(case)
    check(rivals)
    times: dict[str, list[float]] = {name: [] for name in rivals.names}
    # As in training: ours goes by joined parameters; the others' are the layers' own.
    with rivals.network.joined(rivals.x) as parameters:
        for turn in range(case.turns + 1):
            for name in rivals.names:
                rivals.step(name, parameters)
                seconds = rivals.step(name, parameters)
                if turn:  # the first turn warms up
                    times[name].append(seconds)
    median = {name: statistics.median(found) for name, found in times.items()}
    eager = min(median["blocked"], median["plain"])
    cells = [
        case.width,
        case.n,
        *(f"{1e3 * median[name]:.2f}" for name in rivals.names),
        f"{eager / median['ours']:.1f}",
        f"{median['naive'] / median['ours']:.1f}",
    ]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small cases, to see that it runs")
    arguments = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{N_LAYERS} layers, order {ORDER}, float64; milliseconds for value and gradient of the objective\n")
    print("| width | samples | ours | blocked | plain | naive | eager / ours | naive / ours |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in QUICK if arguments.quick else CASES:
        print(measure(case), flush=True)


if __name__ == "__main__":
    main()
