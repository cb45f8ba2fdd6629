"""The one home of argument checks: each message names the argument, the rule, the value and the remedy."""

import math
import reprlib
import sys
from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.tracing import values_are_unknown

_ORDER_REMEDY = "; order=1 is a plain residual network, a smaller order has a longer memory"


def check_order(order: Any, name: str = "order", *, largest: float = 1.0, remedy: str | None = None) -> torch.Tensor:
    """The order as a float64 tensor (still attached to the caller's graph), each entry in (0, largest]."""
    interval = f"(0, {largest:g}]"
    if remedy is None:
        remedy = _ORDER_REMEDY if name == "order" else f"; choose a number above 0 and not above {largest:g}"
    if isinstance(order, np.ndarray):
        order = _tensor_from(order, name)
    if isinstance(order, torch.Tensor):
        if not order.is_floating_point():
            raise InvalidArgumentError(
                f"{name} must be a floating-point tensor in {interval}, got dtype {order.dtype}; convert it to float64"
            )
        value = order.to(torch.float64)
    elif isinstance(order, Real) and not isinstance(order, bool):
        value = torch.tensor(float(order), dtype=torch.float64, device="cpu")
    else:
        raise InvalidTypeError(f"{name} must be a number or a tensor in {interval}, got {_described(order)}{remedy}")
    _check_all(value, lambda x: (x > 0) & (x <= largest), f"{name} must lie in {interval}", remedy)
    return value


def check_one_order(order: Any, **options: Any) -> torch.Tensor:
    """`check_order` for functions that take a single order."""
    value = check_order(order, **options)
    if value.dim():
        raise InvalidArgumentError(f"order must be one number here, got shape {tuple(value.shape)}; call once for each")
    return value


def check_compress(compress: Any) -> bool | str:
    """Whether far weights are compressed: yes, no, or "auto"."""
    if not isinstance(compress, bool) and compress != "auto":
        raise InvalidArgumentError(f"compress must be True, False or 'auto', got {compress!r}; 'auto' chooses by depth")
    return compress


def check_count(value: Any, name: str, *, minimum: int = 0) -> int:
    """A whole number, not below ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidTypeError(f"{name} must be a whole number, got {_described(value)}; pass an int >= {minimum}")
    if value < minimum:
        raise InvalidArgumentError(f"{name} must be at least {minimum}, got {value}; pass a larger whole number")
    return int(value)


def check_positive(value: Any, name: str, *, remedy: str = "pass a positive number") -> float:
    """A finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidTypeError(f"{name} must be a positive number, got {_described(value)}; {remedy}")
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise InvalidArgumentError(f"{name} must be positive and finite, got {value}; {remedy}")
    return number


def check_step_size(step_size: Any, name: str = "step_size") -> torch.Tensor:
    """The step size as a float64 tensor (still attached to the caller's graph), finite and above zero."""
    return check_positive_tensor(step_size, name, remedy="the step is the time between two samples or layers")


def check_positive_tensor(number: Any, name: str, *, remedy: str = "pass a positive number") -> torch.Tensor:
    """`check_positive` for one number or a tensor: float64, still attached to the caller's graph."""
    if isinstance(number, np.ndarray):
        number = _tensor_from(number, name)
    if not isinstance(number, torch.Tensor):
        return torch.tensor(check_positive(number, name, remedy=remedy), dtype=torch.float64, device="cpu")
    if not number.is_floating_point():
        raise InvalidArgumentError(f"{name} must be floating-point, got dtype {number.dtype}; pass a float")
    value = number.to(torch.float64)
    _check_all(value, lambda x: torch.isfinite(x) & (x > 0), f"{name} must be positive and finite", f"; {remedy}")
    return value


def check_times(
    t: Any, name: str = "t", *, minimum: int = 2, remedy: str = "the first is the initial time"
) -> torch.Tensor:
    """Strictly increasing times as a float64 tensor (still attached to the caller's graph)."""
    value = t if isinstance(t, torch.Tensor) else _tensor_from(t, name)
    if value.dim() != 1:
        raise InvalidArgumentError(f"{name} must be one-dimensional, got shape {tuple(value.shape)}; pass one list")
    if value.numel() < minimum:
        raise InvalidArgumentError(f"{name} must hold at least {minimum} times, got {value.numel()}; {remedy}")
    if value.is_complex() or value.dtype == torch.bool:
        raise InvalidArgumentError(f"{name} must hold real numbers, got dtype {value.dtype}; pass times as floats")
    value = value.to(torch.float64)
    _check_all(value, torch.isfinite, f"{name} must be finite", "; remove NaN and inf")
    if not values_are_unknown(value) and not bool((value.detach().diff() > 0).all()):
        at = int(torch.nonzero(value.detach().diff() <= 0)[0])
        raise InvalidArgumentError(
            f"{name} must increase strictly, got {name}[{at}] = {float(value[at])} and "
            f"{name}[{at + 1}] = {float(value[at + 1])}; sort the times and drop repeats"
        )
    return value


def check_floating(samples: torch.Tensor, name: str) -> torch.Tensor:
    """A real floating-point tensor with finite entries."""
    if not samples.is_floating_point():
        raise InvalidArgumentError(
            f"{name} must be real floating-point numbers, got dtype {str(samples.dtype).removeprefix('torch.')}; "
            f"convert first, for example to float64"
        )
    _check_all(samples, torch.isfinite, f"{name} must be finite", "; fill in or drop missing samples first")
    return samples


def check_numbers(value: Any, name: str) -> torch.Tensor:
    """Finite real or complex numbers (a number, a sequence, NumPy or torch) as float64 or complex128.

    A tensor stays attached to the caller's graph.
    """
    if isinstance(value, torch.Tensor):
        numbers = value.to(torch.complex128 if value.is_complex() else torch.float64)
    elif isinstance(value, str):
        raise InvalidTypeError(f"{name} must be numbers, got {_described(value)}; pass floats or an array of floats")
    else:
        numbers = _tensor_from(value, name)
    _check_all(numbers, torch.isfinite, f"{name} must be finite", "; remove NaN and inf")
    return numbers


def check_real_tensor(x: Any, name: str) -> torch.Tensor:
    """A tensor of floating-point numbers, which are not looked at."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        remedy = f"{name}.float()" if isinstance(x, torch.Tensor) else f"torch.as_tensor({name}, dtype=torch.float32)"
        raise InvalidTypeError(f"{name} must be a floating-point tensor, got {kind}; convert it, say with {remedy}")
    return x


def check_flag(value: Any, name: str) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidTypeError(f"{name} must be True or False, got {_described(value)}; pass a bool")
    return bool(value)


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in choices:
        allowed = ", ".join(repr(choice) for choice in choices)
        raise InvalidArgumentError(f"{name} must be one of {allowed}, got {value!r}; pass one of these")
    return str(value)


def _tensor_from(values: Any, name: str) -> torch.Tensor:
    """Numbers in any NumPy-like form as a tensor; floats in double precision, whatever torch's default is."""
    try:
        array = np.asarray(values)
        array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    except (TypeError, ValueError):
        raise InvalidTypeError(
            f"{name} must be numbers, got {_described(values)}; pass a list, NumPy array or tensor of numbers"
        ) from None
    return torch.from_numpy(np.array(array, order="C"))


def _check_all(values: torch.Tensor, good: Callable[[torch.Tensor], torch.Tensor], rule: str, remedy: str) -> None:
    """Refuse values that are not all good, where they are known."""
    if not values_are_unknown(values) and not bool((are_good := good(values.detach())).all()):
        place = torch.nonzero(~are_good)[0].tolist()
        where = f" at index {place}" if place else ""
        raise InvalidArgumentError(f"{rule}, got {values.detach()[tuple(place)].item()}{where}{remedy}")


def _described(value: Any) -> str:
    return f"{reprlib.repr(value)} of type {type(value).__name__}"


def user_stacklevel() -> int:
    """Return the `stacklevel` at which a warning of the calling function names the first line outside fracdnn."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(str(Path(__file__).parent)):
        frame, level = frame.f_back, level + 1
    return level
