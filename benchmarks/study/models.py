"""What is compared: default settings, one thread, each built from a seed and the names of the categorical columns."""

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor, make_column_selector, make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import fracdnn

# What modules are installed as, where that is something else.
PACKAGES = {"sklearn": ("scikit-learn",), "xgboost": ("xgboost-cpu", "xgboost")}
Builder = Callable[..., Any]


@dataclass(frozen=True)
class Model:
    """`classes` and `numbers` build an estimator from a seed, the categorical columns and further settings."""

    classes: Builder
    numbers: Builder
    module: str = "sklearn"
    is_neural: bool = False

    def build(self, of_classes: bool, seed: int, categories: list[str], **settings: Any) -> Any:
        return (self.classes if of_classes else self.numbers)(seed, categories, **settings)

    @property
    def is_ours(self) -> bool:
        return self.module == "fracdnn"

    @property
    def takes_device(self) -> bool:
        return self.module in ("fracdnn", "pytabkit")

    @property
    def is_installed(self) -> bool:
        return find_spec(self.module) is not None

    @property
    def packages(self) -> tuple[str, ...]:
        return PACKAGES.get(self.module, (self.module,))


def as_numbers(*, scaled: bool) -> Any:
    """Medians for holes and a column for each category (a hole is one): for models that take numbers alone."""
    steps = [SimpleImputer(strategy="median"), *([StandardScaler()] if scaled else [])]
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_column_transformer(
        (make_pipeline(*steps), make_column_selector(dtype_include="number")),
        (one_hot, make_column_selector(dtype_include="category")),
    )


def _sklearn(kind: type, *, scaled: bool, seeded: bool = True, **fixed: Any) -> Builder:
    def build(seed: int, categories: list[str], **settings: Any) -> Any:
        seeds = {"random_state": seed} if seeded else {}
        return make_pipeline(as_numbers(scaled=scaled), kind(**seeds, **fixed, **settings))

    return build


def _scaled_target(builder: Builder) -> Builder:
    """For a network that does not scale its target itself: without this it would fail on prices."""
    return lambda *told, **settings: TransformedTargetRegressor(
        builder(*told, **settings), transformer=StandardScaler()
    )


def _histograms(kind: type) -> Builder:
    return lambda seed, categories, **settings: kind(categorical_features="from_dtype", random_state=seed, **settings)


def _ours(name: str, **fixed: Any) -> Builder:
    def build(seed: int, categories: list[str], **settings: Any) -> Any:
        return getattr(fracdnn, name)(random_state=seed, **fixed, **settings)

    return build


def _catboost(name: str) -> Builder:
    def build(seed: int, categories: list[str], **settings: Any) -> Any:
        import catboost

        fixed = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
        model = getattr(catboost, name)(cat_features=categories, random_seed=seed, **fixed, **settings)
        return make_pipeline(FunctionTransformer(categories_as_text), model)

    return build


def categories_as_text(X: Any) -> Any:
    """CatBoost takes no holes in categories; they become one more."""
    names = list(X.select_dtypes("category"))
    return X.assign(**{name: X[name].astype(object).where(X[name].notna(), "(missing)") for name in names})


def _lightgbm(name: str) -> Builder:
    def build(seed: int, categories: list[str], **settings: Any) -> Any:
        import lightgbm

        return getattr(lightgbm, name)(random_state=seed, n_jobs=1, verbosity=-1, **settings)

    return build


def _xgboost(name: str) -> Builder:
    def build(seed: int, categories: list[str], **settings: Any) -> Any:
        import xgboost

        return getattr(xgboost, name)(random_state=seed, n_jobs=1, enable_categorical=True, **settings)

    return build


def _pytabkit(name: str, **ours: Any) -> Builder:
    def build(seed: int, categories: list[str], **settings: Any) -> Any:
        from pytabkit.models.sklearn import sklearn_interfaces

        logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
        fixed = {"device": "cpu", "n_threads": 1, "verbosity": 0} | ours
        model = getattr(sklearn_interfaces, name)(random_state=seed, **fixed | settings)
        # It takes categories with holes, but numbers without.
        filled = make_column_transformer(
            (SimpleImputer(strategy="median"), make_column_selector(dtype_include="number")),
            remainder="passthrough",
            verbose_feature_names_out=False,
        )
        return make_pipeline(filled.set_output(transform="pandas"), model)

    return build


class Eightfold(BaseEstimator):
    """Eight models, each fitted without another eighth of the rows; probabilities and numbers are averaged."""

    def __init__(self, builder: Builder, of_classes: bool, seed: int, categories: list[str]) -> None:
        self.builder, self.of_classes, self.seed, self.categories = builder, of_classes, seed, categories

    def fit(self, X: Any, y: np.ndarray) -> "Eightfold":
        folds = (StratifiedKFold if self.of_classes else KFold)(8, shuffle=True, random_state=self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a class with fewer than eight rows is not in every fold
            parts = [rows for rows, _ in folds.split(X, y)]
        self.members_ = [
            self.builder(8 * self.seed + k, self.categories).fit(X.iloc[rows].reset_index(drop=True), y[rows])
            for k, rows in enumerate(parts)
        ]
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.mean([np.asarray(member.predict(X)).reshape(-1) for member in self.members_], 0)

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.mean([member.predict_proba(X) for member in self.members_], 0)


def _eightfold(model: Model) -> Model:
    def of(builder: Builder, of_classes: bool) -> Builder:
        return lambda seed, categories: Eightfold(builder, of_classes, seed, categories)

    return replace(model, classes=of(model.classes, True), numbers=of(model.numbers, False))


def _fractional(**fixed: Any) -> Model:
    builders = (_ours(f"Fractional{kind}", **fixed) for kind in ("Classifier", "Regressor"))
    return Model(*builders, "fracdnn", is_neural=True)


def _of_pytabkit(name: str, *, is_neural: bool = True, for_classes: Mapping[str, Any] = {}, **fixed: Any) -> Model:
    builders = (_pytabkit(f"{name}_Classifier", **fixed, **for_classes), _pytabkit(f"{name}_Regressor", **fixed))
    return Model(*builders, "pytabkit", is_neural=is_neural)


MODELS = {
    "fractional": _fractional(),
    "fractional, learned order": _fractional(learn_order=True),
    "fractional, order 1": _fractional(order=1.0),
    "RealMLP-TD": _of_pytabkit("RealMLP_TD"),
    "RealMLP-TD-S": _of_pytabkit("RealMLP_TD_S"),
    "TabM": _of_pytabkit("TabM_D"),
    "MLP": Model(
        _sklearn(MLPClassifier, scaled=True), _scaled_target(_sklearn(MLPRegressor, scaled=True)), is_neural=True
    ),
    "CatBoost": Model(_catboost("CatBoostClassifier"), _catboost("CatBoostRegressor"), "catboost"),
    "LightGBM": Model(_lightgbm("LGBMClassifier"), _lightgbm("LGBMRegressor"), "lightgbm"),
    "XGBoost": Model(_xgboost("XGBClassifier"), _xgboost("XGBRegressor"), "xgboost"),
    "HistGradientBoosting": Model(
        _histograms(HistGradientBoostingClassifier), _histograms(HistGradientBoostingRegressor)
    ),
    "random forest": Model(
        _sklearn(RandomForestClassifier, scaled=False), _sklearn(RandomForestRegressor, scaled=False)
    ),
    "linear": Model(_sklearn(LogisticRegression, scaled=True), _sklearn(Ridge, scaled=True)),
}


def _changed(module: str, **constants: Any) -> Model:
    """Return our model with other constants of its recipe, in `fracdnn.estimators.<module>`."""

    def changed(builder: Builder) -> Builder:
        def build(*told: Any, **settings: Any) -> Any:
            model = builder(*told, **settings)
            fit = model.fit

            def fit_changed(*samples: Any) -> Any:
                with patch.multiple(f"fracdnn.estimators.{module}", **constants):
                    return fit(*samples)

            model.fit = fit_changed
            return model

        return build

    ours = _fractional()
    return replace(ours, classes=changed(ours.classes), numbers=changed(ours.numbers))


# At equal bagging: what our default does with its eight networks, done with others. A forest is bagged by itself.
EIGHTFOLD = {f"{name}, eightfold": _eightfold(MODELS[name]) for name in ("MLP", "LightGBM", "CatBoost")} | {
    "RealMLP-TD, eightfold": _of_pytabkit("RealMLP_TD", n_cv=8),
    "TabM, eightfold": _of_pytabkit("TabM_D", n_cv=8),
}
# Boosting with pytabkit's tuned defaults, and RealMLP; all choose epochs or trees by log-loss, the measure here, where
# their defaults take class errors. RealMLP without smoothed labels, as its authors say for log-loss; else its default.
FOR_LOG_LOSS = {"val_metric_name": "cross_entropy"}
BY_AUTHORS = {
    "CatBoost-TD": _of_pytabkit("CatBoost_TD", is_neural=False, for_classes=FOR_LOG_LOSS),
    "LightGBM-TD": _of_pytabkit("LGBM_TD", is_neural=False, for_classes=FOR_LOG_LOSS),
    "XGBoost-TD": _of_pytabkit("XGB_TD", is_neural=False, for_classes=FOR_LOG_LOSS),
    "RealMLP-TD, for log-loss": _of_pytabkit("RealMLP_TD", for_classes={**FOR_LOG_LOSS, "use_ls": False}),
}
LOG_LOSS_ALONE = ("RealMLP-TD, for log-loss",)
# The recipe of the defaults with one part of it taken away or changed, for the development half.
RECIPE = {
    "one network": _fractional(n_members=1),
    "no calibration": _changed("fitting", temperature_of=lambda held_out: None),
    "no bins": _changed("recipe", BINS=0),
    "no clip": _changed("fitting", CLIP=None),
    "less decay": _fractional(alpha=3e-5),
    "more decay": _fractional(alpha=3e-3),
    "GELU": _fractional(activation="gelu"),
    "step 1": _fractional(step_size=1.0),
    "one layer": _fractional(n_layers=1),
    "six layers": _fractional(n_layers=6),
    "width 128": _fractional(width=128),
    "60 epochs": _fractional(max_iter=60),
    "patience 15": _changed("fitting", PATIENCE=15),
}
