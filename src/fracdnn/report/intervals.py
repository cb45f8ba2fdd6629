"""How far scores of so many samples may lie from those of all: intervals that hold the true one 95 times of 100."""

import numpy as np

_Z = 1.959963984540054


def share_interval(hits: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of a share, hits of n (Wilson 1927): ends within [0, 1], also where all or none are hits."""
    found, spread = hits / n, _Z**2 / n
    middle = (found + spread / 2) / (1 + spread)
    half = _Z / (1 + spread) * np.sqrt(found * (1 - found) / n + spread / (4 * n))
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)


def r2_interval(y: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """Of R² [n, n_outputs], the mean over outputs, by the delta method: R² = 1 − A/B of means A of squared errors and
    B of squared deviations has the influence (A/B · d² − e²) / B of a sample with error e and deviation d.
    """
    errors, deviations = (y - predicted) ** 2, (y - y.mean(0)) ** 2
    ratio = errors.mean(0) / deviations.mean(0)
    influence = ((ratio * deviations - errors) / deviations.mean(0)).mean(1)
    half = _Z * float(np.sqrt((influence**2).mean() / len(y)))
    r2 = float(1 - ratio.mean())
    return r2 - half, min(r2 + half, 1.0)
