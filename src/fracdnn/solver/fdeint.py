"""Solve d_t^order u = func(t, u) with memory, differentiably."""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError, NotConvergedError
from fracdnn.solver.adaptive import EARLIEST, Piece, find_grid
from fracdnn.solver.batched import solve_batched, solve_mapped
from fracdnn.solver.collocation import Collocation, modes_for, walk
from fracdnn.solver.dense import DensePanels
from fracdnn.solver.explicit import MOST_ROWS, ExplicitChain, runs_as_chain
from fracdnn.solver.grids import Choice, Grid, Spacing, Tolerance, anchors, increasing_times, make_grid
from fracdnn.solver.march import March
from fracdnn.solver.methods import METHODS, Method
from fracdnn.solver.panel_search import PanelSearch, count_for
from fracdnn.solver.panels import Weights
from fracdnn.solver.problem import TIME_ROUNDING, OutOfEvaluationsError, Problem, largest_order, posed_problem
from fracdnn.solver.rare_options import (
    COMPRESS_TOLS,
    check_batched,
    check_digits,
    check_failures,
    check_func,
    check_method,
    most_evaluations,
    rare_options,
    refuse_other_names,
)
from fracdnn.solver.solution import Solution, solved_as_far, without_autocast
from fracdnn.solver.states import State
from fracdnn.tracing import Mapping, being_traced, being_transformed
from fracdnn.validation import check_flag

_LATE = 1e4  # spans from 0, from which on rounding of times may matter
# Of the times, below which their powers are no numbers any more; the longest is as much above 1.
SHORTEST_SPAN = 1e-100
# Evaluations after which an adaptive solve asks whether func is random: more than most solves take.
_PROBE_AT = 500
# Of states on a fixed grid, from which it is worth a warning.
_FIXED_NOISE = {torch.float64: 1e-6, torch.float32: 1e-3}

Func: TypeAlias = Callable[[torch.Tensor, Any], Any]
MethodName: TypeAlias = Literal["auto", "collocation", "adams", "euler", "l1", "l1-implicit", "pece", "trapezoidal"]
# A state that is one tensor, or becomes one.
TensorLike: TypeAlias = torch.Tensor | float | list[Any] | np.ndarray


class Arguments(TypedDict, total=False):
    """The arguments of `fdeint` that do not decide what it returns."""

    rtol: Tolerance | None
    atol: Tolerance | None
    method: MethodName
    options: dict[str, Any] | None
    grid: Choice | None
    n_steps: int | None
    trajectory: bool
    batched: bool


@overload
def fdeint(func: Func, y0: Any, t: Any, *, order: Any, info: Literal[True], **rest: Unpack[Arguments]) -> Solution: ...
@overload
def fdeint(
    func: Func, y0: TensorLike, t: Any, *, order: Any, info: Literal[False] = False, **rest: Unpack[Arguments]
) -> torch.Tensor: ...
@overload
def fdeint(
    func: Func, y0: tuple[Any, ...], t: Any, *, order: Any, info: Literal[False] = False, **rest: Unpack[Arguments]
) -> State: ...
@overload
def fdeint(
    func: Func, y0: Any, t: Any, *, order: Any, info: bool = False, **rest: Unpack[Arguments]
) -> State | Solution: ...
@refuse_other_names
def fdeint(
    func: Func,
    y0: Any,
    t: Any,
    *,
    order: Any,
    rtol: Tolerance | None = None,
    atol: Tolerance | None = None,
    method: MethodName = "auto",
    options: dict[str, Any] | None = None,
    grid: Choice | None = None,
    n_steps: int | None = None,
    trajectory: bool = True,
    info: bool = False,
    batched: bool = False,
) -> State | Solution:
    """Solve d_t^order u = func(t, u), u(t[0]) = y0, and return u at every time in `t`: [len(t), *y0.shape].

    `func(t, y)` gets a time and a state, and returns a slope of the same shape, or numbers and lists that can become
    one. The time has the dtype of `t` where that is a floating-point tensor, else the state's (float32 for 16 bits).
    `y0` is a tensor or a tuple of tensors; numbers, lists and NumPy arrays become float64 tensors. For orders above 1
    y0 may be a pair (value, slope). `t` are increasing times, from the initial one on. `order` lies in (0, 2]: one
    number; a tensor or list that broadcasts against the state; or one for each tensor of a tuple. `grid` says where the
    solver's nodes lie; from `fracdnn.solver`, see docs/solver.md:

    - `Adaptive(rtol=1e-5, atol=1e-8, max_step=inf)`, the default: the error stays about `atol` + `rtol` · |u|.
      `fdeint(…, rtol=…, atol=…)` is short for it.
    - `Uniform(n)`: n equal steps; `n_steps=n` is short for it.
    - `Graded(n)`: finer toward the start, for solutions like t^order.
    - `Given()`: `t` itself.

    `method="auto"` is "collocation" (implicit) on an adaptive grid, else "adams" (explicit).
    `trajectory=False` returns the last state alone, `info=True` a `Solution`: states, grid, counts.
    `batched=True` solves samples along y0's first dimension, each on a grid of its own: func gets times [B] and states
    [B, …] and must treat samples apart; order, rtol, atol may be [B], and t [B, T]. `torch.func.vmap` does the same.
    `options` holds what is rarely needed, by name:

    - "breakpoints": times at which func jumps: steps end there, and func is evaluated as the left limit. "slope": that
      of y0 for orders above 1, like y0 or one number. "corrections": how often "adams" and "pece" correct their
      prediction, 1.
    - "compress": False sums over all pairs of nodes; "auto" and True sum far nodes through modes, to the relative
      "compress_tol" (1e-12 in float64, else 1e-7), in O(N) time. "checkpoint": True computes parts of the forward pass
      again in the backward pass: memory like √N instead of N.
    - "max_evaluations": calls of func after which a search for steps ends, 100,000 and 1,000 for each breakpoint.
      "failures": "nan" gives NaN for what cannot be solved, samples of a batch or late times, in place of an error.

    The gradient is exact for the discrete solution, in y0, slope, order, t, breakpoints and what func closes over.
    """
    rare = rare_options(options) | {"keep_panels": check_flag(info, "info")}
    spacing = Spacing.from_arguments(grid, n_steps, rtol, atol, rare["breakpoints"])
    mapping = Mapping.now() if spacing.kind == "adaptive" and method in ("auto", "collocation") else None
    if mapping and not batched and not isinstance(order, tuple | list):
        solution = solve_mapped(fdeint, mapping, func, y0, t, order, trajectory, options=options, grid=spacing.choice)
    elif check_flag(batched, "batched"):
        check_batched(method, spacing, options)
        solution = solve_batched(fdeint, func, y0, t, order, spacing, rare, check_flag(trajectory, "trajectory"))
    else:
        build = partial(_Request.build, func, y0, order=order, spacing=spacing, rare=rare, trajectory=trajectory)
        solution = _solve_one(build, method, rare, t, spacing, trajectory)
    return solution if info else solution.states


def _solve_one(
    build: Callable[[Any], "_Request"], method: str, rare: dict[str, Any], t: Any, spacing: Spacing, trajectory: bool
) -> Solution:
    if rare["failures"] == "nan":
        check_failures(spacing)
        return solved_as_far(build, partial(_solved, method, rare), t, trajectory=trajectory)
    return _solved(method, rare, build(t))


@dataclass(frozen=True, eq=False)
class _Request:
    spacing: Spacing
    times: torch.Tensor
    clock: torch.Tensor  # the times in their own dtype: rounded to that of the state, late ones would be others
    problem: Problem
    trajectory: bool

    @classmethod
    def build(
        cls, func: Any, y0: Any, t: Any, *, order: Any, spacing: Spacing, rare: dict[str, Any], trajectory: Any
    ) -> "_Request":
        check_func(func)
        times = increasing_times(t)
        for place in () if being_traced() else (1, -1):
            span = float((times[place] - times[0]).detach())
            if not SHORTEST_SPAN <= span <= 1.0 / SHORTEST_SPAN:
                raise InvalidArgumentError(
                    f"t must span between {SHORTEST_SPAN:g} and {1.0 / SHORTEST_SPAN:g}, got {span:g} from t[0] to "
                    f"t[{place}]; measure time in another unit, in which the span is about 1"
                )
        problem = posed_problem(func, y0, order, rare["slope"])
        problem.max_evaluations = most_evaluations(rare["max_evaluations"], spacing)
        problem.probe_at = _PROBE_AT if spacing.kind == "adaptive" and not being_transformed() else -1
        times, clock = (each.clone().to(problem.value.device) for each in (times, times.to(problem.clock_dtype(t))))
        if spacing.breakpoints is not None:
            problem.jumps_at(spacing.breakpoints, times[0], clock.dtype)
        return cls(spacing, times, clock, problem, check_flag(trajectory, "trajectory"))

    @property
    def elapsed(self) -> torch.Tensor:
        elapsed = self.times - self.times[0]
        return elapsed if self.trajectory else elapsed[-1:]

    def wants_gradient(self) -> bool:
        """Whether one can be wanted, by what is given and what func returns at the start."""
        problem = self.problem
        given = (each for each in (problem.value, problem.velocity, problem.orders) if each is not None)
        return any(each.requires_grad for each in given) or bool(
            problem.packed_slope(self.clock[0].detach(), problem.value).requires_grad
        )

    @cached_property
    def outputs(self) -> list[float]:
        return [float(time) for time in self.elapsed.detach().tolist()]

    @property
    def pieces(self) -> list[Piece]:
        """The span, cut at breakpoints."""
        ends = (anchors(self.spacing, self.times) - self.times[0]).detach().tolist()
        t0, epsilon = float(self.times[0].detach()), torch.finfo(self.clock.dtype).eps
        found = []
        for begin, end in pairwise(ends):
            # Of the times that func sees there, after a breakpoint, which points have to differ from.
            rounding = TIME_ROUNDING * epsilon * max(abs(t0), abs(t0 + begin)) if begin else 0.0
            output = self.outputs[bisect_right(self.outputs, begin + 2.0 * rounding, hi=len(self.outputs) - 1)]
            found.append(Piece(begin, end, output, 100.0 * rounding if begin else EARLIEST * min(output, end)))
        return found

    def grid(self, found: torch.Tensor | None = None) -> Grid:
        return make_grid(self.spacing, self.times, self.clock, self.problem.orders, found)


def _solved(method: str, rare: dict[str, Any], request: _Request) -> Solution:
    problem, spacing = request.problem, request.spacing
    usual = COMPRESS_TOLS.get(problem.value.dtype, 1e-7)
    rare = rare | {"compress_tol": usual if rare["compress_tol"] is None else rare["compress_tol"]}
    method = _checked_method(method, spacing, problem, rare)
    try:
        with without_autocast(problem.value.device.type):
            solve = _by_panels if method == "collocation" else partial(_by_steps, METHODS[method])
            packed, nodes, n_rejected, again, panels = solve(request, rare)
    except OutOfEvaluationsError:
        raise NotConvergedError(
            f"the solve must need at most max_evaluations = {problem.max_evaluations} evaluations of func, got more on "
            f"its grid; pass a larger max_evaluations, or fewer steps"
        ) from None
    except NotConvergedError:
        if spacing.kind == "adaptive":  # of a random func the message should say so
            problem.check_repeatable(request.clock[0], problem.states.unpack(problem.value.detach()))
        raise
    except RuntimeError as error:
        # With these vmap refuses to tell a value, and numbers of times that it maps over.
        if "vmap: It looks like" in str(error) or "Cannot access data pointer" in str(error):
            raise InvalidArgumentError(
                f"grid must be fixed and the method explicit inside torch.func.vmap, got grid={spacing.choice} and "
                f"method={method!r}; pass n_steps= or grid=Given() and method='adams', with grid=Given() where t is "
                f"mapped over, or give y0 a dimension for the batch instead"
            ) from error
        raise
    problem.max_evaluations = math.inf  # a backward pass takes what it takes
    if spacing.kind == "adaptive":
        least = spacing.smallest_rtol
        if abs(float(request.clock[-1].detach())) > _LATE * request.outputs[-1]:
            problem.warn_of_late_times(request.clock, request.outputs[-1], least)
        problem.warn_of_noise(least, f"the solution is about as good as that, not as rtol = {least:g} asks")
    else:
        least = _FIXED_NOISE.get(problem.value.dtype, 1e-3)
        problem.warn_of_noise(least, "the equations of implicit steps are solved to about that only")
    states = problem.states.unpack(packed if request.trajectory else packed[-1])
    grid = nodes.clock.detach()

    def refined(coarse: torch.Tensor) -> DensePanels | None:
        """Solve with these elapsed times among the outputs."""
        times, order = torch.cat([request.times, request.times[0] + coarse]).sort()
        clock = torch.cat([request.clock, (request.times[0] + coarse).to(request.clock)])
        return _solved(method, rare, replace(request, times=times, clock=clock[order]))._panels

    return Solution(
        states,
        method,
        grid,
        nodes.n_steps,
        n_rejected,
        problem.n_evaluations,
        _panels=panels,
        _times=request.times[[0, -1]],
        _request=request,
        _again=again,
        _refined=refined if rare["keep_panels"] else None,
    )


def _checked_method(name: str, spacing: Spacing, problem: Problem, rare: dict[str, Any]) -> str:
    """The name of one that can run."""
    check_method(name)
    corrections, kind = rare["corrections"], spacing.kind
    if name == "auto":
        name = "collocation" if kind == "adaptive" else "adams"
    method = METHODS.get(name)  # None: panels, which can do all but correct a prediction
    implicit = method is None or method.implicit
    if corrections > 1 and not (method and method.corrected):
        raise InvalidArgumentError(
            f"corrections must be 1 for method {name!r}, which corrects no prediction, got {corrections}; "
            f"leave it out, or pass method='adams' and n_steps="
        )
    check_digits(name, spacing, problem.value.dtype)
    if torch.compiler.is_compiling() and (kind != "given" or implicit):  # which follows no decisions by values
        raise InvalidArgumentError(
            f"grid must be Given() and the method explicit inside torch.compile, got grid={spacing.choice} and "
            f"method={name!r}; pass grid=Given() and method='adams', or compile func alone"
        )
    if method is None:
        return name
    if kind == "adaptive":
        raise InvalidArgumentError(
            f"grid must be Uniform(n), Graded(n) or Given() for method {name!r}, got an adaptive one; "
            f"pass n_steps=, or leave out method= for the default, which chooses its own steps"
        )
    largest = largest_order(problem.orders)
    if largest is not None and largest > 1.0 and "difference" in method.rules:
        raise InvalidArgumentError(
            f"order must not exceed 1 for method {name!r}, got {largest:g}; use 'collocation', 'adams' or 'trapezoidal'"
        )
    return name


# The states, the nodes, how many steps were tried in vain for them, and what takes the steps again, for other elapsed
# times [M], increasing; and panels, where they are kept.
_Walked = tuple[torch.Tensor, Grid, int, Callable[[torch.Tensor], torch.Tensor], DensePanels | None]


def _by_panels(request: _Request, rare: dict[str, Any]) -> _Walked:
    found, n_rejected, outputs, count = None, 0, None, count_for(request.spacing)
    guesses: list[torch.Tensor] = []
    panels: list[Any] = []
    keep = rare["keep_panels"] and request.problem.mass is None and not (rare["checkpoint"] or being_transformed())
    if request.spacing.kind == "adaptive":
        outputs = None if torch.is_grad_enabled() or being_transformed() else request.elapsed
        sensitive = outputs is None and not being_transformed() and request.wants_gradient()
        search = PanelSearch(
            request.problem,
            count,
            request.times,
            request.clock,
            request.spacing,
            outputs,
            sensitive=sensitive,
            keep_panels=keep,
        )
        found, n_rejected = find_grid(search, request.pieces, request.outputs, request.spacing.max_step)
        request.problem.max_evaluations = math.inf
        guesses = search.guesses
    elif not being_transformed():
        request.problem.check_slope(request.clock[0].detach(), request.problem.value.detach())
    nodes = request.grid(found)

    def again(elapsed: torch.Tensor) -> torch.Tensor:
        weights = Weights.of(request.problem.orders, count, modes_for(nodes, rare["compress_tol"]))
        scheme = Collocation(request.problem, weights, request.times[0], nodes.clock.dtype)
        if found is not None:
            search.brief(scheme.solver)
        mine = panels if keep and not panels else None
        return walk(scheme, nodes, elapsed, guesses=guesses, panels=mine, checkpoint=rare["checkpoint"])

    if outputs is None:
        states = again(request.elapsed)
    else:
        states, panels = torch.stack(search.states), search.panels or []
    zones = [] if found is None else [(piece.begin, min(piece.output, piece.end)) for piece in request.pieces]
    coarse = torch.tensor(zones, dtype=torch.float64).reshape(-1, 2)
    return states, nodes, n_rejected, again, DensePanels.of(request.problem, nodes.elapsed, panels, coarse)


def _by_steps(kind: type[Method], request: _Request, rare: dict[str, Any]) -> _Walked:
    method = kind(request.problem, rare["corrections"])
    if rare["store"] is not None and not rare["checkpoint"]:
        raise InvalidArgumentError(
            f"store must go with checkpoint, got {rare['store']} without it; pass options={{'checkpoint': True, "
            f"'store': {rare['store']}}}"
        )
    nodes, start = request.grid(), request.problem.value
    whole = request.spacing.kind == "given" and (request.trajectory or torch.compiler.is_compiling())

    def again(elapsed: torch.Tensor | None) -> torch.Tensor:
        request.problem.value = start  # a walk without a graph leaves the start detached
        if runs_as_chain(method, nodes, rare["compress"]):
            chain = ExplicitChain.of(method, nodes)
            return chain.states(elapsed, checkpoint=rare["checkpoint"], store=rare["store"])
        if rare["store"] is not None:
            raise InvalidArgumentError(
                f"store must be left out for this solve, got {rare['store']}; it takes an explicit method of one order "
                f"up to 1, at most {MOST_ROWS} evaluations of func, and options without 'compress': True"
            )
        march = March(method, nodes, exact=rare["compress"] is False, tolerance=rare["compress_tol"])
        return march.states(elapsed, checkpoint=rare["checkpoint"])

    return again(None if whole else request.elapsed), nodes, 0, again, None
