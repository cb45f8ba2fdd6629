"""Progress on standard error: a bar, or lines where that is no terminal; and metrics as JSON."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from fracdnn.extras import require
from fracdnn.training.records import Record

# Characters of the bar, and of the time left below 100 hours.
_BAR, _TIME_LEFT = 8, 8
# Lines of a training at most, and seconds after which a further line comes.
MOST_LINES, BETWEEN_LINES = 15, 30.0
# Shows an iteration, by its number.
Bar = Callable[[int, Record], object]


class Log:
    """Shows iterations as some fifteen lines or by the `bar`, and writes a line of JSON for each to the file `metrics`.

    A line also comes every half minute, even within an iteration.
    """

    def __init__(self, total: int, *, lines: bool, bar: Bar | None, metrics: Path | None) -> None:
        self._total, self._lines, self._bar, self._metrics = total, lines, bar, metrics
        self._began = self._told = time.monotonic()
        self._done, self._rows, self.checkpoint = 0, 0.0, 0

    def add_rows(self, rows: float, loss: Callable[[], float]) -> None:
        """Count more rows of this iteration; `loss` computes its loss so far if a line is due."""
        self._rows += rows
        if self._lines and time.monotonic() - self._told >= BETWEEN_LINES:
            self._tell(f"within iteration {self._done + 1} of {self._total}: loss {loss():.4g}")

    def add(self, record: Record) -> None:
        step, held_out = record.iteration, record.validation_score
        if step <= self._done:  # Of several members, the first to come is shown.
            return
        if self._metrics is not None:
            values = {"step": step, "time": round(time.time(), 3), "loss": record.loss, "held_out_loss": held_out}
            self._write(self._metrics, step, json.dumps({**values, "rows_per_second": round(self._rate(), 1)}))
        if self._bar is not None:
            self._bar(step, record)
        is_due = time.monotonic() - self._told >= BETWEEN_LINES
        if self._lines and (is_due or step % -(-self._total // MOST_LINES) == 0 or step == self._total):
            also = "" if held_out is None else f", held out {held_out:.4g}"
            self._tell(f"iteration {step} of {self._total}: loss {record.loss:.4g}{also}")
        self._began, self._rows, self._done = time.monotonic(), 0.0, step

    def _rate(self) -> float:
        return self._rows / max(time.monotonic() - self._began, 1e-9)

    def _tell(self, text: str) -> None:
        saved = f", last checkpoint {self.checkpoint}" if self.checkpoint else ""
        print(f"fracdnn: {text}, {self._rate():,.0f} rows/s{saved}", file=sys.stderr, flush=True)
        self._told = time.monotonic()

    def _write(self, path: Path, step: int, line: str) -> None:
        """Append a line; a training that goes on, or begins anew, first drops iterations that come again."""
        try:
            if not self._done and path.exists():
                steps = re.finditer(r'\{"step": (\d+), .*\}\n', path.read_text(encoding="utf-8"))
                path.write_text("".join(each[0] for each in steps if int(each[1]) < step), encoding="utf-8")
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            error.filename = str(path)
            raise


# Threads have values of their own: several trainings may run at once.
_log: ContextVar[Log | None] = ContextVar("_log", default=None)
_metrics: ContextVar[Path | None] = ContextVar("_metrics", default=None)


def current_log() -> Log | None:
    """Return the log of the training under way in this thread, if it has one."""
    return _log.get()


@contextmanager
def metrics_to(path: Path | None) -> Iterator[None]:
    """Let trainings in this block write a line of JSON for each iteration to the file."""
    token = _metrics.set(path)
    try:
        yield
    finally:
        _metrics.reset(token)


@contextmanager
def logged(total: int, *, lines: bool = False, bar: Bar | None = None) -> Iterator[Any]:
    """Yield a task's `watch`, which shows records and writes metrics; None if there is nothing to do."""
    metrics = _metrics.get()
    if not lines and bar is None and metrics is None:
        yield None
        return
    log = Log(total, lines=lines, bar=bar, metrics=metrics)
    token = _log.set(log)
    try:
        yield log.add
    finally:
        _log.reset(token)


@contextmanager
def shown_progress(total: int) -> Iterator[Any]:
    """Show loss, accuracy, held-out loss and more, as many as a line has room for, and the time left.

    Where standard error is no terminal, there are lines; see `Log`. Yields what a task's `watch` takes.
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
    """Return as many figures as fit into so many characters, the most telling first."""
    trials = record.line_search_trials
    parts = [
        f"loss {record.loss:.2e}",
        "" if record.accuracy is None else f"{100 * record.accuracy:.1f} % right",
        "" if record.validation_score is None else f"held out {record.validation_score:.2e}",
        f"gradient {record.gradient_norm:.0e}",
        f"{trials} trial{'s' if trials > 1 else ''}" if trials else "",
    ]
    parts = [part for part in parts if part]
    while len(parts) > 1 and len(", ".join(parts)) > room:
        parts.pop()
    return ", ".join(parts)
