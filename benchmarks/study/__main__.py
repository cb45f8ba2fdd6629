"""Run the study: `python -m benchmarks.study [--half HALF] [--models …] [--seeds …] [--tables …] [--jobs N] …`.

Each run is written at once; the same command goes on where it was ended.
"""

import argparse
import sys
from collections.abc import Callable, Container
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.study.check import check_study
from benchmarks.study.models import BY_AUTHORS, EIGHTFOLD, MODELS, RECIPE
from benchmarks.study.page import DOCS
from benchmarks.study.runs import CPU, FIELDS, Record, Run, failed, measured
from benchmarks.study.tables import load, missing_packages, tables
from benchmarks.study.tuning import TUNED, Search
from records.keeping import Records, made_with
from records.processes import DIED, in_processes

HALVES = ("development", "report")
OURS = "fractional"
CONSOLE = Console(stderr=True)
EVERY_MODEL = {**MODELS, **RECIPE, **EIGHTFOLD, **BY_AUTHORS, **{name: each.model for name, each in TUNED.items()}}
PACKAGES = dict.fromkeys(package for model in MODELS.values() for package in model.packages)


def main(argv: list[str] | None = None) -> int:
    told = _arguments().parse_args(argv)
    if told.check:
        return 1 - check_study(DOCS / "results" / "study.json", told.jobs)
    chosen, models = _tables(told), _models(told.models or _by_default(told), told.device)
    if told.list:
        _list(chosen)
        return 0
    _check("model", told.anew, EVERY_MODEL)
    runs = [Run(seed, table, model) for seed in told.seeds for table in chosen for model in models]
    records = Records(told.out, FIELDS)
    if told.anew:
        anew = {run for run in runs if run.model in told.anew}
        records.arrange([record for record in records.runs if Run.of(record) not in anew])
    waiting = [run for run in runs if records.get(asdict(run)) is None]
    CONSOLE.print(f"{len(runs) - len(waiting)} of {len(runs)} runs are in {told.out}", highlight=False)
    try:
        work = partial(measured, search=Search(told.configurations, told.folds), device=told.device)
        _run(waiting, records, told.jobs, work)
    except KeyboardInterrupt:
        CONSOLE.print("interrupted; what is done is kept, and the same command goes on (without --anew)")
        return 130
    return 0


def _by_default(told: argparse.Namespace) -> list[str]:
    return list(TUNED) if told.tuned else [OURS, *RECIPE] if told.recipe else list(MODELS)


def _run(waiting: list[Run], records: Records, processes: int, work: Callable[[Run], Record]) -> None:
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        "left",
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=CONSOLE) as progress:
        bar = progress.add_task("", total=len(waiting))
        made = made_with(PACKAGES)
        for run, found in in_processes(work, waiting, processes):
            record = failed(asdict(run), DIED) if found == DIED else found
            records.add({**record, "made_with": made})
            progress.update(bar, advance=1, description=_told(record))
            if record["status"] == "failed":
                progress.console.print(f"{run.model} on {run.table}, seed {run.seed}: {record['error']}", style="red")


def _told(record: Record) -> str:
    return f"{record['table']}, {record['model']}, seed {record['seed']}: {record.get('fit_seconds', 0):.1f} s"


def _tables(told: argparse.Namespace) -> list[str]:
    for package in missing_packages():
        CONSOLE.print(f"{package} is not installed: its tables are left out")
    known = tables()
    _check("table", told.tables, known)
    chosen = [
        name for name, table in known.items() if (name in told.tables if told.tables else table.half == told.half)
    ]
    return [name for name in chosen if told.most_rows is None or len(load(name).y) <= told.most_rows]


def _models(names: list[str], device: str) -> list[str]:
    _check("model", names, EVERY_MODEL)
    bound = [name for name in names if device != CPU and not EVERY_MODEL[name].takes_device]
    if bound:
        raise SystemExit(f"--device {device} is for networks of torch; {', '.join(bound)} can't run there")
    for name in names:
        if not EVERY_MODEL[name].is_installed:
            CONSOLE.print(f"{EVERY_MODEL[name].module} is not installed: {name} is left out")
    return [name for name in names if EVERY_MODEL[name].is_installed]


def _check(what: str, names: list[str], known: Container[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no {what} is called {', '.join(unknown)}; --list names all")


def _list(chosen: list[str]) -> None:
    known = tables()
    for name in chosen:
        table = known[name]
        print(f"{name} ({'classes' if table.of_classes else 'numbers'}, {table.half}, family {table.family})")
    print(f"\nModels: {'; '.join(EVERY_MODEL)}")


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--half", choices=HALVES, default="development", help="development unless told")
    add("--models", nargs="+", default=[], metavar="MODEL", help="all with default settings unless told")
    add("--tuned", action="store_true", help="the tuned models, unless --models names others")
    add("--recipe", action="store_true", help="our default with parts of its recipe taken away, likewise")
    add("--configurations", type=int, default=Search.configurations, help="settings that a tuned one tries (30)")
    add("--folds", type=int, default=Search.folds, help="inner folds of these; 1, a hold-out, unless told")
    add("--seeds", nargs="+", type=int, default=[0], help="splits, 0 unless told")
    add("--tables", nargs="+", default=[], metavar="TABLE", help="these, of either half")
    add("--most-rows", type=int, metavar="N", help="tables of up to so many rows; for what tries many settings")
    add("--device", default=CPU, help="where networks of torch run, cpu unless told; elsewhere no times are kept")
    add("--jobs", type=int, default=2, help="processes of one thread each, 2 unless told")
    add("--out", type=Path, default=Path("study.json"), help="where each run is a line")
    add("--anew", nargs="+", default=[], metavar="MODEL", help="forget what these did in --out, and run them again")
    add("--check", action="store_true", help="see whether some short runs of ours still give the published numbers")
    add("--list", action="store_true", help="say which tables and models there are, and run nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
