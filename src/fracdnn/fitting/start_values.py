"""Parameters as a user writes them, as lmfit holds them; and further points to start from."""

import math
from collections.abc import Mapping
from keyword import iskeyword
from numbers import Real
from typing import Any

import numpy as np

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError


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
