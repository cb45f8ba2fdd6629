"""What is timed: groups of cases, each a contest of rivals that must give the right numbers first."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Options:
    """What the user may choose: `quick` for small sizes that show that all runs; where the perfume table lies."""

    quick: bool = False
    perfume: Path | None = None


def nothing() -> None:
    """Do it."""


@dataclass(frozen=True)
class Rival:
    """One way to do what a case asks for.

    `run` is timed; `prepare` goes before each run, untimed. `error` gives the distance of the rival's numbers from the
    reference: above `tolerance` (or NaN) nothing is timed. `notes` are numbers to keep, asked for in the end. With
    `tells_seconds`, `run` returns the time that counts, as a process does that measures a part of its own life.
    `rehearse` is a short run that stands for the first of two where memory is measured and `run` takes long.
    """

    run: Callable[[], Any]
    error: Callable[[], float]
    tolerance: float
    prepare: Callable[[], Any] = nothing
    notes: Callable[[], dict[str, Any]] = dict
    rehearse: Callable[[], Any] | None = None
    tells_seconds: bool = False


@dataclass(frozen=True)
class Target:
    """What was asked for: the ratio `over` / `under`, on one side of a bound.

    `measure` is "seconds", "memory" or "live_memory" (see `benchmarks.memory`), or "seconds at E", the time to reach
    the error E, where `over` and `under` name the beginnings of rivals "curve: setting" (see `benchmarks.measures`).
    """

    what: str
    over: str
    under: str
    measure: str = "seconds"
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class Case:
    """Rivals on one problem of one size.

    `build` makes the problem, which may have a method `close`; each of `rivals` makes a `Rival` of it and raises
    ImportError where its package is missing. Rivals take `turns` turns, one after the other, a turn of `warm_turns`
    uncounted before; `limits` gives some rivals fewer. Before each timed run go `settle` untimed ones of the same
    rival. `memory` names the rivals whose peak memory is measured, in a process of their own; `live_memory=False`
    leaves out what they hold at least. `threads` is torch's
    number, its default where it is None. `settings` are what tells the case from others of its group, as the page
    shows them.
    """

    name: str
    settings: Mapping[str, Any]
    build: Callable[[], Any]
    rivals: Mapping[str, Callable[[Any], Rival]]
    turns: int = 7
    warm_turns: int = 1
    settle: int = 0
    limits: Mapping[str, int] = field(default_factory=dict)
    memory: tuple[str, ...] = ()
    live_memory: bool = True
    threads: int | None = None
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True)
class Group:
    """Cases that belong together, and what they show; listing the cases must be cheap."""

    name: str
    what: str
    cases: Callable[[Options], list[Case]]
