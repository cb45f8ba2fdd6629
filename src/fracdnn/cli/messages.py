"""What the commands say to people: one line each, on standard error."""

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import typer

from fracdnn.cli.termination import exit_code, note_permanent
from fracdnn.exceptions import FracdnnError, MissingExtraError, RankError

# What the system says of a disk, a quota or a file that can take no more.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What may be otherwise the next time, as where files lie in a network.
_PASSING = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN)
_muted = _quiet = False


def mute(muted: bool) -> None:
    """Let this process say nothing from now on: of several that train together, one talks."""
    global _muted
    _muted = muted


def is_quiet() -> bool:
    return _quiet


def say(message: str, *, always: bool = False) -> None:
    """A remark on the way, unless --quiet was given and not `always`; standard output is for results."""
    if not _muted and (always or not _quiet):
        typer.echo(f"fracdnn: {message}", err=True)


def fail(message: str, *, permanent: bool = True) -> NoReturn:
    """Say what is wrong and end with exit code 1; `permanent` is what a restart by torchrun would meet again."""
    say(message, always=True)
    if permanent:
        note_permanent(message)
    raise typer.Exit(1)


def tell_facts(facts: dict[str, str]) -> None:
    for name, text in facts.items():
        typer.echo(f"{name}: {text}")


def show_table(
    title: str, headings: Iterable[str], rows: Iterable[Iterable[str]], *, justify: Any = "right", **options: Any
) -> None:
    """Print a table, where the options of a console say."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify=justify)
    for row in rows:
        table.add_row(*row)
    Console(markup=False, **options).print(table)


@contextmanager
def written(path: Path, remedy: str = "pass another path, or free some space") -> Iterator[None]:
    """Turn a failure to write into one line that says what to do."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if isinstance(error, FracdnnError) or _is_debugged():
            raise
        fail(f"cannot write to {path}: {error.strerror or error}; {remedy}", permanent=error.errno not in _PASSING)


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with what the user can fix as one line and exit code 1; Ctrl-C is exit code 130, SIGTERM 143."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        global _quiet
        _quiet = options.get("quiet", False)
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            say("interrupted", always=True)
            raise typer.Exit(exit_code()) from None
        except BrokenPipeError:
            # The reader of a pipe, such as head, has seen enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except MissingExtraError:
            raise  # `main` says it, since it can happen before a command begins
        except (FracdnnError, OSError) as error:
            if _is_debugged():
                raise
            if isinstance(error, FracdnnError) or not error.filename:
                fail(str(error), permanent=isinstance(error, FracdnnError) and not isinstance(error, RankError))
            if error.errno in _FULL:
                fail(f"cannot write to {error.filename}: {error.strerror}; free some space, or pass another path")
            remedy = "; check its name and folder" if isinstance(error, FileNotFoundError) else ""
            fail(f"{error.filename}: {error.strerror}{remedy}", permanent=error.errno not in _PASSING)

    return run


def _is_debugged() -> bool:
    return bool(os.environ.get("FRACDNN_DEBUG"))
