"""One run: a model fitted on seven tenths of a table's rows and measured on the others."""

import time
import warnings
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks.study.measures import measures_of_classes, measures_of_numbers
from benchmarks.study.models import BY_AUTHORS, EIGHTFOLD, MODELS, RECIPE, Model
from benchmarks.study.tables import Data, load
from benchmarks.study.tuning import TUNED, Search, Tuned

TEST_SHARE = 0.3
CPU = "cpu"
SECONDS = ("fit_seconds", "predict_seconds")
# What tells runs apart.
FIELDS = ("seed", "table", "model")
Record = dict[str, Any]


@dataclass(frozen=True, order=True)
class Run:
    """A seed is a split and the model's own random numbers."""

    seed: int
    table: str
    model: str

    @classmethod
    def of(cls, record: Record) -> "Run":
        return cls(*(record[name] for name in FIELDS))

    @property
    def base(self) -> Model:
        """The model, tuned or not."""
        return model_called(self.model)


def model_called(name: str) -> Model:
    return TUNED[name].model if name in TUNED else {**MODELS, **RECIPE, **EIGHTFOLD, **BY_AUTHORS}[name]


def measured(run: Run, search: Search = Search(), device: str = CPU) -> Record:  # noqa: B008
    """The record of a run; one that fails says why. Seconds are told of a CPU only, as others are not comparable."""
    record = asdict(run) | ({} if device == CPU else {"device": device})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = load(run.table)
            estimator = _built(run, data, search, device)
            found = fitted_and_measured(estimator, data, run.seed)
            kept = {name: value for name, value in found.items() if device == CPU or name not in SECONDS}
            record.update(status="done", **kept)
    except Exception as error:  # whatever a rival raises is its result
        return failed(record, f"{type(error).__name__}: {error}")
    if isinstance(estimator, Tuned):
        record.update(search=asdict(search), chosen=estimator.chosen_, refused=estimator.refused_)
    return record


def failed(record: Record, why: str) -> Record:
    return {**record, "status": "failed", "error": " ".join(why.split())[:300]}


def _built(run: Run, data: Data, search: Search, device: str) -> Any:
    there = {} if device == CPU else {"device": device}
    build = partial(run.base.build, data.of_classes, run.seed, data.categories, **there)
    return Tuned(build, TUNED[run.model].draw, search, data.of_classes, run.seed) if run.model in TUNED else build()


def fitted_and_measured(estimator: Any, data: Data, seed: int) -> dict[str, float]:
    """Measures, and CPU seconds of this process, to six digits."""
    train, test = split(data, seed)
    X, y = data.X.iloc[train].reset_index(drop=True), data.y[train]
    begun = time.process_time()
    estimator.fit(X, y)
    fitted = time.process_time()
    X, y = data.X.iloc[test].reset_index(drop=True), data.y[test]
    found = estimator.predict_proba(X) if data.of_classes else estimator.predict(X)
    seconds = dict(zip(SECONDS, (fitted - begun, time.process_time() - fitted), strict=True))
    measure = measures_of_classes if data.of_classes else measures_of_numbers
    measures = measure(y, np.asarray(found, dtype=np.float64))
    return {name: float(f"{value:.6g}") for name, value in {**measures, **seconds}.items()}


def split(data: Data, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of the rows to fit and to test with; classes have their share in both."""
    classes = data.y if data.of_classes else None
    return train_test_split(np.arange(len(data.y)), test_size=TEST_SHARE, random_state=seed, stratify=classes)
