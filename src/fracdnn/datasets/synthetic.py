"""Data that can be drawn at will."""

import numpy as np

from fracdnn.validation import check_count


def make_level_set(n: int, *, random_state: int | np.random.Generator | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The paper's "coordinate to level set" data: points uniform in the unit square, class 1 where x ≤ y, else 0.

    X [n, 2] float64, labels [n].
    """
    points = np.random.default_rng(random_state).random((check_count(n, "n", minimum=1), 2))
    return points, (points[:, 0] <= points[:, 1]).astype(np.int64)


def make_peaks(n: int, *, random_state: int | np.random.Generator | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of two variables with three peaks and three hollows, at points uniform in [−3, 3]².

    The sum of three scaled and shifted Gaussians known as "peaks": X [n, 2], values [n] between −6.6 and 8.1.
    """
    points = np.random.default_rng(random_state).uniform(-3.0, 3.0, (check_count(n, "n", minimum=1), 2))
    x, y = points.T
    values = (
        3 * (1 - x) ** 2 * np.exp(-(x**2) - (y + 1) ** 2)
        - 10 * (x / 5 - x**3 - y**5) * np.exp(-(x**2) - y**2)
        - np.exp(-((x + 1) ** 2) - y**2) / 3
    )
    return points, values
