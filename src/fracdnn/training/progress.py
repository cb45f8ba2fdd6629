"""A progress bar for a training, on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fracdnn.training.history import Record


@contextmanager
def shown_progress(total: int, description: str = "training") -> Iterator[Callable[[Record], None]]:
    """Show loss, accuracy, gradient norm, line-search trials and the time left; yields what a task's `watch` takes."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(description, total=total, figures="")
        yield lambda record: progress.update(bar, completed=record.iteration, figures=_figures(record))


def _figures(record: Record) -> str:
    parts = [f"loss {record.loss:.3e}"]
    if record.accuracy is not None:
        parts.append(f"accuracy {100 * record.accuracy:.1f} %")
    if record.validation_score is not None:
        parts.append(f"held out {record.validation_score:.3e}")
    parts.append(f"gradient {record.gradient_norm:.1e}")
    if record.line_search_trials:
        parts.append(f"trials {record.line_search_trials}")
    return ", ".join(parts)
