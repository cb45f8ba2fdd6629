"""The perfume data: odours of 20 perfumes, a reading a second for 28 seconds (UCI data set 303; Esme & Karlik 2016)."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fracdnn.exceptions import InvalidArgumentError

N_PERFUMES, N_SECONDS = 20, 28


@dataclass(frozen=True)
class Perfume:
    """560 samples: `data` [560, 2] (strength, quality), `target` [560] in 0 … 19, `second` [560] in 1 … 28.

    Only 152 points are distinct and many recur within a class, so random folds leak; `split_by_time` does not.
    """

    data: np.ndarray
    target: np.ndarray
    second: np.ndarray
    target_names: list[str]

    def split_by_time(self, seconds: int = 14) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """X_train, X_test, y_train, y_test: the first seconds for training, the rest for testing."""
        early = self.second <= seconds
        return self.data[early], self.data[~early], self.target[early], self.target[~early]


def load_perfume(path: str | Path) -> Perfume:
    """The table from a CSV file: a line for each perfume, its name and 28 readings, with or without a heading.

    A reading packs two integers, strength · 1000 + quality.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row]
    except OSError as error:
        raise InvalidArgumentError(
            f"path must name a readable file, got {path}: {error.strerror}; get the table 'Perfume Data' "
            f"(number 303) from the UCI Machine Learning Repository"
        ) from None
    if rows and len(rows[0]) > 1 and not rows[0][1].strip().isdigit():
        rows = rows[1:]
    if len(rows) != N_PERFUMES or any(len(row) != N_SECONDS + 1 for row in rows):
        raise InvalidArgumentError(
            f"path must hold {N_PERFUMES} lines of a name and {N_SECONDS} readings, got {len(rows)} lines in {path}; "
            f"check that it is the perfume table"
        )
    try:
        readings = np.array([[int(cell) for cell in row[1:]] for row in rows])
    except ValueError:
        raise InvalidArgumentError(
            f"path must hold whole numbers as readings, got something else in {path}; check that it is not altered"
        ) from None
    data = np.stack([readings // 1000, readings % 1000], axis=-1).astype(np.float64)
    return Perfume(
        data=data.reshape(-1, 2),
        target=np.repeat(np.arange(N_PERFUMES), N_SECONDS),
        second=np.tile(np.arange(1, N_SECONDS + 1), N_PERFUMES),
        target_names=[row[0] for row in rows],
    )
