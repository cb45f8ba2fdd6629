"""From a table's cells to a network's inputs: holes filled, categories as columns of zeros and ones.

Each category has an input of its own. The network's opening map is dense, so that its weights for these inputs are
the learned embedding of the categories; there is no need for another one.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fracdnn.estimators.cells import Cells
from fracdnn.estimators.samples import heaviest, rows_of_all
from fracdnn.estimators.shaping import quantiles
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.training.together import Alone, Ranks

# So many categories have an input each; beyond that the most frequent ones, and one input is for all others.
MOST_CATEGORIES = 100


@dataclass(frozen=True)
class Numbers:
    """A column of numbers: the median fills holes, and where fit saw `holes`, an input says which cells were missing.

    Without a median fit saw no number, and the column is left out.
    """

    median: float | None
    holes: bool = False

    def check(self) -> None:
        """A ValueError unless it is what `Encoding.of` makes, which a file does not promise."""
        finite = self.median is None or (isinstance(self.median, float) and math.isfinite(self.median))
        if not finite or not isinstance(self.holes, bool):
            raise ValueError("a column of numbers that is none")

    def inputs(self, name: str) -> list[str]:
        """The names of the network's inputs."""
        return [] if self.median is None else [name, *([f"{name} is missing"] if self.holes else [])]

    def fill(self, inputs: np.ndarray, cells: Cells, column: int, name: str) -> None:
        """Write the inputs [n, n_inputs], which are zeros."""
        if self.median is None:
            return
        values = cells.numbers_of(column, name)
        missing = np.isnan(values)
        inputs[:, 0] = np.where(missing, self.median, values)
        if self.holes:
            inputs[:, 1] = missing


@dataclass(frozen=True)
class Categories:
    """A column of categories, in alphabetical order.

    `others` is whether fit saw more than these: one input is for all others, those unknown to fit among them. Else
    what fit has not seen is zeros, and a missing cell too, unless fit saw `holes`.
    """

    categories: tuple[str, ...]
    holes: bool = False
    others: bool = False

    def check(self) -> None:
        """A ValueError unless it is what `Encoding.of` makes, which a file does not promise."""
        known = self.categories
        good = all(isinstance(text, str) for text in known) and list(known) == sorted(set(known))
        good = good and (len(known) == MOST_CATEGORIES if self.others else 0 < len(known) <= MOST_CATEGORIES)
        if not (good and isinstance(self.holes, bool) and isinstance(self.others, bool)):
            raise ValueError("a column of categories that is none")

    def inputs(self, name: str) -> list[str]:
        """The names of the network's inputs."""
        words = [*self.categories, *(["(others)"] if self.others else []), *(["(missing)"] if self.holes else [])]
        return [f"{name}={word}" for word in words]

    def fill(self, inputs: np.ndarray, cells: Cells, column: int, name: str) -> None:
        """Write the inputs [n, n_inputs], which are zeros."""
        places, texts = cells.texts_of(column)
        known = {text: place for place, text in enumerate(self.categories)}
        unknown = len(known) if self.others else -1
        place_of = np.array([known.get(text, unknown) for text in texts], dtype=np.int64)
        missing = np.isnan(places)
        rows = np.flatnonzero(~missing)
        found = place_of[places[rows].astype(np.int64)]
        inputs[rows[found >= 0], found[found >= 0]] = 1.0
        if self.holes:
            inputs[missing, -1] = 1.0


@dataclass(frozen=True)
class Encoding:
    """What a fit learned of each column, and the names of the columns."""

    columns: tuple[Numbers | Categories, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, cells: Cells, weight: np.ndarray, names: Sequence[str], ranks: Ranks = Alone()) -> "Encoding":  # noqa: B008
        """What the samples with a weight say, those of all ranks together; a weight counts as repetitions."""
        heaviest(weight, ranks)
        if not weight.all():
            cells, weight = cells.rows(weight > 0), weight[weight > 0]
        found = torch.zeros(2, len(names), dtype=torch.int64)
        found[0, list(cells.texts)] = 1
        found[1] = torch.from_numpy(np.isnan(cells.numbers).any(0))
        texts, holes = ranks.largest(found, "the kinds of the columns").bool().tolist()
        columns: list[Numbers | Categories] = []
        numbers, weights = rows_of_all(cells.numbers, ranks), rows_of_all(weight, ranks)
        for j, (is_text, hole) in enumerate(zip(texts, holes, strict=True)):
            if is_text:
                columns.append(_categories(cells, j, weight, hole, ranks))
            else:
                columns.append(Numbers(_median(numbers[:, j], weights), hole))
        encoding = cls(tuple(columns), tuple(names))
        if not encoding.feature_names:
            raise InvalidArgumentError("X must hold a value in some column, got missing cells only; pass other columns")
        return encoding

    @classmethod
    def of_numbers(cls, fillings: Sequence[float], names: Sequence[str]) -> "Encoding":
        """Of numbers without holes, which these would fill."""
        return cls(tuple(Numbers(float(filling)) for filling in fillings), tuple(names))

    @classmethod
    def of_document(cls, document: Any, names: Sequence[str]) -> "Encoding":
        """The inverse of `to_document`; a ValueError or TypeError where that could not have written it."""
        columns: list[Numbers | Categories] = []
        for each in document:
            is_text = "categories" in each
            columns.append(
                Categories(**each | {"categories": tuple(each["categories"])}) if is_text else Numbers(**each)
            )
            columns[-1].check()
        if len(columns) != len(names):
            raise ValueError(f"{len(columns)} columns for {len(names)} features")
        return cls(tuple(columns), tuple(names))

    def to_document(self) -> list[dict[str, Any]]:
        """Plain values."""
        return [asdict(column) for column in self.columns]

    @cached_property
    def feature_names(self) -> list[str]:
        """A name for each input of the network: that of its column, or with it a category or that it is missing."""
        return [name for each, column in self._named() for name in column.inputs(each)]

    @cached_property
    def is_plain(self) -> bool:
        """Whether the columns are the inputs, as long as nothing is missing."""
        return all(isinstance(each, Numbers) and each.median is not None and not each.holes for each in self.columns)

    @cached_property
    def left_out(self) -> list[str]:
        """The columns in which fit saw no value."""
        return [name for name, column in self._named() if not column.inputs(name)]

    def __call__(self, cells: Cells) -> np.ndarray:
        """The inputs [n, n_inputs]; for plain numbers without holes the cells themselves."""
        if self.is_plain and not cells.texts and not np.isnan(cells.numbers).any():
            return cells.numbers
        inputs, first = np.zeros((len(cells), len(self.feature_names))), 0
        for number, (name, column) in enumerate(self._named()):
            end = first + len(column.inputs(name))
            column.fill(inputs[:, first:end], cells, number, name)
            first = end
        return inputs

    def _named(self) -> Any:
        return zip(self.names, self.columns, strict=True)


def _categories(cells: Cells, column: int, weight: np.ndarray, holes: bool, ranks: Ranks) -> Categories:
    """The most frequent texts of the column, by weight; of equally frequent ones the first in the alphabet."""
    places, texts = cells.texts_of(column)
    known = ~np.isnan(places)
    weights = np.bincount(places[known].astype(np.int64), weights=weight[known], minlength=len(texts))
    counts: Counter[str] = Counter()
    seen = {text: total for text, total in zip(texts, weights.tolist(), strict=True) if total > 0}
    for each in ranks.texts(json.dumps(seen), "the categories"):
        counts.update(json.loads(each))
    frequent = sorted(counts, key=lambda text: (-counts[text], text))
    return Categories(tuple(sorted(frequent[:MOST_CATEGORIES])), holes, len(frequent) > MOST_CATEGORIES)


def _median(values: np.ndarray, weight: np.ndarray) -> float | None:
    """The mean of the two numbers in the middle, where each stands as often as its weight says; None of no numbers."""
    known = ~np.isnan(values)
    values, weight = values[known], weight[known]
    n = len(values)
    if not n:
        return None
    if (weight == weight[0]).all():
        middle = [(n - 1) // 2, n // 2]
        low, high = np.partition(values, middle)[middle]
    else:
        low, high = (quantiles(values, weight, np.array(0.5), side) for side in ("left", "right"))
    return float(low / 2 + high / 2)
