"""What a user passes, checked: models, times or frequencies, values, their uncertainty; and start values."""

import contextlib
import inspect
import math
from collections.abc import Mapping
from keyword import iskeyword
from numbers import Real
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.validation import check_numbers


class DataSet:
    """One data set: `t` [n], `data` [n, ...] real or complex, and `sigma` like |data|, by which residuals are divided.

    `takes` are the names that the model's signature lists, None where it takes any; `requires` those without a default.
    `noise` is "known", "modulus" or "unknown", as sigma was given; only if known, sigma is the size of the noise.
    """

    def __init__(self, model: Any, t: Any, data: Any, sigma: Any, place: str = "") -> None:
        if not callable(model):
            raise InvalidTypeError(
                f"model{place} must be callable as model(t, **parameters), got {type(model).__name__}; "
                f"pass a function, or a method such as circuit.impedance"
            )
        times, values = check_numbers(t, f"t{place}").detach(), check_numbers(data, f"data{place}").detach()
        if times.dim() != 1:
            raise InvalidArgumentError(f"t{place} must be one-dimensional, got shape {tuple(times.shape)}; flatten it")
        if values.dim() == 0 or len(values) != len(times):
            raise InvalidArgumentError(
                f"data{place} must have one row for each entry of t{place}, got shapes {tuple(values.shape)} and "
                f"{tuple(times.shape)}; measurements run along the first dimension"
            )
        self.model, self.t, self.data, self.sigma = model, times, values, _sigma(sigma, values, place)
        self.noise = "unknown" if sigma is None else sigma if isinstance(sigma, str) else "known"
        self.takes, self.requires = None, set[str]()
        with contextlib.suppress(TypeError, ValueError):  # of functions without a signature
            _, *listed = inspect.signature(model).parameters.values()
            named = [each for each in listed if each.kind is not each.VAR_KEYWORD]
            self.takes = {each.name for each in named} if named == listed else None
            self.requires = {each.name for each in named if each.default is each.empty}

    @property
    def n_numbers(self) -> int:
        """A complex value counts as two."""
        return self.data.numel() * (2 if self.data.is_complex() else 1)

    def predicted(self, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        taken = {name: value for name, value in parameters.items() if self.takes is None or name in self.takes}
        values = self.model(self.t, **taken)
        if not isinstance(values, torch.Tensor):
            raise InvalidTypeError(f"model must return a tensor, got {type(values).__name__}; compute it with torch")
        if values.shape != self.data.shape:
            raise InvalidArgumentError(
                f"model must return values of the data's shape {tuple(self.data.shape)}, got {tuple(values.shape)}; "
                f"return one value for each measured one"
            )
        if values.is_complex() != self.data.is_complex():
            raise InvalidArgumentError(
                f"model and data must both be real or both complex, got dtypes {values.dtype} and {self.data.dtype}; "
                f"return real + 1j * imaginary from the model, or pass it as data"
            )
        return values

    def residual(self, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        """(model − data) / sigma as real numbers [n_numbers]: real parts, then imaginary ones."""
        values = (self.predicted(parameters) - self.data) / self.sigma
        parts = (values.real, values.imag) if values.is_complex() else (values,)
        return torch.cat([part.reshape(-1) for part in parts]).to(torch.float64)

    def like_data(self, row: np.ndarray) -> np.ndarray:
        """Numbers in the order of `residual`, in the shape and units of the data."""
        values = np.array([1.0, 1j]) @ row.reshape(2, -1) if self.data.is_complex() else row
        return values.reshape(self.data.shape) * self.sigma.numpy()


def check_positive(values: Any, name: str, remedy: str) -> torch.Tensor:
    """Positive real numbers as a tensor."""
    numbers = check_numbers(values, name)
    bad = numbers.real if numbers.is_complex() else numbers[numbers <= 0]
    if bad.numel():
        raise InvalidArgumentError(f"{name} must be real and positive, got {bad.reshape(-1)[0].item():g}; {remedy}")
    return numbers


def data_sets(model: Any, t: Any, data: Any, sigma: Any) -> list[DataSet]:
    """One for each model where models come in a list, or for each data set of one model."""
    kinds = np.ndarray | torch.Tensor | list
    is_several = isinstance(data, list | tuple) and all(isinstance(each, kinds) and np.ndim(each) for each in data)
    if not isinstance(model, list | tuple) and not (is_several and len(data)):
        return [DataSet(model, t, data, sigma)]
    models = list(model) if isinstance(model, list | tuple) else [model] * len(data)
    columns = {"t": t, "data": data, "sigma": [None] * len(models) if sigma is None else sigma}
    for name, column in columns.items():
        if not isinstance(column, list | tuple) or len(column) != len(models):
            count = len(column) if isinstance(column, list | tuple) else type(column).__name__
            raise InvalidArgumentError(
                f"{name} must be a list with one entry for each of the {len(models)} data sets, got {count}; pass all"
            )
    rows = zip(models, t, data, columns["sigma"], strict=True)
    return [DataSet(*row, f"[{place}]") for place, row in enumerate(rows)]


def _sigma(sigma: Any, values: torch.Tensor, place: str) -> torch.Tensor:
    """Positive; where none is known, the size of the data, so that residuals have sizes about 1."""
    if sigma is None:
        sigma = float(values.abs().square().mean().sqrt()) or 1.0
    elif isinstance(sigma, str):
        if sigma != "modulus":
            raise InvalidArgumentError(f"sigma{place} must be numbers or 'modulus', got {sigma!r}; pass one of these")
        sigma = values.abs()
        if bool((values == 0).any()):
            raise InvalidArgumentError(
                f"data{place} must not be 0 where sigma is 'modulus', got 0 at index "
                f"{int((values == 0).int().argmax())}; drop such values, or pass numbers as sigma"
            )
    numbers = check_positive(sigma, f"sigma{place}", "it is the standard deviation of the data").detach()
    if numbers.dim() and numbers.shape != values.shape:
        raise InvalidArgumentError(
            f"sigma{place} must be one number or one for each value, got shape {tuple(numbers.shape)} for data of "
            f"shape {tuple(values.shape)}; pass as many"
        )
    return numbers.expand(values.shape).clone()


def start_parameters(given: Any) -> Any:
    """As Parameters of lmfit: {"order": (0.9, 0.05, 1.0), "rate": 0.5, "double": "2 * rate", "fixed": {…}}."""
    from lmfit import Parameter, Parameters

    if isinstance(given, Parameters):
        return given.copy()
    if not isinstance(given, Mapping) or not given:
        raise InvalidTypeError(
            f"parameters must be a dict of start values by name, got {given!r:.80}; pass such as "
            f"{{'order': (0.9, 0.05, 1.0), 'rate': 0.5}}"
        )
    found = Parameters()
    # Expressions last: they may name any of the others.
    for name, value in sorted(given.items(), key=lambda item: isinstance(item[1], str)):
        if not isinstance(name, str) or not name.isidentifier() or iskeyword(name):
            raise InvalidArgumentError(f"parameters must have names of Python, got {name!r}; rename it")
        settings = value if isinstance(value, Parameter) else _settings(name, value)
        try:
            found.add(name, **settings) if isinstance(settings, dict) else found.add(settings)
        except (NameError, SyntaxError, ValueError, TypeError, KeyError, IndexError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            raise InvalidArgumentError(
                f"parameters[{name!r}] must be what lmfit can take, got {value!r} ({reason}); correct it"
            ) from None
    return found


def _settings(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"expr": value}
    if isinstance(value, Mapping):
        return dict(value)
    numbers = list(value) if isinstance(value, tuple | list) else [value]
    wrong = [each for each in numbers if not isinstance(each, Real | None) or isinstance(each, bool) or each != each]
    if len(numbers) not in (1, 3) or wrong:
        raise InvalidArgumentError(
            f"parameters[{name!r}] must be a start value, (start, low, high), an expression or a dict for "
            f"lmfit.Parameter, got {value!r}; pass one of these"
        )
    start, low, high = (*numbers, None, None)[:3]
    low, high = -math.inf if low is None else float(low), math.inf if high is None else float(high)
    if start is None or not math.isfinite(start) or not low <= start <= high or low == high:
        raise InvalidArgumentError(
            f"parameters[{name!r}] must start between its bounds, got start {start}, low {low:g}, high {high:g}; "
            f"to fix it, pass {{'value': {start}, 'vary': False}}"
        )
    return {"value": float(start), "min": low, "max": high}


def start_points(free: list[Any], n_starts: int, random_state: Any) -> list[np.ndarray]:
    """The given point, then random ones: between bounds on both sides, else some factor away from the given one."""
    generator = np.random.default_rng(random_state)

    def drawn(each: Any) -> float:
        if math.isfinite(each.max - each.min) and not 0 < 100 * each.min < each.max:
            return generator.uniform(each.min, each.max)
        value = each.value * math.exp(1.5 * generator.normal()) if each.value else generator.normal()
        return float(np.clip(value, each.min, each.max))

    given = np.array([each.value for each in free])
    return [given, *(np.array([drawn(each) for each in free]) for _ in range(n_starts - 1))]
