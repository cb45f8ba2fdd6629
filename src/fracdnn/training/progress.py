"""A progress bar for a training, on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fracdnn.extras import require
from fracdnn.training.history import Record


@contextmanager
def shown_progress(total: int) -> Iterator[Callable[..., None]]:
    """Show loss, accuracy, gradient norm, line-search trials and the time left; yields what a task's `watch` takes.

    Of several trainings in a row, `before` is how many iterations the ones before may have taken.
    """
    require("rich")
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # Fits into 80 columns.
    figures = TextColumn("{task.fields[figures]}")
    columns = (BarColumn(bar_width=8), MofNCompleteColumn(), figures, TimeRemainingColumn(compact=True))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("training", total=total, figures="")

        def watch(record: Record, before: int = 0) -> None:
            progress.update(bar, completed=before + record.iteration, figures=_figures(record))

        yield watch


def _figures(record: Record) -> str:
    parts = [f"loss {record.loss:.2e}"]
    if record.accuracy is not None:
        parts.append(f"{100 * record.accuracy:.1f} % right")
    if record.validation_score is not None:
        parts.append(f"held out {record.validation_score:.2e}")
    parts.append(f"gradient {record.gradient_norm:.0e}")
    if record.line_search_trials:
        parts.append(f"{record.line_search_trials} trial{'s' if record.line_search_trials > 1 else ''}")
    return ", ".join(parts)
