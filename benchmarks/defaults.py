"""The estimators with default settings against scikit-learn's MLP: five folds, three shuffles, one thread.

    python -m benchmarks.defaults

Accuracy or R² in percent, mean and range over the shuffles; the median CPU time of a fit.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fracdnn import FractionalClassifier, FractionalRegressor
from fracdnn.datasets import make_peaks

SHUFFLES = (0, 1, 2)
CLASSES = {
    "iris": load_iris(return_X_y=True),
    "wine": load_wine(return_X_y=True),
    "breast_cancer": load_breast_cancer(return_X_y=True),
    "digits": load_digits(return_X_y=True),
}
VALUES = {"diabetes": load_diabetes(return_X_y=True), "peaks, 1500 points": make_peaks(1500, random_state=0)}


def measured(make: Callable[[int], Any], X: np.ndarray, y: np.ndarray, folds: Any) -> tuple[list[float], float]:
    """The score of each shuffle, a mean over its folds, and the median CPU seconds of a fit."""
    scores, seconds = [], []
    for shuffle in SHUFFLES:
        found = []
        for train, test in folds(5, shuffle=True, random_state=shuffle).split(X, y):
            model = make(shuffle)
            begun = time.process_time()
            model.fit(X[train], y[train])
            seconds.append(time.process_time() - begun)
            found.append(100 * model.score(X[test], y[test]))
        scores.append(float(np.mean(found)))
    return scores, float(np.median(seconds))


def rows(data: dict[str, Any], mlp: Any, ours: Any, folds: Any) -> list[list[str]]:
    lines, means = [], []
    for name, (X, y) in data.items():
        theirs = measured(
            lambda seed: make_pipeline(StandardScaler(), mlp(max_iter=1000, random_state=seed)), X, y, folds
        )
        own = measured(lambda seed: ours(random_state=seed), X, y, folds)
        means.append((np.mean(theirs[0]), np.mean(own[0])))
        cells = [f"{np.mean(s):.2f} ({min(s):.2f} to {max(s):.2f})" for s in (theirs[0], own[0])]
        difference = f"{means[-1][1] - means[-1][0]:+.2f}"
        lines.append([name, *cells, difference, f"{theirs[1]:.2f}", f"{own[1]:.2f}", f"{own[1] / theirs[1]:.2f}"])
    both = np.mean(means, axis=0)
    return [*lines, ["mean", f"{both[0]:.2f}", f"{both[1]:.2f}", f"{both[1] - both[0]:+.2f}", "", "", ""]]


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    torch.set_num_threads(1)
    headings = ["data", "MLP", "fractional", "difference", "MLP, s a fit", "fractional, s a fit", "ratio"]
    print("| " + " | ".join(headings) + " |\n" + "| --- " * len(headings) + "|")
    for data, mlp, ours, folds in (
        (CLASSES, MLPClassifier, FractionalClassifier, StratifiedKFold),
        (VALUES, MLPRegressor, FractionalRegressor, KFold),
    ):
        for line in rows(data, mlp, ours, folds):
            print("| " + " | ".join(line) + " |", flush=True)


if __name__ == "__main__":
    main()
