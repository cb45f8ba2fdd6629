"""What a user may want to know before training starts: few rows or classes, numbers that look like ids, prices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fracdnn.columns.words import alike, count, listed, quoted

FEW_ROWS, FEW_OF_CLASS = 20, 5
MOST_NAMED = 6
# A target is like a price where its largest part is this many times its smallest, and its logarithm far less skewed.
_SPAN, _PARTS, _LESS = 10.0, (0.05, 0.95), 0.5


Classes = tuple[np.ndarray, np.ndarray]


def on_table(
    ids: Sequence[str], n_learned: int, n_test: int, test_fraction: float, classes: Classes | None
) -> list[str]:
    """On rows, ids, and classes with the number of rows to learn from that have them; None for a regression."""
    found = []
    if n_learned < FEW_ROWS:
        found.append(f"warning: only {count(n_learned, 'training row')}: results will be unreliable")
    if test_fraction and not n_test:
        found.append("warning: no rows are held out to test the model, so its quality on new rows is unknown")
    n = 0 if classes is None else len(classes[0])
    if n > n_learned / 2:
        found.append(f"warning: {n:,} classes in {n_learned:,} rows; to predict a number, pass --task regression")
    return found + _on_ids(ids, n_learned) + ([] if classes is None else _on_classes(*classes))


def _on_classes(classes: np.ndarray, counts: np.ndarray) -> list[str]:
    """Of classes and the number of rows to learn from that have them: rare ones, and names that look alike."""
    rare = [f"{str(name)!r} ({n:.0f})" for name, n in zip(classes, counts, strict=True) if n < FEW_OF_CLASS]
    found = []
    if rare:
        more = f" and {len(rare) - MOST_NAMED} more" if len(rare) > MOST_NAMED else ""
        has, them = ("has", "it") if len(rare) == 1 else ("have", "them")
        which = f"{len(rare):,} of {len(classes):,} classes {has} fewer than {FEW_OF_CLASS} training rows"
        found.append(f"warning: {which}: {', '.join(rare[:MOST_NAMED])}{more}; the model will rarely predict {them}")
    for group in alike(classes.tolist()) if classes.dtype.kind == "U" else ():
        found.append(f"warning: the classes {listed(group)} look alike; if they mean the same, give them one name")
    return found


def on_target(name: str, y: np.ndarray) -> list[str]:
    if len(y) > 1 and not np.ptp(y):
        return [f"warning: {quoted(name)} is {y[0]:g} in every training row: there is nothing to learn"]
    if not is_like_a_price(y):
        return []
    return [
        f"{quoted(name)} spans orders of magnitude, so its largest values dominate the errors; if relative errors "
        f"matter, add a column with its logarithm, pass that as --target, and leave this one out: --drop {quoted(name)}"
    ]


def on_outliers(name: str, y: np.ndarray, estimator: Any) -> list[str]:
    """Of values that a fitted estimator took as its `outlier_limit`; a classifier has none."""
    if not hasattr(estimator, "target_limits_"):
        return []
    low, high = estimator.target_limits_[:, 0]
    n = int(((y < low) | (y > high)).sum())
    if not n:
        return []
    far = f"{quoted(name)} is more than {estimator.outlier_limit:g} spreads from its median in {n:,} of {len(y):,}"
    return [f"{far} training rows, where it is clipped to {low:g} or {high:g}; --outlier-limit none keeps all values"]


def is_like_a_price(y: np.ndarray) -> bool:
    """Whether positive numbers spread over orders of magnitude, evenly in their logarithm."""
    if len(y) < FEW_ROWS or not (y > 0).all():
        return False
    shares = y / y.max()
    low, high = np.quantile(shares, _PARTS)
    return bool(high > _SPAN * low) and _lopsided(np.log(y)) < _LESS * _lopsided(shares)


def _lopsided(values: np.ndarray) -> float:
    """How far the mean lies from the median, in deviations: at most 1."""
    return float(abs(values.mean() - np.median(values)) / values.std())


def _on_ids(ids: Sequence[str], n_learned: int) -> list[str]:
    if not ids or n_learned < FEW_ROWS:
        return []
    drop = " ".join(f"--drop {quoted(name)}" for name in ids[:3])
    return [f"{listed(ids)} holds a different whole number in each row; if that is an id, leave it out: {drop}"]
