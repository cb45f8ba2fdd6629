"""What a fit with default settings costs: CPU seconds of one thread, and log-loss on held-out rows beside them.

    python -m benchmarks.fit_times [--rows 500 5000 50000] [--runs 3] [--packages fracdnn CatBoost TabM LightGBM]

Two classes, 20 columns, a twentieth of the labels drawn anew. Packages take turns, each fit in a process of its own
that has fitted a few rows before. Prints medians of the runs, each of which has its own table. TabM is pytabkit's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

HELD_OUT = 20_000


def fracdnn(seed: int) -> Any:
    import torch

    from fracdnn.estimators import FractionalClassifier

    torch.set_num_threads(1)
    return FractionalClassifier(random_state=seed, device="cpu")


def catboost(seed: int) -> Any:
    from catboost import CatBoostClassifier

    return CatBoostClassifier(random_seed=seed, thread_count=1, verbose=False, allow_writing_files=False)


def lightgbm(seed: int) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1)


def tabm(seed: int) -> Any:
    from pytabkit import TabM_D_Classifier

    return TabM_D_Classifier(random_state=seed, device="cpu", n_threads=1, verbosity=0)


PACKAGES = {"fracdnn": fracdnn, "CatBoost": catboost, "TabM": tabm, "LightGBM": lightgbm}


def fit(package: str, n: int, seed: int) -> dict[str, float]:
    """In a process: CPU seconds of the fit, and the log-loss."""
    from sklearn.datasets import make_classification
    from sklearn.metrics import log_loss

    sizes = {"n_features": 20, "n_informative": 10, "n_redundant": 4}
    X, y = make_classification(n_samples=n + HELD_OUT, **sizes, flip_y=0.05, random_state=seed)
    make = PACKAGES[package]
    make(seed).fit(X[:50], y[:50])
    model, began = make(seed), time.process_time()
    model.fit(X[:n], y[:n])
    seconds = time.process_time() - began
    return {"seconds": seconds, "log-loss": float(log_loss(y[n:], model.predict_proba(X[n:])[:, 1]))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 5_000, 50_000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--packages", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--fit", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fit:
        package, n, seed = given.fit
        print(json.dumps(fit(package, int(n), int(seed))))
        return
    print(f"{'rows':>7}  {'package':10}  {'CPU s':>8}  {'log-loss':>8}")
    for n in given.rows:
        found: dict[str, list[dict[str, float]]] = {package: [] for package in given.packages}
        for seed in range(given.runs):
            for package in given.packages:
                command = [sys.executable, "-m", "benchmarks.fit_times", "--fit", package, str(n), str(seed)]
                environment = {**os.environ, "OMP_NUM_THREADS": "1"}
                output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
                found[package].append(json.loads(output.splitlines()[-1]))
        for package, runs in found.items():
            seconds, loss = (statistics.median(run[name] for run in runs) for name in ("seconds", "log-loss"))
            print(f"{n:7,}  {package:10}  {seconds:8.2f}  {loss:8.4f}", flush=True)


if __name__ == "__main__":
    main()
