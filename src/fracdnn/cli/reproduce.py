"""`fracdnn reproduce`: run parts of the paper, write what they give, compare."""

from functools import partial
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from fracdnn.cli.messages import fail, say, written
from fracdnn.cli.outputs import check_output
from fracdnn.datasets import Perfume, load_perfume
from fracdnn.exceptions import DownloadError, FracdnnError, MissingExtraError
from fracdnn.experiments.jobs import Jobs
from fracdnn.experiments.part import Numbers, Part
from fracdnn.experiments.parts import PARTS
from fracdnn.experiments.results import finished, write_figures, write_result


def reproduce_parts(names: list[str], out: Path, *, quick: bool, perfume_path: Path | None) -> None:
    if names == ["list"]:
        for part in PARTS.values():
            typer.echo(f"{part.name:20} {part.title} (up to {part.minutes:g} min on two cores)")
        return
    chosen = _chosen(names)
    for file in (out / f"{part.name}.{ending}" for part in chosen for ending in ("json", "jsonl", "png", "svg")):
        check_output("--out", file, perfume_path)
    with written(out):
        out.mkdir(parents=True, exist_ok=True)
    perfume, missing, left_out = None, "", [part for part in chosen if part.needs_perfume]
    if left_out:
        perfume, missing = _perfume(perfume_path, is_needed=left_out == chosen)
    if perfume is not None:
        left_out = []
    found = _run([part for part in chosen if part not in left_out], out, quick=quick, perfume=perfume)
    table = RichTable(title="The paper, and here" + (" (--quick: not the paper's setting)" if quick else ""))
    for heading in ("part", "what", "paper", "here"):
        table.add_column(heading)
    for part, numbers in found:
        for row in part.rows(numbers):
            table.add_row(part.name, row.what, row.paper, row.here)
        table.add_section()
    Console().print(table)
    typer.echo(f"numbers and figures: {out}")
    if left_out:
        fail(f"{_names(left_out)} could not run without the perfume table: {missing}")


def _names(parts: list[Part]) -> str:
    return ", ".join(part.name for part in parts)


def _chosen(names: list[str]) -> list[Part]:
    if "all" in names:
        return list(PARTS.values())
    for name in names:
        if name not in PARTS:
            fail(f"no result is called {name!r}; choose from all, {', '.join(PARTS)}")
    return [PARTS[name] for name in dict.fromkeys(names)]


def _perfume(path: Path | None, *, is_needed: bool) -> tuple[Perfume | None, str]:
    """The table, or why it could not be fetched, if others can do without; a path that is wrong ends all at once."""
    try:
        return load_perfume(path), ""
    except MissingExtraError:
        raise
    except FracdnnError as error:
        why = f"{error} (or --perfume PATH)"
        if is_needed or not isinstance(error, DownloadError):
            fail(why)
        say("the perfume table cannot be fetched; other parts run without it")
        return None, why


def _run(parts: list[Part], out: Path, *, quick: bool, perfume: Perfume | None) -> list[tuple[Part, Numbers]]:
    """Run what is left of each part, and write its files as soon as it is done."""
    found = []
    columns = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        for part in parts:
            path = out / f"{part.name}.json"
            numbers = finished(path, part, quick=quick)
            if numbers is None:
                with written(out):
                    numbers = _numbers(part, path, progress, quick=quick, perfume=perfume)
            with written(out):
                write_figures(out, part, numbers)
            found.append((part, numbers))
    return found


def _numbers(part: Part, path: Path, progress: Progress, *, quick: bool, perfume: Perfume | None) -> Numbers:
    """From where an earlier run was ended: its jobs are in a file beside the result, until all are done."""
    jobs = Jobs(part, part.quick if quick else part.full, path.with_suffix(".jsonl"))
    bar = progress.add_task(part.name, total=jobs.n_wanted, completed=jobs.n_done)
    numbers = jobs.run(perfume, partial(progress.advance, bar))
    write_result(path, part, numbers, quick=quick, seconds=jobs.seconds)
    jobs.path.unlink()
    return numbers
