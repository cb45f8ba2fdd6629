"""Every figure and table of the paper: `python -m reproduction all --out results` runs them, and compares.

Ended at any time, the same command goes on from there. Instead of names of results: `list` names them; `page` fills
docs/reproduction.md from docs/results; `check` runs some jobs of each again, and fails where these results differ.
"""

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from fracdnn.datasets import Perfume, load_perfume
from fracdnn.exceptions import DownloadError, FracdnnError
from reproduction.check import check_part
from reproduction.page import DOCS, make_page
from reproduction.part import Numbers, Part
from reproduction.parts import PARTS
from reproduction.running import PartRuns, write_figures

COLUMNS = (TextColumn("{task.description:20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


class UsageError(Exception):
    """What the user can fix, in one line."""


def main(argv: list[str] | None = None) -> int:
    given = _arguments().parse_args(argv)
    try:
        if given.parts == ["list"]:
            for part in PARTS.values():
                print(f"{part.name:20} {part.title} (up to {part.minutes:g} min on two cores)")
            return 0
        if given.parts == ["page"]:
            print(make_page())
            return 0
        if given.parts == ["check"]:
            perfume = load_perfume(given.perfume)
            good = [check_part(part, DOCS / "results", perfume, given.jobs) for part in PARTS.values()]
            return 0 if all(good) else 1
        reproduce(_chosen(given.parts), given.out, quick=given.quick, perfume_path=given.perfume, processes=given.jobs)
    except KeyboardInterrupt:
        print("interrupted; what is done is kept, and the same command goes on", file=sys.stderr)
        return 130
    except (UsageError, FracdnnError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def reproduce(parts: list[Part], out: Path, *, quick: bool, perfume_path: Path | None, processes: int) -> None:
    """Run what is left of each part, write its files as soon as it is done, and compare with the paper."""
    out.mkdir(parents=True, exist_ok=True)
    perfume, missing, left_out = None, "", [part for part in parts if part.needs_perfume]
    if left_out:
        perfume, missing = _perfume(perfume_path, is_needed=left_out == parts)
    if perfume is not None:
        left_out = []
    try:
        chosen = [PartRuns(part, out, quick=quick) for part in parts if part not in left_out]
    except ValueError as error:  # a file of other settings
        raise UsageError(str(error)) from None
    found = []
    with Progress(*COLUMNS, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        for runs in chosen:
            bar = progress.add_task(runs.part.name, total=len(runs.jobs), completed=len(runs.jobs) - len(runs.left))
            for _ in runs.run(perfume, processes):
                progress.advance(bar)
            write_figures(out, runs.part, runs.numbers)
            found.append((runs.part, runs.numbers))
    _show(found, quick=quick)
    print(f"numbers and figures: {out}")
    if left_out:
        names = ", ".join(part.name for part in left_out)
        raise UsageError(f"{names} could not run without the perfume table: {missing}")


def _show(found: list[tuple[Part, Numbers]], *, quick: bool) -> None:
    table = RichTable(title="The paper, and here" + (" (--quick: not the paper's setting)" if quick else ""))
    for heading in ("part", "what", "paper", "here"):
        table.add_column(heading)
    for part, numbers in found:
        for row in part.rows(numbers):
            table.add_row(part.name, row.what, row.paper, row.here)
        table.add_section()
    Console().print(table)


def _chosen(names: list[str]) -> list[Part]:
    if "all" in names:
        return list(PARTS.values())
    for name in names:
        if name not in PARTS:
            raise UsageError(f"no result is called {name!r}; choose from all, {', '.join(PARTS)}")
    return [PARTS[name] for name in dict.fromkeys(names)]


def _perfume(path: Path | None, *, is_needed: bool) -> tuple[Perfume | None, str]:
    """The table, or why it could not be fetched, if others can do without; a path that is wrong ends all at once."""
    try:
        return load_perfume(path), ""
    except FracdnnError as error:
        why = f"{error} (or --perfume PATH)"
        if is_needed or not isinstance(error, DownloadError):
            raise UsageError(why) from None
        print("the perfume table cannot be fetched; other parts run without it", file=sys.stderr)
        return None, why


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m reproduction", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", metavar="RESULT", help="which results: all, or names; or list, page, check")
    parser.add_argument("--out", type=Path, default=Path("results"), help="a folder for numbers and figures (results)")
    parser.add_argument("--quick", action="store_true", help="smaller settings than the paper's, in a minute")
    parser.add_argument("--perfume", type=Path, help="the perfume table; else the cache, or a download")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes of one thread each; 0: in this one")
    return parser


if __name__ == "__main__":
    sys.exit(main())
