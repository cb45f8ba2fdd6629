"""Work and precision: the error of a solver at the final time against its seconds, over steps or tolerances.

Forward, and forward + gradient for a parameter of the field, where pycaputo cannot follow. Each rival is one setting of
one method, "curve: setting". Torch's fixed steps at order 1 are compared at the same steps, in a group of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks import peers
from benchmarks.case import Case, Group, Options, Rival, Target
from benchmarks.equations import Equation, NeuralField, Oscillation, Relaxation, Singular
from benchmarks.ways import distance
from fracdnn import fdeint
from fracdnn.solver import Graded, Uniform

ERROR = 1e-6
FACTOR = 10.0
# Each scheme here is of first order at least, but its constant may be large (PEC on the oscillation: 26).
LARGEST_CONSTANT = 30.0
# What an adaptive solve may err by, in tolerances; a gradient, which its steps do not look at, by more.
TOLERANCES_MET = {False: 10.0, True: 100.0}
# Methods of pycaputo.fode.caputo with their options; the implicit ones want a Jacobian, which is dense.
PYCAPUTO: dict[str, tuple[str, dict[str, Any]]] = {
    "Euler": ("ForwardEuler", {}),
    "explicit trapezoidal": ("ExplicitTrapezoidal", {}),
    "PEC": ("PEC", {"corrector_iterations": 1}),
    "PECE": ("PECE", {"corrector_iterations": 1}),
    "PECECE": ("PECE", {"corrector_iterations": 2}),
    "modified PECE": ("ModifiedPECE", {"corrector_iterations": 1}),
    "backward Euler": ("BackwardEuler", {"source_jac": None}),
    "Crank-Nicolson": ("WeightedEuler", {"source_jac": None, "theta": 0.5}),
    "trapezoidal": ("Trapezoidal", {"source_jac": None}),
    "L1": ("L1", {"source_jac": None}),
}
GRADED = ("PECE", "modified PECE", "trapezoidal", "L1")


@dataclass(frozen=True)
class Setting:
    """One point of a curve: how to solve an equation there, and the error at which it is not timed."""

    curve: str
    label: str
    solve: Callable[[Equation], torch.Tensor]
    tolerance: float
    package: str = "fracdnn"
    long: bool = False

    @property
    def name(self) -> str:
        return f"{self.curve}: {self.label}"

    def end(self, equation: Equation, backward: bool) -> list[torch.Tensor]:
        """The solution at the end and, with `backward`, the gradient of its sum."""
        with torch.set_grad_enabled(backward):
            end = self.solve(equation)
        return [end, *torch.autograd.grad(end.sum(), equation.parameter)] if backward else [end]

    def error(self, equation: Equation, backward: bool) -> float:
        return distance(self.end(equation, backward), equation.exact[: 2 if backward else 1])

    def rival(self, equation: Equation, backward: bool) -> Rival:
        __import__(self.package)
        run = partial(self.end, equation, backward)
        return Rival(run, partial(self.error, equation, backward), self.tolerance)


def by_tolerance(rtol: float, *, backward: bool) -> Setting:
    """Our default: collocation on an adaptive grid."""
    solve, largest = partial(_ours, rtol=rtol, atol=rtol / 10), TOLERANCES_MET[backward] * rtol
    return Setting("ours, collocation", f"rtol {rtol:.0e}", solve, largest)


def by_steps(curve: str, n: int, **way: Any) -> Setting:
    """Ours on a grid of n steps."""
    return _fixed(f"ours, {curve}", n, partial(_ours, **{"grid": Uniform(n), **way}))


def of_pycaputo(curve: str, n: int, *, graded: bool = False) -> Setting:
    method, options = PYCAPUTO[curve]
    solve = partial(_pycaputo, method=method, options=options, n=n, graded=graded)
    return _fixed(f"pycaputo, {curve}{', graded' if graded else ''}", n, solve, "pycaputo")


def of_pypi(n: int) -> Setting:
    return _fixed("fdeint (PyPI)", n, partial(_pypi, n=n), "FDEint")


def of_torchdiffeq(n: int) -> Setting:
    return _fixed("torchdiffeq, midpoint", n, partial(_torchdiffeq, n=n), "torchdiffeq")


def _fixed(curve: str, n: int, solve: Callable[[Equation], torch.Tensor], package: str = "fracdnn") -> Setting:
    return Setting(curve, f"{n} steps", solve, LARGEST_CONSTANT / n, package, long=n >= 512)


def _ours(equation: Equation, **way: Any) -> torch.Tensor:
    return fdeint(equation.field, equation.start, [0.0, equation.T], order=equation.order, trajectory=False, **way)


def _pypi(equation: Equation, n: int) -> torch.Tensor:
    start = equation.y0 if equation.y0.dim() == 2 else equation.y0.view(1, 1)
    return peers.fdeint_pece(equation.field, start, equation.T, n, equation.order).view_as(equation.y0)


def _torchdiffeq(equation: Equation, n: int) -> torch.Tensor:
    return peers.torchdiffeq_midpoint(equation.field, equation.y0, equation.T, n)


def _pycaputo(equation: Equation, method: str, options: dict[str, Any], n: int, graded: bool) -> torch.Tensor:
    start = [equation.y0] if equation.slope is None else [equation.y0, equation.slope]
    found = peers.pycaputo_solution(
        method,
        equation.plain_field,
        tuple(np.array(each).reshape(-1) for each in start),
        equation.T,
        n,
        equation.order,
        grading=(2.0 - equation.order) / equation.order if graded else 1.0,  # as its `make_graded_controller` has it
        **{**options, **({"source_jac": equation.plain_jacobian} if "source_jac" in options else {})},
    )
    return torch.from_numpy(found).view_as(equation.y0)


def equations(quick: bool) -> dict[str, Callable[[], Equation]]:
    """By the names of their cases."""
    samples, width = _shape(quick)
    return {
        "P1, order 0.5": Singular,
        "P7, order 1.8": Oscillation,
        "P6, order 0.5": Relaxation,
        f"neural field, {samples} x {width}, order 0.5": partial(NeuralField, 0.5, (samples, width)),
    }


def _shape(quick: bool) -> tuple[int, int]:
    return (4, 3) if quick else (256, 32)


def settings(name: str, *, backward: bool, quick: bool) -> list[Setting]:
    """All points of the diagram of an equation."""
    large, above_one = "neural" in name, "1.8" in name
    tolerances = range(3, 8 if large else 11)
    steps = (16, 64, 256) if large else (64, 512, 2048)
    few = (16, 64) if large else (64, 256)
    peer_steps = (16, 64) if large else (64, 512, 2048)
    pypi_steps = (16, 64, 256 if backward else 1024) if large else (64, 512, 2048 if backward else 8192)
    if quick:
        tolerances, steps, few, peer_steps, pypi_steps = range(3, 5), (64, 128), (64,), (64,), (64,)
    found = [by_tolerance(10.0**-digits, backward=backward) for digits in tolerances]
    found += [by_steps("adams", n, method="adams") for n in steps]
    if not above_one:
        found += [by_steps("adams, graded", n, method="adams", grid=Graded(n)) for n in (*few, 4 * few[-1])]
    found += [by_steps("pece", n, method="pece") for n in few]
    found += [by_steps("trapezoidal", n, method="trapezoidal") for n in few]
    if not above_one:
        found += [of_pypi(n) for n in pypi_steps]
    if not backward:
        curves = [curve for curve, (_, options) in PYCAPUTO.items() if not large or "source_jac" not in options]
        found += [of_pycaputo(curve, n) for curve in curves for n in peer_steps]
        if not above_one:
            found += [of_pycaputo(curve, n, graded=True) for curve in GRADED if curve in curves for n in peer_steps]
        if large and not quick:  # its time grows like the square of the steps: the two that come closest
            found += [of_pycaputo("explicit trapezoidal", 256), of_pycaputo("modified PECE", 256, graded=True)]
    return found


def _targets(chosen: list[Setting], passes: str) -> tuple[Target, ...]:
    """Faster than the fastest of each peer's methods, by as much."""
    peers_there = [peer for peer in ("pycaputo", "fdeint (PyPI)") if any(s.curve.startswith(peer) for s in chosen)]
    return tuple(
        Target(f"error 1e-6, {passes}: {peer} / ours, time", peer, "ours", f"seconds at {ERROR:g}", at_least=FACTOR)
        for peer in peers_there
    )


def cases(options: Options) -> list[Case]:
    found = []
    for name, make in equations(options.quick).items():
        for backward in (False, True):
            passes = "forward + gradient" if backward else "forward"
            chosen = settings(name, backward=backward, quick=options.quick)
            found.append(
                Case(
                    name=f"{name}, {passes}",
                    settings={"problem": name, "pass": passes},
                    build=make,
                    rivals={each.name: partial(each.rival, backward=backward) for each in chosen},
                    turns=1 if options.quick or "neural" in name else 3,
                    warm_turns=0,  # the check has warmed each up
                    limits={each.name: 1 for each in chosen if each.long},
                    threads=1,
                    targets=_targets(chosen, passes),
                )
            )
    return found


def order_one_cases(options: Options) -> list[Case]:
    """The same steps, and two evaluations in each, with memory and without."""
    n, (samples, width) = 16 if options.quick else 256, _shape(options.quick)
    chosen = {"ours, adams": by_steps("adams", n, method="adams"), "torchdiffeq, midpoint": of_torchdiffeq(n)}
    problems: dict[str, Callable[[], Equation]] = {
        f"neural field, {samples} x {width}": partial(NeuralField, 1.0, (samples, width)),
        "scalar": Decay,
    }
    return [
        Case(
            name=f"{name}, {passes}",
            settings={"problem": name, "pass": passes, "steps": n},
            build=make,
            rivals={curve: partial(each.rival, backward=passes != "forward") for curve, each in chosen.items()},
            turns=1 if options.quick else 9,
            threads=1,
            targets=(
                Target(
                    "order 1, same steps: ours / torchdiffeq's midpoint, time",
                    "ours, adams",
                    "torchdiffeq, midpoint",
                    at_most=2,
                ),
            ),
        )
        for name, make in problems.items()
        for passes in ("forward", "forward + gradient")
    ]


class Decay(Relaxation):
    """The relaxation without memory."""

    order = 1.0


PRECISION = Group(
    "precision", "error against seconds of a solve, ours and peers with memory, float64, one thread", cases
)
ORDER_ONE = Group(
    "order-one", "order 1: fdeint by 'adams' and torchdiffeq's midpoint in as many steps, one thread", order_one_cases
)
