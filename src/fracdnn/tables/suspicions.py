"""What lets a score promise too much: rows on both sides of the split, columns that hold the answer, codes of nines,
and targets like prices.
"""

import numpy as np

from fracdnn.tables.column import Numbers
from fracdnn.tables.encoder import Encoded
from fracdnn.tables.words import listed, quoted

# Below this share, rows may be like those learned from by chance.
LEAST_SEEN = 0.2
# How close to 1 a correlation tells the target, and with how many rows, of each class too.
TELLS, FEWEST_ROWS, FEWEST_OF_CLASS = 0.99999, 20, 10
# Nines stand for missing values where they recur, this many times the range of all others away from these.
CODES, FEWEST_CODES, LEAST_CODES, FAR = (99, 999, 9_999, 99_999, 999_999), 3, 0.01, 2.0
# A target is like a price where its largest part is this many times its smallest, and its logarithm far less skewed.
SPAN, PARTS, LESS = 10.0, (0.05, 0.95), 0.5


def repeated_rows(n_seen: int, n_known: int) -> list[str]:
    """Of rows held out that have the same inputs as rows learned from."""
    if n_seen < LEAST_SEEN * max(n_known, 1):
        return []
    return [
        f"{n_seen:,} of {n_known:,} held-out rows have the same values in all columns as training rows; if "
        f"the table holds rows twice, new rows will score lower: remove the repeats"
    ]


def telling_columns(X: Encoded, y: np.ndarray, *, are_classes: bool) -> list[str]:
    """Columns of which one input is the target, or whether it is one of its classes, but for a scale and an offset."""
    if are_classes:
        classes, counts = np.unique(y, return_counts=True)
        targets = y[:, None] == classes[np.minimum(counts, len(y) - counts) >= FEWEST_OF_CLASS]
    else:
        targets = y[:, None]
    if len(y) < FEWEST_ROWS or not targets.size:
        return []
    of_targets = _directions(targets.astype(np.float64))
    found = [
        name
        for name, places in X.encoding.places.items()
        if np.abs(_directions(X.inputs[:, places]).T @ of_targets).max() > TELLS
    ]
    if not found:
        return []
    tells = "tells the target exactly" if len(found) == 1 else "each tell the target exactly"
    known = "it is" if len(found) == 1 else "they are"
    drop = " ".join(f"--drop {quoted(name)}" for name in found[:3])
    return [f"{listed(found)} {tells}; if {known} not known before the target is, leave it out: {drop}"]


def missing_codes(X: Encoded) -> list[str]:
    """Numbers such as -999 that recur far from all others of their column."""
    found, places = [], X.encoding.places
    for column in X.encoding.columns:
        if not isinstance(column, Numbers):
            continue
        values = X.inputs[:, places[column.name][0]]
        for code in {float(values.min()), float(values.max())} if len(values) else ():
            others = values[values != code]
            n = len(values) - len(others)
            if abs(code) not in CODES or n < max(FEWEST_CODES, LEAST_CODES * len(values)) or not len(others):
                continue
            if np.abs(others - code).min() > FAR * np.ptp(others):
                found.append(
                    f"column {quoted(column.name)}: {code:g} recurs in {n:,} of {len(values):,} rows, far "
                    f"from all other values; if it stands for a missing value, leave these cells empty"
                )
    return found


def is_like_a_price(y: np.ndarray) -> bool:
    """Whether positive numbers spread over orders of magnitude, evenly in their logarithm."""
    if len(y) < FEWEST_ROWS or not (y > 0).all():
        return False
    shares = y / y.max()
    low, high = np.quantile(shares, PARTS)
    return bool(high > SPAN * low) and _lopsided(np.log(y)) < LESS * _lopsided(shares)


def _lopsided(values: np.ndarray) -> float:
    """How far the mean lies from the median, in deviations: at most 1."""
    return float(abs(values.mean() - np.median(values)) / values.std())


def _directions(columns: np.ndarray) -> np.ndarray:
    """Centered, of norm 1; what is constant is 0."""
    centered = columns - columns.mean(0)
    scales = np.abs(centered).max(0)
    centered = np.divide(centered, scales, out=np.zeros_like(centered), where=scales > 0)
    norms = np.linalg.norm(centered, axis=0)
    return np.divide(centered, norms, out=np.zeros_like(centered), where=norms > 0)
