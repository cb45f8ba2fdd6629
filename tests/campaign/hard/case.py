"""What a hard solve is: a case of plain values, and the problem that its kind makes of it.

Kinds state their problems in units: x = (t − start)/span lies in [0, 1], and z = u/scale is of the order of 1, so that
one line serves every span and every scale. `Problem.func(m, x, u, a)` is span^order times the right-hand side, in
torch (m is torch) and in NumPy, and `a` is a parameter, 1, by which derivatives are taken.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

KINDS: dict[str, Callable[["Case"], "Problem"]] = {}


@dataclass(frozen=True)
class Case:
    """Plain values, so that a case can be printed and pasted; `given` is what its kind needs."""

    kind: str = "decay"
    order: Any = 0.8  # a number, or a tuple with one for each component
    span: float = 1.0
    start: float = 0.0
    method: str = "auto"
    grid: str = "adaptive"  # adaptive, uniform, graded, given
    n_steps: int = 0
    dtype: str = "float64"
    times: str = "float64"
    mode: str = "plain"  # plain, no_grad, inference, gradient
    rtol: float = 1e-5
    outputs: str = "all"  # or end: the last alone
    given: dict = field(default_factory=dict)

    def orders(self, count):
        """One for each component."""
        return np.broadcast_to(np.asarray(self.order, dtype=float), (count,))


@dataclass
class Problem:
    """An equation, its solution at `shares` of the span after 0, and how the solver may answer.

    `answer`: "solve", a refusal is a failure; "may refuse"; "must refuse", numbers are a failure; "must warn", silence
    is one. `noise` is what the solution may be off by since func is rounded, and `bound` the error that is allowed on
    a fixed grid. `peak`, where given, replaces |u| in the tolerance: of a solution that swings through 0 the amplitude
    counts.
    """

    func: Callable
    y0: np.ndarray
    shares: np.ndarray
    exact: np.ndarray | None
    derivative: np.ndarray | None = None  # of the solution by a
    start_scales: bool = False  # y0 is a times y0
    scale: Any = 1.0  # [d], of each component
    peak: np.ndarray | None = None
    answer: str = "solve"
    noise: Any = 0.0
    bound: Any = None
    breakpoints: tuple = ()
    budget: int = 200_000  # 100,000 for the search, and what a walk over its steps takes


class UnsureReferenceError(Exception):
    """The reference is not known to a thousandth of what is allowed: the case says nothing."""


def kind(name):
    """Register the function that makes a problem of such a case."""

    def named(build):
        KINDS[name] = build
        return build

    return named


def array(*values):
    return np.array(values, dtype=float)


def like(m, value, u):
    """Numbers of a kind, in NumPy or in torch of the state's dtype."""
    return value if m is np else m.as_tensor(value, dtype=u.dtype)


def sure(exact, error, case, scale, peak=None):
    """The reference, if its error is below a thousandth of twenty tolerances for each component."""
    allowed = 0.02 * case.rtol * (np.abs(exact) if peak is None else peak) + 2e-5 * case.rtol * scale
    if not np.all(error <= allowed):
        worst = float(np.max(error / allowed))
        raise UnsureReferenceError(f"{case.kind}: the reference is off by {worst:.2g} of what it may be")
    return exact
