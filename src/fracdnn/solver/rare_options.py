"""The rare options of `fdeint`."""

import math
from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeVar

import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.solver.grids import Spacing
from fracdnn.solver.methods import METHODS
from fracdnn.validation import check_choice, check_compress, check_count, check_flag, check_positive

# What `fdeint` takes as `options`, with its defaults.
OPTIONS: dict[str, Any] = {
    **dict.fromkeys(("breakpoints", "slope", "compress_tol", "max_evaluations", "store")),
    **{"corrections": 1, "compress": "auto", "checkpoint": False, "failures": "raise"},
}
# Of far weights, by the state's dtype; see `fracdnn.caputo.modes`.
COMPRESS_TOLS = {torch.float64: 1e-12, torch.float32: 1e-7}
# Names that other packages and earlier versions use, with what to pass instead.
OTHER_NAMES: dict[str, str] = {
    **dict.fromkeys(("alpha", "beta", "gamma", "nu", "frac_order"), "the order of the derivative is order="),
    **dict.fromkeys(("step_size", "h", "dt", "tau"), "pass n_steps=, the number of equal steps from t[0] to t[-1]"),
    **dict.fromkeys(("N", "n", "num_steps", "steps"), "pass n_steps="),
    **dict.fromkeys(("grading", "power"), "pass grid=Graded(n, power=…), from fracdnn.solver"),
    **dict.fromkeys(("max_step", "max_step_size"), "pass grid=Adaptive(max_step=…), from fracdnn.solver"),
    **dict.fromkeys(("tol", "tolerance"), "pass rtol= and atol="),
    **dict.fromkeys(("T", "t_span", "t_eval", "tspan"), "pass the times as t=[0.0, …]"),
    **dict.fromkeys(("args", "params"), "let func close over it, as in lambda t, y: f(t, y, parameters)"),
    **dict.fromkeys(("solver", "scheme"), "pass method="),
    **dict.fromkeys(("adjoint", "adjoint_params"), "gradients are exact; options={'checkpoint': True} saves memory"),
    **dict.fromkeys(("memory", "memory_length"), "the whole history counts; leave it out"),
}
_RARE = "it belongs in options, as in options={{{name!r}: …}}"
# Methods of other packages, with ours.
OTHER_METHODS: dict[str, str] = {
    **dict.fromkeys(("dopri5", "dopri8", "tsit5", "bosh3", "fehlberg2", "adaptive_heun"), "leave out method="),
    **dict.fromkeys(("rk4", "midpoint", "heun2", "heun3", "explicit_adams"), "pass method='adams' and n_steps="),
    **dict.fromkeys(("implicit_adams", "trap", "glm"), "pass method='trapezoidal' and n_steps="),
    **dict.fromkeys(("predictor", "gl", "pi_ex"), "pass method='euler' and n_steps="),
    **dict.fromkeys(("predictor-corrector", "corrector", "pi_pece"), "pass method='pece' and n_steps="),
    **dict.fromkeys(("l1solver", "L1"), "pass method='l1' and n_steps="),
}
_Returned = TypeVar("_Returned")
# Calls of func that an adaptive solve may take, and more of them for a breakpoint.
MAX_EVALUATIONS, _PER_BREAKPOINT = 100_000, 1_000
# Of those that depend on nothing else.
_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "corrections": partial(check_count, minimum=1),
    "compress": lambda value, name: check_compress(value),
    "compress_tol": check_positive,
    "checkpoint": check_flag,
    "max_evaluations": partial(check_count, minimum=1),
    "failures": partial(check_choice, choices=("raise", "nan")),
    "store": lambda value, name: _check_store(value),
}
# Those that go with `batched`.
_OF_BATCHES = ("breakpoints", "slope", "checkpoint", "max_evaluations", "failures")


def rare_options(
    given: Any, defaults: dict[str, Any] = OPTIONS, of: str = "", remedy: str = "correct its names"
) -> dict[str, Any]:
    """All options of `fdeint`, or of another function with its own defaults, those that were given among them."""
    given = {} if given is None else given
    unknown = [name for name in given if name not in defaults] if isinstance(given, dict) else [given]
    if unknown:
        remedy = OTHER_NAMES.get(unknown[0], remedy) if isinstance(unknown[0], str) else remedy
        raise InvalidArgumentError(f"options must be a dict of {', '.join(defaults)}{of}, got {unknown[0]!r}; {remedy}")
    rare = defaults | given
    for name, check in _CHECKS.items():
        if rare.get(name) is not None:
            rare[name] = check(rare[name], name)
    return rare


def _check_store(value: Any) -> torch.dtype:
    if value not in (torch.float16, torch.bfloat16):
        raise InvalidArgumentError(
            f"store must be torch.float16 or torch.bfloat16, got {value!r}; leave it out to store states as they are"
        )
    return value


def refuse_other_names(function: Callable[..., _Returned]) -> Callable[..., _Returned]:
    """Decorate a function so that an unknown keyword raises an error that names ours."""
    known = tuple(signature(function).parameters)

    @wraps(function)
    def checked(*given: Any, **named: Any) -> _Returned:
        for name in named:
            if name not in known:
                remedy = _RARE.format(name=name) if name in OPTIONS else OTHER_NAMES.get(name, "leave it out")
                raise InvalidTypeError(
                    f"{function.__name__} takes {', '.join(known[:3])} and the keywords {', '.join(known[3:])}, got "
                    f"{name}={named[name]!r}; {remedy}"
                )
        return function(*given, **named)

    return checked


def check_func(func: Any) -> None:
    """Refuse what cannot be called as func(t, y)."""
    if not callable(func):
        raise InvalidTypeError(f"func must be callable as func(t, y), got {type(func).__name__}; pass a function")
    if torch.compiler.is_compiling():
        return
    try:
        taken = signature(func.forward if isinstance(func, torch.nn.Module) else func)
    except ValueError:  # some functions of C have none
        return
    try:
        taken.bind(None, None)
    except TypeError:
        raise InvalidTypeError(
            f"func must take a time and a state, as func(t, y), got {getattr(func, '__name__', type(func).__name__)}"
            f"{taken}; pass lambda t, y: net(y) for a network of the state alone"
        ) from None


def check_method(name: Any) -> None:
    """Refuse a method that does not exist; of another package's, name ours."""
    if isinstance(name, str) and name in OTHER_METHODS:
        raise InvalidArgumentError(
            f"method must be one of 'auto', 'collocation', {', '.join(map(repr, METHODS))}, got {name!r}; "
            f"{OTHER_METHODS[name]}, see the table of methods in docs/solver.md"
        )
    check_choice(name, "method", ("auto", "collocation", *METHODS))


def most_evaluations(given: int | None, spacing: Spacing) -> float:
    jumps = 0 if spacing.breakpoints is None else len(spacing.breakpoints)
    return given or (MAX_EVALUATIONS + _PER_BREAKPOINT * jumps if spacing.kind == "adaptive" else math.inf)


def check_batched(method: str, spacing: Spacing, options: dict[str, Any] | None) -> None:
    """Refuse what batches do not have."""
    other = [name for name in options or {} if name not in _OF_BATCHES]
    if method not in ("auto", "collocation") or spacing.kind != "adaptive" or other:
        got = other[0] if other else f"method={method!r} and grid={spacing.choice}"
        raise InvalidArgumentError(
            f"batched=True must go with the default method on adaptive grids, and with options of "
            f"{', '.join(_OF_BATCHES)}, got {got}; leave it out, or leave out batched: a state of any shape is solved "
            f"on one grid"
        )


def refuse_batched(options: dict[str, Any], name: str) -> None:
    if options.get("batched"):
        raise InvalidArgumentError(
            f"batched must not be given to {name}, got {options['batched']!r}; give y0 a dimension for the batch"
        )


def check_failures(spacing: Spacing) -> None:
    """Refuse NaN in place of an error on a fixed grid."""
    if spacing.kind != "adaptive":
        raise InvalidArgumentError(
            f"failures must be 'raise' for grid={spacing.choice}, got 'nan'; leave it out, or leave out n_steps "
            f"and grid"
        )


def check_digits(method: str, spacing: Spacing, dtype: torch.dtype) -> None:
    """Equations of implicit methods are solved to rounding, by factors that torch has for float32 and float64 only."""
    smallest = 4.0 * torch.finfo(dtype).eps
    if dtype not in COMPRESS_TOLS and (method == "collocation" or METHODS[method].implicit):
        raise InvalidArgumentError(
            f"y0 must be float32 or float64 for method {method!r}, got {dtype}; convert it with .float() and let func "
            f"compute in {dtype} inside, or pass method='adams' and n_steps="
        )
    if spacing.kind == "adaptive" and spacing.smallest_rtol < smallest:
        raise InvalidArgumentError(
            f"rtol must be at least {smallest:.1e} for {dtype}, got {spacing.smallest_rtol}; "
            f"use a larger one, or a state of more digits"
        )
