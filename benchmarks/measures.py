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
    """Of times, the median of the ratios turn by turn: both sides of each were taken one after the other."""
    if measure == "seconds":
        found = turn_ratios(record, over, under)
        return float(np.median(found)) if len(found) else None
    above, below = median(record, over, measure), median(record, under, measure)
    return None if above is None or not below else above / below


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
