"""Medians, spreads and ratios of a case's record, and as text."""

import math
from typing import Any

import numpy as np

Record = dict[str, Any]


def rival(record: Record, name: str) -> dict[str, Any] | None:
    """The outcome of a rival that was timed."""
    outcome = record["rivals"].get(name)
    return outcome if outcome and outcome["status"] == "timed" else None


def median(record: Record, name: str, measure: str = "seconds") -> float | None:
    """Median seconds, or the peak memory in MiB."""
    outcome = rival(record, name)
    if outcome is None or outcome.get(measure) is None:
        return None
    return float(np.median(outcome[measure]))


def ratio(record: Record, over: str, under: str, measure: str = "seconds") -> float | None:
    """Of times, the median of the ratios turn by turn: both sides of each were taken one after the other.

    For "seconds at E", of the times to reach the error E; where `over` does not reach it, at least so much.
    """
    if measure.startswith("seconds at "):
        error = float(measure.removeprefix("seconds at "))
        slow, fast = seconds_to_reach(record, over, error), seconds_to_reach(record, under, error)
        return None if slow is None or fast is None or not fast[1] else slow[0] / fast[0]
    if measure == "seconds":
        found = turn_ratios(record, over, under)
        return float(np.median(found)) if len(found) else None
    above, below = median(record, over, measure), median(record, under, measure)
    return None if above is None or not below else above / below


def seconds_to_reach(record: Record, beginning: str, error: float) -> tuple[float, bool] | None:
    """The least time in which a rival whose name so begins has at most that error, and whether it got there.

    Rivals are points "curve: setting". Between two settings of a curve, time is a power of the error. An error that is
    small by luck does not count: one of a slower setting that is larger counts instead. What does not get there takes
    longer than its slowest setting, whose time is given.
    """
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, outcome in record["rivals"].items():
        if outcome["status"] == "timed" and name.startswith(beginning):
            point = float(np.median(outcome["seconds"])), outcome["error"]
            curves.setdefault(name.partition(": ")[0], []).append(point)
    found = [_on_curve(sorted(points), error) for points in curves.values()]
    reached = [seconds for seconds, there in found if there]
    if reached:
        return min(reached), True
    return (min(seconds for seconds, _ in found), False) if found else None


def _on_curve(points: list[tuple[float, float]], error: float) -> tuple[float, bool]:
    """Of points (seconds, error), the fastest first."""
    seconds = [point[0] for point in points]
    kept = [max(point[1] for point in points[place:]) for place in range(len(points))]
    there = next((place for place, found in enumerate(kept) if found <= error), None)
    if there is None:
        return seconds[-1], False
    if there == 0:
        return seconds[0], True
    share = math.log(error / kept[there - 1]) / math.log(kept[there] / kept[there - 1])
    return seconds[there - 1] * (seconds[there] / seconds[there - 1]) ** share, True


def only_bounded(record: Record, over: str, measure: str) -> bool:
    """Whether a ratio is only known to be larger, since `over` does not reach the error."""
    if not measure.startswith("seconds at "):
        return False
    found = seconds_to_reach(record, over, float(measure.removeprefix("seconds at ")))
    return found is not None and not found[1]


def number(value: float | None) -> str:
    """About three digits, and never an exponent."""
    if value is None or not math.isfinite(value):
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{1 if value >= 10 else 2 if value >= 0.1 else 3}f}"


def seconds_cell(record: Record, name: str, scale: float) -> str:
    """Median (quartiles) in a unit that is 1/scale seconds, or why there is none."""
    outcome = record["rivals"].get(name)
    if outcome is None:
        return "-"
    if outcome["status"] != "timed":
        return outcome["status"]
    found = scale * np.array(outcome["seconds"])
    return with_spread(float(np.median(found)), found)


def turn_ratios(record: Record, over: str, under: str) -> np.ndarray:
    """As many as both have turns; none where one of them was not timed."""
    above, below = rival(record, over), rival(record, under)
    if above is None or below is None:
        return np.empty(0)
    return np.array([a / b for a, b in zip(above["seconds"], below["seconds"], strict=False)])


def ratio_cell(record: Record, over: str, under: str) -> str:
    """The median of the ratios turn by turn, with quartiles."""
    found = turn_ratios(record, over, under)
    return with_spread(float(np.median(found)), found) if len(found) else "-"


def with_spread(value: float, values: np.ndarray) -> str:
    if len(values) < 3:
        return number(value)
    low, high = np.quantile(values, [0.25, 0.75])
    return f"{number(value)} ({number(low)} to {number(high)})"


def markdown(headings: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [headings, ["---"] * len(headings), *rows])
