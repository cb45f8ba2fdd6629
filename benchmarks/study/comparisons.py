"""The records of one half and kind of table as arrays, [tables, models], means over seeds."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.study.measures import win_rate
from benchmarks.study.runs import Record, Run
from benchmarks.study.sources import family_of, half_of, is_of_classes
from reproduction.statistics import holm, signed_rank_p

# What each measure lacks to be perfect, so that less is better.
ERRORS = {"auc": lambda value: 1 - value, "accuracy": lambda value: 1 - value, "r2": lambda value: 1 - value}


@dataclass(frozen=True)
class Comparison:
    """Models that ran on every table with every seed; `left_out` says how far the others came."""

    tables: list[str]
    models: list[str]
    seeds: list[int]
    records: dict[Run, Record] = field(repr=False)
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, records: Iterable[Record], half: str, kind: str, models: Sequence[str], *, by_most: bool = False
    ) -> "Comparison":
        """Kind is "classes" or "numbers"; tables are all that any of the models ran on.

        `by_most` takes the seeds that most models have and leaves out those without one of them, rather than all
        models with the seeds that all of them have.
        """
        chosen = {Run.of(each): each for each in records if each["model"] in models and _is(each["table"], half, kind)}
        tables = sorted({run.table for run in chosen}, key=str.lower)
        whole = {model: _whole_seeds(chosen, model, tables) for model in models}
        there = [model for model in models if whole[model]]
        counts = Counter(seed for model in there for seed in whole[model])
        needed = len(there) // 2 + 1 if by_most else len(there)
        seeds = {seed for seed, count in counts.items() if count >= needed}
        there = [model for model in there if seeds <= whole[model]]
        left_out = {model: _how_far(chosen, model) for model in models if model not in there}
        return cls(tables, there, sorted(seeds), chosen, left_out)

    def __bool__(self) -> bool:
        return len(self.models) > 1 and bool(self.seeds)

    def values(self, name: str) -> np.ndarray:
        """NaN where one of a model's runs on a table failed."""
        means = [[np.mean(self._found(table, model, name)) for model in self.models] for table in self.tables]
        return np.array(means)

    def errors(self, name: str, models: Sequence[str] | None = None) -> np.ndarray:
        """Of these models alone, in their order; infinite where one failed."""
        found = ERRORS.get(name, lambda value: value)(self.values(name))
        chosen = [self.models.index(model) for model in models or self.models]
        return np.where(np.isnan(found), np.inf, found)[:, chosen]

    def differences(self, name: str, first: str, second: str) -> np.ndarray:
        """First minus second on each table; of RMSE, in the target's unit, the logarithm of the ratio instead."""
        errors = self.errors(name, [first, second])
        with np.errstate(invalid="ignore"):
            return np.subtract(*(np.log(errors) if name == "rmse" else errors).T)

    def against(self, name: str, ours: str) -> dict[str, tuple[float, float]]:
        """For each rival our win rate and the p-value of a difference, corrected for their number."""
        rivals = [model for model in self.models if model != ours]
        p_values = holm([signed_rank_p(self.differences(name, ours, rival)) for rival in rivals])
        wins = [win_rate(*self.errors(name, [ours, rival]).T) for rival in rivals]
        return dict(zip(rivals, zip(wins, p_values, strict=True), strict=True))

    def time_ratios(self, name: str, unit: str) -> np.ndarray:
        """The median over tables of each model's seconds in those of one of them, by the seeds that tell both."""
        return np.array([self._time_ratio(name, model, unit) for model in self.models])

    def _time_ratio(self, name: str, model: str, unit: str) -> float:
        """NaN where no seed does: runs on a GPU have no seconds."""
        ratios = []
        for table in self.tables:
            pairs = np.array([self._found(table, each, name) for each in (model, unit)])
            told = np.isfinite(pairs).all(0)
            if told.any():
                ratios.append(np.divide(*pairs[:, told].mean(1)))
        return float(np.median(ratios)) if ratios else np.nan

    def _found(self, table: str, model: str, name: str) -> list[float]:
        found = [self.records[Run(seed, table, model)] for seed in self.seeds]
        return [record.get(name, np.nan) for record in found]


def _is(table: str, half: str, kind: str) -> bool:
    return half_of(family_of(table)) == half and is_of_classes(table) == (kind == "classes")


def _whole_seeds(records: dict[Run, Record], model: str, tables: list[str]) -> set[int]:
    """Seeds on which a model ran on every table."""
    seeds = {run.seed for run in records if run.model == model}
    return {seed for seed in seeds if all(Run(seed, table, model) in records for table in tables)}


def _how_far(records: dict[Run, Record], model: str) -> str:
    runs = [run for run in records if run.model == model]
    return f"{len({run.table for run in runs})} tables, {len({run.seed for run in runs})} seeds" if runs else "none"
