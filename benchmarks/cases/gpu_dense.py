"""Dense networks on a GPU, value and gradients of a loss, against the residual network as torch writes it.

Without a CUDA device nothing runs; `python -m benchmarks.gpu` runs these cases, too.
"""

import copy
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.case import Case, Group, Options, Rival, Target
from benchmarks.cases.gpu import ORDER, STEP_SIZE, Captured, peak_of
from benchmarks.ways import distance, residual
from fracdnn.nn import FractionalNetwork
from fracdnn.training import Objective, Task

# Layers, width, batch: those of the paper, tables of measurements, and those of `gpu`.
SMALL = [(35, 2, 280), (35, 16, 5000), (35, 64, 4096)]
WIDE = [(100, 256, 4096), (300, 256, 1024), (1000, 256, 1024), (1000, 512, 4096)]
CLASSES, CHECKED_SAMPLES = 4, 64
# Rounding of single precision, and of TF32 products against themselves in a graph.
TOLERANCE, COARSE = 1e-3, 1e-2


class DenseNetwork:
    """The same K, b and W with memory and without, on the GPU, which is first asked for by a rival."""

    def __init__(self, n_layers: int, width: int, batch: int) -> None:
        self.n_layers, self.width, self.batch = n_layers, width, batch
        self._precision_before = torch.get_float32_matmul_precision()

    def close(self) -> None:
        torch.set_float32_matmul_precision(self._precision_before)

    @cached_property
    def network(self) -> FractionalNetwork:
        if not torch.cuda.is_available():
            raise ImportError("needs a CUDA device, and there is none")
        sizes = {"n_layers": self.n_layers, "order": ORDER, "step_size": STEP_SIZE}
        generator = torch.Generator().manual_seed(0)
        return FractionalNetwork(self.width, CLASSES, generator=generator, **sizes).cuda()

    @cached_property
    def plain(self) -> nn.ModuleList:
        """The layers of the residual network, and W."""
        made = nn.ModuleList([*(nn.Linear(self.width, self.width) for _ in range(self.n_layers))])
        for layer, K, b in zip(made, self.network.K, self.network.b, strict=True):
            layer.load_state_dict({"weight": K, "bias": b})
        last = nn.Linear(self.width, CLASSES, bias=False)
        last.load_state_dict({"weight": self.network.W})
        return made.append(last).cuda()

    @cached_property
    def data(self) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(1)
        device, x = self.network.W.device, torch.randn(self.batch, self.width, generator=generator)
        return x.to(device), torch.randint(CLASSES, (self.batch,), generator=generator).to(device)

    def run(self, way: str) -> torch.Tensor:
        return self._evaluated(way, *self.data)

    def clear(self) -> None:
        for parameter in (*self.network.parameters(), *self.plain.parameters()):
            parameter.grad = None

    def gradients(self) -> list[torch.Tensor]:
        parameters = (*self.network.parameters(), *self.plain.parameters())
        return [parameter.grad for parameter in parameters if parameter.grad is not None]

    def found(self, way: str) -> list[torch.Tensor]:
        self.clear()
        return [self.run(way), *self.gradients()]

    def error(self, way: str) -> float:
        """Return the error for some samples against double precision."""
        torch.set_float32_matmul_precision("highest")
        x, target = (each[:CHECKED_SAMPLES] for each in self.data)
        try:
            self.clear()
            mine = [self._evaluated(way, x, target), *self.gradients()]
            exact = DenseNetwork(self.n_layers, self.width, self.batch)  # a graph may hold the memory of these weights
            exact.network, exact.plain = (copy.deepcopy(part).double() for part in (self.network, self.plain))
            exact.clear()
            theirs = [exact._evaluated(way, x.double(), target), *exact.gradients()]
            return distance(mine, [each.float() for each in theirs])
        finally:
            self.clear()
            torch.set_float32_matmul_precision("high")

    def peak(self, way: str) -> dict[str, Any]:
        return peak_of(self, way)

    def _evaluated(self, way: str, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if way == "residual":
            *layers, last = self.plain
            y = residual(lambda j, y: torch.tanh(layers[j](y)), x, len(layers), STEP_SIZE)
            loss = cross_entropy(last(y), target)
            loss.backward()
            return loss.detach()
        return torch.as_tensor(Task(self.network, Objective(), x, target).evaluate())


def eager(way: str, problem: DenseNetwork) -> Rival:
    torch.set_float32_matmul_precision("high")
    problem.run(way)

    def run() -> None:
        problem.run(way)
        torch.cuda.synchronize()

    notes = partial(problem.peak, way)
    return Rival(run, partial(problem.error, way), TOLERANCE, prepare=problem.clear, notes=notes)


def captured(way: str, problem: DenseNetwork) -> Rival:
    torch.set_float32_matmul_precision("high")
    if problem.error(way) > TOLERANCE:
        raise ImportError(f"{way} gives other numbers")
    graph = Captured(problem, way)
    return Rival(graph.run, graph.error, tolerance=COARSE, notes=partial(problem.peak, way))


def case(n_layers: int, width: int, batch: int, *, turns: int = 7) -> Case:
    return Case(
        name=f"{n_layers} layers of width {width}, {batch} rows",
        settings={"layers": n_layers, "state": f"{batch} x {width}"},
        build=partial(DenseNetwork, n_layers, width, batch),
        rivals={
            **{f"{way}, eager": partial(eager, way) for way in ("residual", "ours")},
            **{f"{way}, graph": partial(captured, way) for way in ("residual", "ours")},
        },
        turns=turns,
        targets=(Target("GPU, dense networks: ours / residual", "ours, graph", "residual, graph", at_most=1.5),),
    )


def cases(options: Options) -> list[Case]:
    if options.quick:
        return [case(20, 16, 33, turns=2)]
    return [case(*size) for size in (*SMALL, *WIDE)]


DENSE = Group("gpu-dense", "dense networks on a GPU against the residual network", cases)
