"""The tuned rows: as many random settings for each, the default among them, chosen by a held-out part."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.metrics import log_loss, root_mean_squared_error
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

from benchmarks.study.measures import clipped_probabilities
from benchmarks.study.models import MODELS, Model

Settings = dict[str, Any]
Draw = Callable[[np.random.Generator], Settings]
HELD_OUT = 0.2


@dataclass(frozen=True)
class Search:
    """How many settings are tried, and on how many folds; 1 is one hold-out of a fifth."""

    configurations: int = 30
    folds: int = 1


@dataclass(frozen=True)
class Tuning:
    """A model of the study, and how its settings are drawn."""

    name: str
    draw: Draw

    @property
    def model(self) -> Model:
        return MODELS[self.name]


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.4g}")


def _uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(f"{rng.uniform(low, high):.4g}")


def _log_integer(rng: np.random.Generator, low: int, high: int) -> int:
    return round(_log_uniform(rng, low, high))


def draw_ours(rng: np.random.Generator) -> Settings:
    """The step size is drawn too, since at a fixed one the order would also set the horizon."""
    return {
        "n_layers": int(rng.choice([2, 3, 4, 6, 8])),
        "width": int(rng.choice([32, 64, 128, 256])),
        "step_size": _log_uniform(rng, 0.1, 1.0),
        "learning_rate_init": _log_uniform(rng, 2e-3, 3e-2),
        "alpha": _log_uniform(rng, 1e-5, 1e-1),
    }


def draw_lightgbm(rng: np.random.Generator) -> Settings:
    """Ranges of TabArena; trees are drawn, where it stops early."""
    return {
        "n_estimators": _log_integer(rng, 50, 1000),
        "learning_rate": _log_uniform(rng, 5e-3, 1e-1),
        "num_leaves": _log_integer(rng, 2, 200),
        "min_child_samples": _log_integer(rng, 1, 64),
        "colsample_bytree": _uniform(rng, 0.4, 1.0),
        "subsample": _uniform(rng, 0.7, 1.0),
        "subsample_freq": 1,
        "reg_alpha": _uniform(rng, 1e-5, 1.0),
        "reg_lambda": _uniform(rng, 1e-5, 2.0),
    }


def draw_catboost(rng: np.random.Generator) -> Settings:
    """Ranges of TabArena; trees are drawn, where it stops early."""
    return {
        "iterations": _log_integer(rng, 100, 1000),
        "learning_rate": _log_uniform(rng, 5e-3, 1e-1),
        "depth": int(rng.integers(4, 8, endpoint=True)),
        "l2_leaf_reg": _log_uniform(rng, 1e-4, 5.0),
        "bootstrap_type": "Bernoulli",
        "subsample": _uniform(rng, 0.7, 1.0),
        "colsample_bylevel": _uniform(rng, 0.85, 1.0),
    }


TUNED = {
    f"{name}, tuned": Tuning(name, draw)
    for name, draw in (
        ("fractional, learned order", draw_ours),
        ("fractional, order 1", draw_ours),
        ("LightGBM", draw_lightgbm),
        ("CatBoost", draw_catboost),
    )
}


class Tuned(BaseEstimator):
    """Fitted with the best settings: `chosen_`, empty for the default. `refused_` counts those that a model refused."""

    def __init__(self, build: Callable[..., Any], draw: Draw, search: Search, of_classes: bool, seed: int) -> None:
        self.build, self.draw, self.search, self.of_classes, self.seed = build, draw, search, of_classes, seed

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> "Tuned":
        rng = np.random.default_rng(self.seed)
        drawn = [{}, *(self.draw(rng) for _ in range(self.search.configurations - 1))]
        errors, self.refused_, reason = [], 0, None
        for settings in drawn:
            try:
                errors.append(np.mean([self._error(settings, X, y, *fold) for fold in self._folds(X, y)]))
            except Exception as error:  # settings that a model refuses are not chosen
                errors.append(np.inf)
                self.refused_, reason = self.refused_ + 1, error
        if not np.isfinite(errors).any() and reason is not None:
            raise reason
        self.chosen_ = drawn[int(np.argmin(errors))]
        self.model_ = self.build(**self.chosen_).fit(X, y)
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return self.model_.predict(X)

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        return self.model_.predict_proba(X)

    def _folds(self, X: pd.DataFrame, y: np.ndarray) -> Any:
        options = {"random_state": self.seed}
        if self.search.folds == 1:
            kind = StratifiedShuffleSplit if self.of_classes else ShuffleSplit
            return kind(1, test_size=HELD_OUT, **options).split(X, y)
        kind = StratifiedKFold if self.of_classes else KFold
        return kind(self.search.folds, shuffle=True, **options).split(X, y)

    def _error(self, settings: Settings, X: pd.DataFrame, y: np.ndarray, train: Any, test: Any) -> float:
        model = self.build(**settings).fit(X.iloc[train].reset_index(drop=True), y[train])
        rest = X.iloc[test].reset_index(drop=True)
        if not self.of_classes:
            return root_mean_squared_error(y[test], np.asarray(model.predict(rest)).reshape(-1))
        found = clipped_probabilities(np.asarray(model.predict_proba(rest), dtype=np.float64))
        return log_loss(y[test], found, labels=np.arange(found.shape[1]))
