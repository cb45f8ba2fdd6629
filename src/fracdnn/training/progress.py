"""How far a training is, on standard error: a progress bar, or lines where nobody looks at a terminal; and metrics."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fracdnn.extras import require
from fracdnn.training.records import Record

# Characters of the bar, and of the time left below 100 hours.
_BAR, _TIME_LEFT = 8, 8
# Seconds after which a line comes within an iteration.
BETWEEN_LINES = 30.0
# Shows an iteration, by its number.
Bar = Callable[[int, Record], object]
# Of the training under way, if anything is to be told of it.
log: "Log | None" = None
_metrics: Path | None = None


class Log:
    """Shows each iteration: a line, and within a long one a line every half minute, or the `bar`; and writes a line of
    JSON for each to the file of `metrics_to`.
    """

    def __init__(self, total: int, *, lines: bool, bar: Bar | None) -> None:
        self._total, self._lines, self._bar = total, lines, bar
        self._began = self._told = time.monotonic()
        self._done, self._rows, self.checkpoint = 0, 0.0, 0

    def add_rows(self, rows: float, loss: Callable[[], float]) -> None:
        """More rows of this iteration; `loss` computes its loss so far where that is shown."""
        self._rows += rows
        if self._lines and time.monotonic() - self._told >= BETWEEN_LINES:
            self._tell(f"within iteration {self._done + 1} of {self._total}: loss {loss():.4g}")

    def add(self, record: Record, before: int = 0) -> None:
        step = before + record.iteration
        if step <= self._done:  # of several at once, the first to come
            return
        held_out = record.validation_score
        if _metrics is not None:
            found = {"step": step, "time": round(time.time(), 3), "loss": record.loss, "held_out_loss": held_out}
            self._write(_metrics, step, json.dumps({**found, "rows_per_second": round(self._rate(), 1)}))
        if self._bar is not None:
            self._bar(step, record)
        if self._lines:
            also = "" if held_out is None else f", held out {held_out:.4g}"
            self._tell(f"iteration {step} of {self._total}: loss {record.loss:.4g}{also}")
        self._began, self._rows, self._done = time.monotonic(), 0.0, step

    def _rate(self) -> float:
        return self._rows / max(time.monotonic() - self._began, 1e-9)

    def _tell(self, text: str) -> None:
        saved = f"last checkpoint {self.checkpoint}" if self.checkpoint else "no checkpoint"
        print(f"fracdnn: {text}, {self._rate():,.0f} rows/s, {saved}", file=sys.stderr, flush=True)
        self._told = time.monotonic()

    def _write(self, path: Path, step: int, line: str) -> None:
        """One more line; a training that goes on, or begins anew, first drops those of iterations that come again."""
        try:
            if not self._done and path.exists():
                steps = re.finditer(r'\{"step": (\d+), .*\}\n', path.read_text(encoding="utf-8"))
                path.write_text("".join(each[0] for each in steps if int(each[1]) < step), encoding="utf-8")
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            error.filename = str(path)
            raise


@contextmanager
def metrics_to(path: Path | None) -> Iterator[None]:
    """A block whose training writes a line of JSON for each iteration."""
    global _metrics
    _metrics = path
    try:
        yield
    finally:
        _metrics = None


@contextmanager
def logged(total: int, *, lines: bool = False, bar: Bar | None = None) -> Iterator[Any]:
    """What a task's `watch` takes to show records and to write metrics; None where there is nothing to do."""
    global log
    if not lines and bar is None and _metrics is None:
        yield None
        return
    log = Log(total, lines=lines, bar=bar)
    try:
        yield log.add
    finally:
        log = None


@contextmanager
def shown_progress(total: int) -> Iterator[Any]:
    """Show loss, accuracy, gradient norm and line-search trials, as many as a line has room for, and the time left.

    Where standard error is no terminal, there are lines; see `Log`.

    Yields what a task's `watch` takes; of several trainings in a row, `before` is how many iterations the ones before
    may have taken.
    """
    require("rich")
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console, figures = Console(stderr=True), TextColumn("{task.fields[figures]}")
    if not console.is_terminal and not console.is_jupyter:
        with logged(total, lines=True) as note:
            yield note
        return
    columns = (BarColumn(bar_width=_BAR), MofNCompleteColumn(), figures, TimeRemainingColumn(compact=True))
    room = console.width - _BAR - (2 * len(str(total)) + 1) - _TIME_LEFT - (len(columns) - 1)
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("training", total=total, figures="")

        def show(step: int, record: Record) -> None:
            progress.update(task, completed=step, figures=_figures(record, room))

        with logged(total, bar=show) as note:
            yield note


def _figures(record: Record, room: int) -> str:
    """As many as fit into so many characters, the most telling first."""
    parts = [f"loss {record.loss:.2e}"]
    if record.accuracy is not None:
        parts.append(f"{100 * record.accuracy:.1f} % right")
    if record.validation_score is not None:
        parts.append(f"held out {record.validation_score:.2e}")
    parts.append(f"gradient {record.gradient_norm:.0e}")
    if record.line_search_trials:
        parts.append(f"{record.line_search_trials} trial{'s' if record.line_search_trials > 1 else ''}")
    while len(parts) > 1 and len(", ".join(parts)) > room:
        parts.pop()
    return ", ".join(parts)
