"""The rare options of `fdeint`."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.solver.grids import Spacing
from fracdnn.solver.methods import METHODS
from fracdnn.validation import check_choice, check_compress, check_count, check_flag, check_positive

# What `fdeint` takes as `options`, with its defaults.
OPTIONS: dict[str, Any] = {
    **dict.fromkeys(("step_size", "max_step", "grading", "breakpoints", "slope", "compress_tol", "max_evaluations")),
    **{"corrections": 1, "compress": "auto", "checkpoint": False, "failures": "raise"},
}
# Of far weights, by the state's dtype; see `fracdnn.caputo.modes`.
COMPRESS_TOLS = {torch.float64: 1e-12, torch.float32: 1e-7}
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
}
# Those that go with `batched`.
_OF_BATCHES = ("max_step", "breakpoints", "slope", "checkpoint", "max_evaluations", "failures")


def rare_options(
    given: Any, defaults: dict[str, Any] = OPTIONS, of: str = "", remedy: str = "correct its names"
) -> dict[str, Any]:
    """All options of `fdeint`, or of another function with its own defaults, those that were given among them."""
    given = {} if given is None else given
    unknown = [name for name in given if name not in defaults] if isinstance(given, dict) else [given]
    if unknown:
        raise InvalidArgumentError(f"options must be a dict of {', '.join(defaults)}{of}, got {unknown[0]!r}; {remedy}")
    rare = defaults | given
    for name, check in _CHECKS.items():
        if rare.get(name) is not None:
            rare[name] = check(rare[name], name)
    return rare


def most_evaluations(given: int | None, spacing: Spacing) -> float:
    jumps = 0 if spacing.breakpoints is None else len(spacing.breakpoints)
    return given or (MAX_EVALUATIONS + _PER_BREAKPOINT * jumps if spacing.kind == "adaptive" else math.inf)


def check_batched(method: str, spacing: Spacing, options: dict[str, Any] | None) -> None:
    """Refuse what batches do not have."""
    other = [name for name in options or {} if name not in _OF_BATCHES]
    if method not in ("auto", "collocation") or spacing.kind != "adaptive" or other:
        got = other[0] if other else f"method={method!r} and grid={spacing.kind!r}"
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
            f"failures must be 'raise' for grid={spacing.kind!r}, got 'nan'; leave it out, or leave out n_steps, "
            f"step_size and grid"
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
