"""What every reproduced result has: jobs that give plain numbers, figures and tables made from these."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fracdnn.datasets import Perfume
from reproduction.statistics import Difference

Numbers = dict[str, Any]
Job = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One line of the table "paper / here"; "-" where the paper gives no number."""

    what: str
    paper: str
    here: str


@dataclass(frozen=True)
class Table:
    """A table of text: for the page of results, and for the terminal."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        lines = [self.headings, ["---"] * len(self.headings), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper that compares orders, and what was found in each arm: fractional against residual.

    `measure` says what the effects are of, and `better` whether "less" or "more" of it is what the paper claims;
    `claimed` is the paper's own effect, where it gives one.
    """

    name: str
    paper: str
    measure: str
    better: str
    effects: dict[str, Difference]
    claimed: float | None = None


@dataclass(frozen=True)
class Part:
    """One result of the paper.

    `jobs(settings)` lists what is to be run, each a few words and numbers that JSON can hold and no two alike, and
    `work(settings, perfume, job)` runs one, giving more of them. Both together are a run, and {"runs": […]} are the
    numbers, which is all that `figure`, `rows`, `tables`, `values` and `claims` need.
    `full` is the paper's setting, `quick` a smaller one for the same code, `minutes` what `full` may take on two cores.
    `perfume` is None unless `needs_perfume`. A job `is_chaotic` where its numbers hang on how sums are rounded: only
    the distribution of runs is a result then. `work` lives in a module of its own, apart from what shows the numbers.
    """

    name: str
    title: str
    minutes: float
    full: Any
    quick: Any
    jobs: Callable[[Any], list[Job]]
    work: Callable[[Any, Perfume | None, Job], Numbers]
    figure: Callable[[Numbers], Any]
    rows: Callable[[Numbers], list[Row]]
    tables: Callable[[Numbers], list[Table]]
    values: Callable[[Numbers], dict[str, str]] = field(default=lambda numbers: {})
    claims: Callable[[Numbers], list[Claim]] = field(default=lambda numbers: [])
    is_chaotic: Callable[[Job], bool] = field(default=lambda job: False)
    needs_perfume: bool = False


def percent(values: Sequence[float]) -> str:
    """Mean and range of shares, in percent."""
    low, high = 100 * min(values), 100 * max(values)
    return f"{100 * sum(values) / len(values):.2f} ({low:.2f} to {high:.2f})"
