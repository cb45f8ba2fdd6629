"""Responses of linear networks in time from what they are in the Laplace domain, H(s).

With z_k, w_k the nodes and weights of Talbot's contour, s = z/t,

    step(t) = L⁻¹[H(s)/s] = Im Σ_k w_k e^{z_k} H(z_k/t) / z_k,   ramp(t) = L⁻¹[H(s)/s²] = t Im Σ_k w_k e^{z_k} H / z_k²

which is exact to about 12 digits where all singularities of H lie on the negative real axis. They do in networks of
resistors and elements s^−α, 0 < α ≤ 1: for s = r e^{iθ}, 0 < θ < π, the arguments of all impedances lie in (−π, 0], so
no sum of impedances or admittances is 0. The same holds for springs, dashpots and springpots.
Source: Trefethen, Weideman, Schmelzer, "Talbot quadratures and rational approximations", BIT 46, 2006, eq. 3.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.validation import check_numbers, check_times

_NODES = 26
# Of the span: the time after a jump at which its right limit is taken.
AT_ONCE = 1e-30
# Relative differences of times below this are rounding.
_ROUNDING = 1e-11
# Lags whose responses are computed at a time, for the sake of memory.
_AT_A_TIME = 50_000

Immittance = Callable[[torch.Tensor], torch.Tensor]

_ANGLE = torch.arange(1, _NODES, 2, dtype=torch.float64) * (math.pi / _NODES)
_TANGENT = torch.tan(0.6407 * _ANGLE)
_Z = _NODES * torch.complex(0.5017 * _ANGLE / _TANGENT - 0.6122, 0.2645 * _ANGLE)
_SLOPE = 0.5017 / _TANGENT - 0.5017 * 0.6407 * _ANGLE / torch.sin(0.6407 * _ANGLE) ** 2
_WEIGHT = 2.0 * torch.complex(_SLOPE, torch.full_like(_ANGLE, 0.2645)) * torch.exp(_Z)


def step_response(immittance: Immittance, t: torch.Tensor, *, ramp: bool = False) -> torch.Tensor:
    """L⁻¹[H(s)/s] at positive times [n]; of a ramp L⁻¹[H(s)/s²]."""
    values = immittance(_Z / t.unsqueeze(-1))
    return t * (values * (_WEIGHT / _Z**2)).sum(-1).imag if ramp else (values * (_WEIGHT / _Z)).sum(-1).imag


@dataclass(frozen=True, eq=False)
class Signal:
    """What drives a network, from rest: a sum of steps `jumps` and of changes of slope `kinks` at `times` [m]."""

    times: torch.Tensor
    jumps: torch.Tensor
    kinks: torch.Tensor

    @classmethod
    def steps(cls, times: Any, values: Any) -> "Signal":
        """0 before the first time, then each value until the next time."""
        times, values = _alike(times, values)
        return cls(times, torch.cat([values[:1], values.diff()]), torch.zeros_like(times))

    @classmethod
    def pulse(cls, start: float, end: float, height: float) -> "Signal":
        """`height` between two times, 0 elsewhere."""
        return cls.steps([start, end], [height, 0.0])

    @classmethod
    def samples(cls, times: Any, values: Any) -> "Signal":
        """Linear between samples, 0 before the first and constant after the last; a jump where the first is not 0."""
        times, values = _alike(times, values, minimum=2)
        slopes = torch.nn.functional.pad(values.diff() / times.diff(), (1, 1))
        return cls(times, torch.cat([values[:1], torch.zeros_like(values[1:])]), slopes.diff())

    def __call__(self, t: Any) -> torch.Tensor:
        """Its values; at a jump, those after it."""
        lag = check_numbers(t, "t").unsqueeze(-1) - self.times
        return torch.where(lag >= 0, self.jumps + self.kinks * lag, 0.0).sum(-1)

    def response(self, immittance: Immittance, t: Any, at_once: float = AT_ONCE) -> torch.Tensor:
        """Of a network with this H(s), at rest before, at times [n]; at a jump the value after it.

        Times that are multiples of one step need each lag once; cost 13 values of H for each lag.
        """
        rows = check_numbers(t, "t").reshape(-1)
        every = torch.cat([rows, self.times])
        soon = at_once * (float(every.max() - every.min()) or 1.0)
        result = torch.zeros(len(rows), dtype=torch.float64)
        for sizes, ramp in ((self.jumps, False), (self.kinks, True)):
            used = sizes != 0
            lag = rows.unsqueeze(-1) - self.times[used]
            active = lag > 0 if ramp else lag >= 0
            if bool(active.any()):
                # Lags that differ by more than rounding, each once.
                _, places = torch.unique(torch.round(torch.log(lag[active]) / _ROUNDING), return_inverse=True)
                lags = lag.new_zeros(int(places.max()) + 1).scatter(0, places, lag[active]).clamp(min=soon)
                parts = [step_response(immittance, some, ramp=ramp) for some in lags.split(_AT_A_TIME)]
                values = torch.cat([rows.new_zeros(1), *parts])
                where = torch.zeros(lag.shape, dtype=torch.long).masked_scatter(active, places + 1)
                result = result + values[where] @ sizes[used]
        return result


def as_signal(given: Any, name: str) -> Signal:
    if isinstance(given, Signal):
        return given
    if isinstance(given, tuple | list) and len(given) == 2:
        return Signal.samples(*given)
    raise InvalidArgumentError(
        f"{name} must be a Signal or a pair (times, values), got {type(given).__name__}; "
        f"pass Signal.samples, Signal.steps or Signal.pulse"
    )


def _alike(times: Any, values: Any, minimum: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    times = check_times(times, "times", minimum=minimum, remedy="pass more samples").detach()
    values = check_numbers(values, "values")
    if values.shape != times.shape or values.is_complex():
        raise InvalidArgumentError(
            f"values must be one real number for each of the {len(times)} times, got shape {tuple(values.shape)} and "
            f"dtype {values.dtype}; pass as many values as times"
        )
    return times, values
