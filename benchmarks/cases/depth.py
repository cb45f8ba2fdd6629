"""The cost of memory in deep and wide networks: a stack of Linear and Tanh against the same layers without memory."""

from functools import cached_property, partial

import torch
from torch import nn

from benchmarks.case import Case, Group, Options, Rival, Target
from benchmarks.ways import definition, distance, double_loop, residual
from fracdnn.memory.choose_sum import choose_compression
from fracdnn.nn import FractionalStack

ORDER, STEP_SIZE = 0.5, 0.2
# The definition's graph grows with the square of the depth: deeper stacks answer to it on their first layers.
CHECKED_LAYERS, CHECKED_SAMPLES = 150, 16
STACKS = {
    "exact": {"compress": False},
    "compressed": {"compress": True},
    "checkpoint": {"compress": True, "checkpoint": True},
}


class Depth:
    """The same layers with and without memory, float32, forward + backward."""

    def __init__(self, n_layers: int, width: int, batch: int) -> None:
        torch.manual_seed(0)
        self.layers = [nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(n_layers)]
        self.x = torch.randn(batch, width)

    def result(self, way: str, layers: list[nn.Sequential], x: torch.Tensor) -> torch.Tensor:
        if way in STACKS:
            return FractionalStack(layers, order=ORDER, step_size=STEP_SIZE, **STACKS[way])(x)
        if way == "naive":
            return double_loop(lambda j, y: layers[j](y), x, len(layers), ORDER, STEP_SIZE)
        return residual(lambda j, y: layers[j](y), x, len(layers), STEP_SIZE)

    @cached_property
    def stacks(self) -> dict[str, FractionalStack]:
        """Built once: a module is not made anew for each pass."""
        options = {"order": ORDER, "step_size": STEP_SIZE}
        return {way: FractionalStack(self.layers, **options, **told) for way, told in STACKS.items()}

    def run(self, way: str) -> None:
        result = self.stacks[way](self.x) if way in self.stacks else self.result(way, self.layers, self.x)
        result.pow(2).mean().backward()

    def clear(self) -> None:
        for layer in self.layers:
            layer.zero_grad()

    def error(self, way: str) -> float:
        layers, x = self.layers[:CHECKED_LAYERS], self.x[:CHECKED_SAMPLES]
        found = self._with_gradient(self.result(way, layers, x), layers)
        return distance(found, self.expected[way == "residual"])

    @cached_property
    def expected(self) -> dict[bool, list[torch.Tensor]]:
        """By the definition, with memory and (True) without: order 1."""
        layers, x = self.layers[:CHECKED_LAYERS], self.x[:CHECKED_SAMPLES]
        orders = {False: ORDER, True: 1.0}
        return {
            plain: self._with_gradient(definition(lambda j, y: layers[j](y), x, len(layers), order, STEP_SIZE), layers)
            for plain, order in orders.items()
        }

    @staticmethod
    def _with_gradient(result: torch.Tensor, layers: list[nn.Sequential]) -> list[torch.Tensor]:
        parameters = [p for layer in layers for p in layer.parameters()]
        return [result.detach(), *torch.autograd.grad(result.pow(2).mean(), parameters)]


def rival(way: str, problem: Depth) -> Rival:
    return Rival(partial(problem.run, way), partial(problem.error, way), tolerance=1e-4, prepare=problem.clear)


def default_history(n_layers: int, width: int, batch: int) -> str:
    """Which way `compress="auto"` takes."""
    is_compressed = choose_compression("auto", n_layers, torch.empty(batch, width), equal_steps=True)
    return "compressed" if is_compressed else "exact"


def case(n_layers: int, width: int, batch: int, *, ways: list[str], turns: int, targets: bool, memory: bool) -> Case:
    default = default_history(n_layers, width, batch)
    asked = (
        Target(f"deep stack, width {width}: default / residual, time", default, "residual", at_most=1.3),
        Target(
            f"deep stack, width {width}: compressed / residual, memory", "compressed", "residual", "memory", at_most=1.2
        ),
        Target("deep stack: the same, live memory", "compressed", "residual", "live_memory", at_most=1.2),
    )
    return Case(
        name=f"{n_layers} layers of width {width}",
        settings={"layers": n_layers, "state": f"{batch} x {width}", "default": default},
        build=partial(Depth, n_layers, width, batch),
        rivals={way: partial(rival, way) for way in ways},
        turns=turns,
        limits={"naive": 3},
        memory=tuple(ways) if memory else (),
        targets=asked if targets else (),
    )


def cases(options: Options) -> list[Case]:
    if options.quick:
        make = partial(case, width=32, batch=16, turns=2, targets=True)
        return [
            make(20, ways=["residual", "exact", "compressed", "naive"], memory=False),
            make(60, ways=["residual", "compressed"], memory=True),
        ]
    all_ways = ["residual", "exact", "compressed"]
    make = partial(case, width=256, batch=256, memory=True)
    return [
        make(30, ways=[*all_ways, "naive"], turns=9, targets=False),
        make(100, ways=[*all_ways, "naive"], turns=9, targets=True),
        make(300, ways=all_ways, turns=7, targets=True),
        make(1000, ways=all_ways, turns=5, targets=True),
        make(4000, ways=["residual", "compressed"], turns=5, targets=True),
    ]


def wider_cases(options: Options) -> list[Case]:
    make = partial(case, 20 if options.quick else 100, batch=16 if options.quick else 256, memory=not options.quick)
    widths = (48,) if options.quick else (512, 1024)
    return [make(width=width, ways=["residual", "compressed"], turns=7, targets=True) for width in widths]


def checkpoint_cases(options: Options) -> list[Case]:
    n_layers, width, batch = (40, 16, 8) if options.quick else (1000, 64, 256)
    what, sides = f"stack, checkpoint=True, {n_layers:,} layers: with / without", ("checkpoint", "compressed")
    return [
        Case(
            name=f"{n_layers} layers of width {width}",
            settings={"layers": n_layers, "state": f"{batch} x {width}"},
            build=partial(Depth, n_layers, width, batch),
            rivals={way: partial(rival, way) for way in ("residual", "compressed", "checkpoint")},
            turns=2 if options.quick else 5,
            memory=() if options.quick else ("residual", "compressed", "checkpoint"),
            threads=1,
            targets=(
                Target(f"{what}, live memory", *sides, "live_memory", at_most=0.3),
                Target(f"{what}, time", *sides, at_most=1.8),
            ),
        )
    ]


DEPTH = Group(
    "depth", "a stack of N x (Linear, Tanh) against the same layers as a residual network, forward + backward", cases
)
WIDTH = Group("width", "the same at 100 layers, wider", wider_cases)
CHECKPOINT = Group(
    "stack-checkpoint", "a deep stack with and without checkpoints, forward + backward, one thread", checkpoint_cases
)
