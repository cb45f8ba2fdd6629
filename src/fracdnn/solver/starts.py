"""What a first step does not see: func between the step's begin and the first time at which the step evaluates it.

A transient or a weak singularity lies there. Func is evaluated at times that approach the begin geometrically and held
against the polynomial that the step takes it for; the integral of the difference is what the solution misses.
"""

import math
from collections.abc import Callable

from fracdnn.solver.arrays import Array, library

_RATIO, _COUNT = 8.0, 7  # of the times, the last of them two millionths of the interval from the begin
STEEPEST = 0.98  # power of 1/t from which func is taken for not integrable
_ROUNDING = 1e-9  # of func, below which a difference has no power to speak of


def missed_integral(
    interval: float,
    finest: float,
    slopes_at: Callable[[list[float]], Array],
    polynomial_at: Callable[[list[float]], Array],
) -> tuple[Array, float]:
    """∫ |func − polynomial| over the interval, [G, d], and the power p of func's growth like t^−p at its begin.

    Both functions take times from the begin [K], not shorter than `finest`, and give [G, K, d]. The integral is
    infinite where func is not integrable.
    """
    times = [interval * _RATIO**-number for number in range(1, _COUNT + 1)]
    times = [time for time in times if time > finest]
    if len(times) < 3:
        return 0.0 * slopes_at([interval])[:, 0], 0.0
    slopes, taken = slopes_at(times), polynomial_at(times)
    of = library(slopes)
    gaps = abs(slopes - taken)
    total = math.log(_RATIO) * sum(gaps[:, place] * time for place, time in enumerate(times))
    older, old, last = gaps[:, -3], gaps[:, -2], gaps[:, -1]
    tiny = float(of.finfo(gaps.dtype).tiny)
    power = of.log(of.minimum(last / old.clip(min=tiny), old / older.clip(min=tiny)).clip(min=1.0)) / math.log(_RATIO)
    power = of.where(last > _ROUNDING * abs(slopes[:, -1]), power, 0.0)
    rest = last * times[-1] / math.sqrt(_RATIO) / (1.0 - power).clip(min=1.0 - STEEPEST)
    steepest = float(power.max()) if math.prod(power.shape) else 0.0
    missed = of.where(power >= STEEPEST, math.inf, total + rest)
    return of.where(missed == missed, missed, math.inf), steepest
