"""A progress bar for a training, on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fracdnn.extras import require
from fracdnn.training.records import Record

# Characters of the bar, and of the time left below 100 hours.
_BAR, _TIME_LEFT = 8, 8


@contextmanager
def shown_progress(total: int) -> Iterator[Callable[..., None]]:
    """Show loss, accuracy, gradient norm and line-search trials, as many as a line has room for, and the time left.

    Yields what a task's `watch` takes; of several trainings in a row, `before` is how many iterations the ones before
    may have taken.
    """
    require("rich")
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console, figures = Console(stderr=True), TextColumn("{task.fields[figures]}")
    columns = (BarColumn(bar_width=_BAR), MofNCompleteColumn(), figures, TimeRemainingColumn(compact=True))
    room = console.width - _BAR - (2 * len(str(total)) + 1) - _TIME_LEFT - (len(columns) - 1)
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("training", total=total, figures="")

        def watch(record: Record, before: int = 0) -> None:
            if before + record.iteration > progress.tasks[bar].completed:  # of several at once, the first to come
                progress.update(bar, completed=before + record.iteration, figures=_figures(record, room))

        yield watch


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
