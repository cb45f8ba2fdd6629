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
        rivals = [
            measured(lambda seed: make_pipeline(StandardScaler(), mlp(max_iter=1000, random_state=seed)), X, y, folds),
            measured(lambda seed: ours(random_state=seed), X, y, folds),
            measured(lambda seed: ours(order=1.0, random_state=seed), X, y, folds),
        ]
        means.append([np.mean(scores) for scores, _ in rivals])
        cells = [f"{np.mean(scores):.2f} ({min(scores):.2f} to {max(scores):.2f})" for scores, _ in rivals]
        seconds = [f"{found:.2f}" for _, found in rivals[:2]]
        difference, ratio = means[-1][1] - means[-1][0], rivals[1][1] / rivals[0][1]
        lines.append([name, *cells, f"{difference:+.2f}", *seconds, f"{ratio:.2f}"])
    both = np.mean(means, axis=0)
    return [*lines, ["mean", *(f"{mean:.2f}" for mean in both), f"{both[1] - both[0]:+.2f}", "", "", ""]]


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    torch.set_num_threads(1)
    headings = ["data", "MLP", "ours", "ours, order 1", "ours − MLP", "MLP, s a fit", "ours, s a fit", "ratio"]
    print("| " + " | ".join(headings) + " |\n" + "| --- " * len(headings) + "|")
    for data, mlp, ours, folds in (
        (CLASSES, MLPClassifier, FractionalClassifier, StratifiedKFold),
        (VALUES, MLPRegressor, FractionalRegressor, KFold),
    ):
        for line in rows(data, mlp, ours, folds):
            print("| " + " | ".join(line) + " |", flush=True)


if __name__ == "__main__":
    main()
