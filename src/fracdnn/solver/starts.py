"""What a first step does not see: func between the step's start and the first time at which the step evaluates it.

A transient or a weak singularity lies there. Func is evaluated at times that approach the start geometrically and held
against the polynomial that the step takes it for; the integral of the difference is what the solution misses.
"""

import math

from fracdnn.solver.arrays import Array, library

_RATIO, _COUNT = 8.0, 7  # of the times, the last of them two millionths of the interval from the start
STEEPEST = 0.98  # power of 1/t from which func is taken for not integrable
_ROUNDING = 1e-9  # of func, below which a difference has no power to speak of


def times_before(interval: Array, finest: float) -> list[Array]:
    """Times from the start at which to look, the latest first, for intervals whose shortest has some above `finest`."""
    shortest = float(interval.min()) if hasattr(interval, "min") else interval
    shares = [_RATIO**-number for number in range(1, _COUNT + 1)]
    found = [interval * share for share in shares if shortest * share > finest]
    return found if len(found) >= 3 else []


def missed_integral(times: Array, slopes: Array, taken: Array) -> tuple[Array, Array]:
    """∫ |func − polynomial| up to the first point, [G, d], and the powers p of func's growth like t^−p at its start.

    Of func and the polynomial [G, K, d] at `times_before`, [K] or [G, K]. The integral is infinite where func is not
    integrable.
    """
    of = library(slopes)
    gaps, last_time = abs(slopes - taken), times[..., -1:]
    total = math.log(_RATIO) * (gaps * times[..., None]).sum(1)
    older, old, last = gaps[:, -3], gaps[:, -2], gaps[:, -1]
    tiny = float(of.finfo(gaps.dtype).tiny)
    power = of.log(of.minimum(last / old.clip(min=tiny), old / older.clip(min=tiny)).clip(min=1.0)) / math.log(_RATIO)
    power = of.where(last > _ROUNDING * abs(slopes[:, -1]), power, 0.0)
    rest = last * last_time / math.sqrt(_RATIO) / (1.0 - power).clip(min=1.0 - STEEPEST)
    missed = of.where(power >= STEEPEST, math.inf, total + rest)
    return of.where(missed == missed, missed, math.inf), power
