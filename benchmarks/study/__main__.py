"""Run the study: `python -m benchmarks.study [--half HALF] [--models …] [--seeds …] [--tables …] [--jobs N] …`.

Each run is written at once; the same command goes on where it was ended.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.study.models import MODELS
from benchmarks.study.records import append_record, read_records, run_of, write_records
from benchmarks.study.runner import results
from benchmarks.study.runs import Record, Run, failed, measured
from benchmarks.study.tables import missing_packages, tables

HALVES = ("development", "report")
CONSOLE = Console(stderr=True)


def main(argv: list[str] | None = None) -> int:
    told = _arguments().parse_args(argv)
    chosen, models = _tables(told), _models(told.models)
    if told.list:
        _list(chosen)
        return 0
    records = read_records(told.out)
    records = {run: record for run, record in records.items() if run.model not in told.anew}
    write_records(told.out, records.values())  # without what runs anew, and without a line that was cut off
    runs = [Run(seed, table, model) for seed in told.seeds for table in chosen for model in models]
    waiting = [run for run in runs if run not in records]
    CONSOLE.print(f"{len(runs) - len(waiting)} of {len(runs)} runs are in {told.out}", highlight=False)
    try:
        _run(waiting, told.out, told.jobs)
    except KeyboardInterrupt:
        CONSOLE.print("interrupted; what is done is kept, and the same command goes on (without --anew)")
        return 130
    return 0


def _run(waiting: list[Run], path: Path, processes: int) -> None:
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
        for run, record in results(measured, waiting, processes, _died):
            append_record(path, record)
            progress.update(bar, advance=1, description=_told(record))
            if record["status"] == "failed":
                progress.console.print(f"{run.model} on {run.table}, seed {run.seed}: {record['error']}", style="red")


def _died(run: Run, why: str) -> Record:
    made_with = MODELS[run.model].made_with()
    return failed({"table": run.table, "model": run.model, "seed": run.seed, "made_with": made_with}, why)


def _told(record: Record) -> str:
    run = run_of(record)
    return f"{run.table}, {run.model}, seed {run.seed}: {record.get('fit_seconds', 0):.1f} s"


def _tables(told: argparse.Namespace) -> list[str]:
    for package in missing_packages():
        CONSOLE.print(f"{package} is not installed: its tables are left out")
    known = tables()
    _check("table", told.tables, known)
    return [name for name, table in known.items() if (name in told.tables if told.tables else table.half == told.half)]


def _models(names: list[str]) -> list[str]:
    for name in names:
        if not MODELS[name].is_installed:
            CONSOLE.print(f"{MODELS[name].module} is not installed: {name} is left out")
    return [name for name in names if MODELS[name].is_installed]


def _check(what: str, names: list[str], known: object) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no {what} is called {', '.join(unknown)}; --list names them")


def _list(chosen: list[str]) -> None:
    known = tables()
    for name in chosen:
        table = known[name]
        print(f"{name} ({'classes' if table.of_classes else 'numbers'}, {table.half}, family {table.family})")


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    model = {"choices": list(MODELS), "metavar": "MODEL"}
    parser.add_argument("--half", choices=HALVES, default="development", help="development unless told")
    parser.add_argument("--models", nargs="+", default=list(MODELS), help=", ".join(MODELS), **model)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="splits, 0 unless told")
    parser.add_argument("--tables", nargs="+", default=[], metavar="TABLE", help="these, of either half")
    parser.add_argument("--jobs", type=int, default=2, help="processes of one thread each, 2 unless told")
    parser.add_argument("--out", type=Path, default=Path("study.jsonl"), help="where each run is a line")
    parser.add_argument("--anew", nargs="+", default=[], help="forget the runs of these models, and run them", **model)
    parser.add_argument("--list", action="store_true", help="say which tables there are, and run nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
