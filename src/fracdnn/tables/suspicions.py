"""Warnings about scores that promise too much: repeated rows, columns that give the target away, codes of nines."""

import numpy as np

from fracdnn.tables.column import Numbers
from fracdnn.tables.encoder import Encoded
from fracdnn.tables.words import listed, quoted

# A smaller share of held-out rows may equal training rows by chance.
LEAST_SEEN = 0.2
# A correlation above this gives the target away, if there are so many rows, of each class too.
TELLS, FEWEST_ROWS, FEWEST_OF_CLASS = 0.99999, 20, 10
# These numbers stand for missing values if they recur in so many rows and such a share of them, farther from all
# others than this many times the range of the others.
CODES, FEWEST_CODES, LEAST_CODES, FAR = (99, 999, 9_999, 99_999, 999_999), 3, 0.01, 2.0
# A target is like a price if the ratio of these two quantiles is above 10, and its logarithm is half as skewed or less.
SPAN, PARTS, LESS = 10.0, (0.05, 0.95), 0.5


def repeated_rows(n_seen: int, n_known: int) -> list[str]:
    """Return a warning if many held-out rows have the same inputs as training rows."""
    if n_seen < LEAST_SEEN * max(n_known, 1):
        return []
    return [
        f"{n_seen:,} of {n_known:,} held-out rows have the same values in all columns as training rows; if "
        f"the table holds rows twice, new rows will score lower: remove the repeats"
    ]


def telling_columns(X: Encoded, y: np.ndarray, *, are_classes: bool) -> list[str]:
    """Return a warning about columns that give the target away.

    One of their inputs is the target, or tells whether it is one of its classes, up to a scale and an offset.
    """
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
    """Return warnings about numbers such as -999 that recur far from all others of their column."""
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
    """Return True for positive numbers that spread over orders of magnitude, evenly in their logarithm."""
    if len(y) < FEWEST_ROWS or not (y > 0).all():
        return False
    shares = y / y.max()
    low, high = np.quantile(shares, PARTS)
    return bool(high > SPAN * low) and _lopsided(np.log(y)) < LESS * _lopsided(shares)


def _lopsided(values: np.ndarray) -> float:
    """Return the distance from the mean to the median in standard deviations, at most 1."""
    return float(abs(values.mean() - np.median(values)) / values.std())


def _directions(columns: np.ndarray) -> np.ndarray:
    """Return columns centered and of norm 1; constant ones become 0."""
    centered = columns - columns.mean(0)
    scales = np.abs(centered).max(0)
    centered = np.divide(centered, scales, out=np.zeros_like(centered), where=scales > 0)
    norms = np.linalg.norm(centered, axis=0)
    return np.divide(centered, norms, out=np.zeros_like(centered), where=norms > 0)
