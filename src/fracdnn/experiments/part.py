"""What every reproduced result has: settings, a run that gives plain numbers, figures and tables made from these."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fracdnn.datasets import Perfume

Numbers = dict[str, Any]
Tick = Callable[[], None]


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
class Part:
    """One result of the paper.

    `run(settings, perfume, tick)` gives numbers that JSON can hold, calling `tick` `units(settings)` times on the way;
    `figure`, `rows` and `tables` need nothing but these numbers. `full` is the paper's setting, `quick` a smaller one
    for the same code. `perfume` is None unless `needs_perfume`.
    """

    name: str
    title: str
    full: Any
    quick: Any
    units: Callable[[Any], int]
    run: Callable[[Any, Perfume | None, Tick], Numbers]
    figure: Callable[[Numbers], Any]
    rows: Callable[[Numbers], list[Row]]
    tables: Callable[[Numbers], list[Table]]
    needs_perfume: bool = False


def percent(values: Sequence[float]) -> str:
    """Mean and range of shares, in percent."""
    low, high = 100 * min(values), 100 * max(values)
    return f"{100 * sum(values) / len(values):.2f} ({low:.2f} to {high:.2f})"
