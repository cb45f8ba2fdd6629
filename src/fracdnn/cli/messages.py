"""One line on standard error for what the user can mend."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer


def fail(message: str) -> NoReturn:
    """Say what is wrong and end with exit code 1."""
    typer.echo(f"fracdnn: {message}", err=True)
    raise typer.Exit(1)


@contextmanager
def written_to(folder: Path) -> Iterator[None]:
    """Turn a failure to write into one line that says what to do."""
    try:
        yield
    except OSError as error:
        fail(f"cannot write to {folder}: {error.strerror}; pass another folder with --out")
