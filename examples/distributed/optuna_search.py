"""A search over settings with Optuna: `python examples/distributed/optuna_search.py [STORAGE]`.

With a storage such as sqlite:///study.db, any number of processes that run this file at once share one search, and a
search that was stopped goes on.
"""

import sys

import optuna
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score

from fracdnn import FractionalClassifier

TRIALS = 8


def accuracy(trial: optuna.Trial) -> float:
    """Of three folds, for the settings that the trial draws."""
    settings = {
        "order": trial.suggest_float("order", 0.1, 1.0),
        "alpha": trial.suggest_float("alpha", 1e-5, 1e-1, log=True),
        "width": trial.suggest_categorical("width", [16, 32, 64]),
    }
    model = FractionalClassifier(max_iter=10, n_members=1, random_state=0, **settings)
    return float(cross_val_score(model, *load_iris(return_X_y=True), cv=3).mean())


def main() -> None:
    storage = sys.argv[1] if len(sys.argv) > 1 else None
    study = optuna.create_study(
        storage=storage,
        study_name="fracdnn",
        load_if_exists=True,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0),
    )
    study.optimize(accuracy, n_trials=TRIALS - len(study.trials))
    print(f"{len(study.trials)} trials, best accuracy {study.best_value:.4f} with {study.best_params}")


if __name__ == "__main__":
    main()
