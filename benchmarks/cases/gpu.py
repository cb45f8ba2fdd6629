"""The cost of memory on a GPU: a stack of Linear and Tanh by torch's operations and by Triton's kernels, forward +
backward, against the same layers without memory; as it comes and captured in a CUDA graph, which leaves out Python.

Without a CUDA device nothing runs. `python -m benchmarks.gpu` runs these cases where the other groups' packages are
missing.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn

from benchmarks.case import Case, Group, Options, Rival, Target
from benchmarks.ways import definition, distance, residual
from fracdnn.memory import equal_steps_weights, triton_sum
from fracdnn.nn import FractionalStack

ORDER, STEP_SIZE, TOLERANCE = 0.5, 0.2, 1e-6
CHECKED_LAYERS, CHECKED_SAMPLES = 60, 16
# Layers, width, batch.
SIZES = [
    (35, 2, 280),
    (35, 16, 5000),
    (100, 256, 4096),
    (300, 256, 1024),
    (1000, 256, 1024),
    (1000, 512, 4096),
    (2000, 64, 4096),
]
# What layers compute in, and how far rounding may take sixty of them from the definition. Times are taken with TF32
# products, errors without.
PRECISIONS = {"float32": 1e-4, "autocast": 5e-2, "bfloat16": 2e-1}
WAYS = ("residual", "torch", "triton")
# What a stack takes by itself where there is no Triton: all weights up to this depth, and these blocks beyond it.
EXACT_LAYERS, BLOCK = 192, 32


class StackOf(FractionalStack):
    """A stack that runs on a sum of the benchmark's choice."""

    def __init__(self, layers: list[nn.Sequential], sums: str) -> None:
        super().__init__(layers, order=ORDER, step_size=STEP_SIZE)
        order, step_size = (torch.tensor(value, dtype=torch.float64) for value in (ORDER, STEP_SIZE))
        exact = sums == "torch" and len(layers) <= EXACT_LAYERS
        told = {
            "compress": not exact,
            "block": triton_sum.BLOCK if sums == "triton" else BLOCK,
            "sums": sums,
        }
        plan = equal_steps_weights(order, step_size, len(layers), compress_tol=TOLERANCE, **told)
        self.memory.plan = lambda *state, **options: plan  # type: ignore[method-assign]


class Network:
    """The same layers with and without memory, on the GPU, which is first asked for by a rival."""

    def __init__(self, n_layers: int, width: int, batch: int, precision: str) -> None:
        self.n_layers, self.width, self.batch, self.precision = n_layers, width, batch, precision
        self._precision_before = torch.get_float32_matmul_precision()
        self._kept: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}

    def close(self) -> None:
        torch.set_float32_matmul_precision(self._precision_before)

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32

    @cached_property
    def layers(self) -> list[nn.Sequential]:
        if not torch.cuda.is_available():
            raise ImportError("needs a CUDA device, and there is none")
        torch.manual_seed(0)
        made = [nn.Sequential(nn.Linear(self.width, self.width), nn.Tanh()) for _ in range(self.n_layers)]
        return [layer.to("cuda", self.dtype) for layer in made]

    @cached_property
    def x(self) -> torch.Tensor:
        return torch.randn(self.batch, self.width, device="cuda").to(self.dtype)

    def network(self, way: str, layers: list[nn.Sequential]) -> Callable[[torch.Tensor], torch.Tensor]:
        if way == "residual":
            return lambda x: residual(lambda j, y: layers[j](y), x, len(layers), STEP_SIZE)
        if way == "triton" and not triton_sum.can_take(self.x):
            raise ImportError("needs a Triton that works here")
        return StackOf(layers, way)

    def run(self, way: str) -> torch.Tensor:
        """Forward and backward; the result."""
        if way not in self._kept:
            self._kept[way] = self.network(way, self.layers)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.precision == "autocast", cache_enabled=False):
            result = self._kept[way](self.x)
        result.float().pow(2).mean().backward()
        return result.detach()

    def clear(self) -> None:
        for layer in self.layers:
            layer.zero_grad()

    def gradients(self) -> list[torch.Tensor]:
        return [p.grad for layer in self.layers for p in layer.parameters() if p.grad is not None]

    def found(self, way: str) -> list[torch.Tensor]:
        self.clear()
        return [self.run(way), *self.gradients()]

    def error(self, way: str) -> float:
        """Of the first layers, some samples, against the definition in single precision."""
        layers, x = self.layers[:CHECKED_LAYERS], self.x[:CHECKED_SAMPLES]
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.autocast("cuda", torch.bfloat16, enabled=self.precision == "autocast", cache_enabled=False):
                result = self.network(way, layers)(x)
            return distance(_with_gradient(result, layers), self.expected[way == "residual"])
        finally:
            torch.set_float32_matmul_precision("high")

    @cached_property
    def expected(self) -> dict[bool, list[torch.Tensor]]:
        """By the definition, with memory and (True) without: order 1."""
        layers = [nn.Sequential(nn.Linear(self.width, self.width), nn.Tanh()) for _ in range(CHECKED_LAYERS)]
        layers = [layer.to("cuda") for layer in layers[: self.n_layers]]
        for mine, theirs in zip(layers, self.layers, strict=False):
            mine.load_state_dict(theirs.state_dict())
        x, found = self.x[:CHECKED_SAMPLES].float(), {}
        for plain, order in ((False, ORDER), (True, 1.0)):
            result = definition(lambda j, y: layers[j](y), x, len(layers), order, STEP_SIZE)
            found[plain] = _with_gradient(result, layers)
        return found

    def peak(self, way: str) -> dict[str, Any]:
        return peak_of(self, way)


def peak_of(problem: Any, way: str) -> dict[str, Any]:
    """What a pass takes at most beside what is there, parameters and input."""
    problem.clear()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    problem.run(way)
    torch.cuda.synchronize()
    return {"peak MiB": (torch.cuda.max_memory_allocated() - before) / 2**20}


class Captured:
    """A pass as a CUDA graph: warmed up on a stream of its own, captured, and played back."""

    def __init__(self, problem: Any, way: str) -> None:
        self._problem, self._way = problem, way
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                problem.clear()
                problem.run(way)
        torch.cuda.current_stream().wait_stream(side)
        problem.clear()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            result = problem.run(way)
        self._found = [result, *problem.gradients()]

    def run(self) -> None:
        self._graph.replay()
        torch.cuda.synchronize()

    def error(self) -> float:
        for each in self._found:
            each.fill_(float("nan"))
        self.run()
        return distance(self._found, self._problem.found(self._way))


def _with_gradient(result: torch.Tensor, layers: list[nn.Sequential]) -> list[torch.Tensor]:
    parameters = [p for layer in layers for p in layer.parameters()]
    gradients = torch.autograd.grad(result.float().pow(2).mean(), parameters)
    return [each.detach().float() for each in (result, *gradients)]


def eager(way: str, problem: Network) -> Rival:
    torch.set_float32_matmul_precision("high")
    problem.network(way, problem.layers[:1])

    def run() -> None:
        problem.run(way)
        torch.cuda.synchronize()

    error, notes = partial(problem.error, way), partial(problem.peak, way)
    return Rival(run, error, PRECISIONS[problem.precision], prepare=problem.clear, notes=notes)


def captured(way: str, problem: Network) -> Rival:
    torch.set_float32_matmul_precision("high")
    problem.network(way, problem.layers[:1])
    graph = Captured(problem, way)
    # The same kernels, but a library may take others for its products: that is TF32's rounding.
    return Rival(graph.run, graph.error, tolerance=max(1e-2, PRECISIONS[problem.precision]))


ASKED = "GPU, 100 layers and more, CUDA graphs: Triton's kernels / residual, time"


def case(n_layers: int, width: int, batch: int, precision: str = "float32", *, turns: int = 7) -> Case:
    name = f"{n_layers} layers of width {width}, {batch} rows"
    return Case(
        name=name if precision == "float32" else f"{name}, {precision}",
        settings={"layers": n_layers, "state": f"{batch} x {width}", "precision": precision},
        build=partial(Network, n_layers, width, batch, precision),
        rivals={
            **{f"{way}, eager": partial(eager, way) for way in WAYS},
            **{f"{way}, graph": partial(captured, way) for way in WAYS},
        },
        turns=turns,
        targets=(Target(ASKED, "triton, graph", "residual, graph", at_most=1.2),) if n_layers > 35 else (),
    )


def cases(options: Options) -> list[Case]:
    if options.quick:
        return [case(20, 16, 33, turns=2)]
    sizes = [case(*size) for size in SIZES]
    return [*sizes, case(1000, 512, 4096, "autocast"), case(1000, 512, 4096, "bfloat16")]


GROUP = Group("gpu", "the cost of memory on a GPU: Triton's kernels, torch's operations, no memory at all", cases)
