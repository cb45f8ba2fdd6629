"""Very many steps of d_t^0.5 u = −4u, u(0) = 0.5, float64, to T = 1: time of a step, and the memory of a gradient."""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from benchmarks.case import Case, Group, Options, Rival, Target
from benchmarks.equations import Relaxation
from benchmarks.ways import distance
from fracdnn import fdeint
from fracdnn.solver import Given

SAME = 1e-12  # a distance of gradients


class LongSolve:
    """Solved by explicit L1 with compressed history, the paper's scheme."""

    def __init__(self, n_steps: int) -> None:
        self.n_steps, self.equation = n_steps, Relaxation()

    def run(self, backward: bool) -> list[torch.Tensor]:
        way = {"method": "l1", "grid": Given(), "options": {"compress": True}}
        return solved(self.equation, torch.linspace(0, 1, self.n_steps + 1, dtype=torch.float64), backward, **way)

    def error(self, backward: bool) -> float:
        """Against u_0 erfcx(4) and its derivative by the rate."""
        return distance(self.run(backward), self.equation.exact[: 1 + backward])

    def rival(self, backward: bool) -> Rival:
        return Rival(partial(self.run, backward), partial(self.error, backward), tolerance=2 / self.n_steps)


@dataclass(frozen=True)
class Way:
    """How a long solve goes: by "adams" on so many equal steps, with the gradient, with checkpoints."""

    n_steps: int
    backward: bool = False
    checkpoint: bool = False


class Watched:
    """Solves that are checked and timed at once: each takes long."""

    def __init__(self) -> None:
        self.equation = Relaxation()
        self._found: dict[Way, list[torch.Tensor]] = {}
        self._told: dict[Way, float] = {}

    def solve(self, way: Way) -> list[torch.Tensor]:
        """Solution and gradient, kept, and so is the time."""
        begun = time.perf_counter()
        told = {"method": "adams", "n_steps": way.n_steps, "options": {"checkpoint": way.checkpoint}}
        self._found[way] = solved(self.equation, [0.0, 1.0], way.backward, **told)
        self._told[way] = (time.perf_counter() - begun) / way.n_steps
        return self._found[way]

    def seconds(self, way: Way) -> float:
        """Of a step; the first time, of the solve that was checked."""
        if way not in self._told:
            self.solve(way)
        return self._told.pop(way)

    def error(self, way: Way) -> float:
        """Against the exact solution and gradient; with checkpoints, against those without."""
        found, same = self.solve(way), replace(way, checkpoint=False)
        return distance(found, self._found[same] if way.checkpoint else self.equation.exact[: 1 + way.backward])

    def rival(self, way: Way) -> Rival:
        return Rival(
            partial(self.seconds, way),
            partial(self.error, way),
            # Of order 1 + 0.5, for the solution is not smooth at 0; the constant is below 1.
            tolerance=SAME if way.checkpoint else way.n_steps**-1.5,
            rehearse=partial(self.solve, replace(way, n_steps=min(way.n_steps, 1000))),
            tells_seconds=True,
        )


def solved(equation: Relaxation, t: Any, backward: bool, **way: Any) -> list[torch.Tensor]:
    """The solution at the end and, with `backward`, its gradient."""
    with torch.set_grad_enabled(backward):
        end = fdeint(equation.field, equation.y0, t, order=equation.order, trajectory=False, **way)
    return [end.detach(), *torch.autograd.grad(end, equation.parameter)] if backward else [end]


def cases(options: Options) -> list[Case]:
    n = 500 if options.quick else 100_000
    return [
        Case(
            name=f"{n} steps",
            settings={"steps": n},
            build=partial(LongSolve, n),
            rivals={
                "forward": partial(LongSolve.rival, backward=False),
                "forward + backward": partial(LongSolve.rival, backward=True),
            },
            turns=2 if options.quick else 3,
            warm_turns=0,
            threads=1,
        )
    ]


def step_cases(options: Options) -> list[Case]:
    few, many = (300, 1000) if options.quick else (10_000, 1_000_000)
    return [
        _watched(
            "forward",
            {f"{n:,} steps": Way(n) for n in (few, many)},
            Target("time of a step, 'adams': 10⁶ steps / 10⁴ steps", f"{many:,} steps", f"{few:,} steps", at_most=1.3),
        )
    ]


def checkpoint_cases(options: Options) -> list[Case]:
    if options.quick:  # a quick one says nothing: its segments are as long as the whole
        return []
    n = 100_000
    what, sides = f"checkpoint=True, {n:,} steps: with / without", ("checkpoint", "plain")
    return [
        _watched(
            f"{n} steps",
            {"plain": Way(n, backward=True), "checkpoint": Way(n, backward=True, checkpoint=True)},
            Target(f"{what}, memory", *sides, "memory", at_most=0.05),
            Target(f"{what}, time", *sides, at_most=1.8),
            memory=sides[::-1],
        )
    ]


def _watched(name: str, ways: dict[str, Way], *targets: Target, memory: tuple[str, ...] = ()) -> Case:
    return Case(
        name=name,
        settings={"pass": name},
        build=Watched,
        rivals={rival: partial(Watched.rival, way=way) for rival, way in ways.items()},
        turns=1,
        warm_turns=0,
        memory=memory,
        live_memory=False,
        threads=1,
        targets=targets,
    )


LONG_SOLVE = Group("long-solve", "d_t^0.5 u = -4u in 10^5 compressed steps of L1, float64, one thread", cases)
STEPS = Group("long-steps", "the time of a step of 'adams', scalar, forward, in 10^4 and 10^6 steps", step_cases)
CHECKPOINT = Group(
    "checkpoint", "value and gradient of 10^5 steps of 'adams', scalar, with and without checkpoints", checkpoint_cases
)
