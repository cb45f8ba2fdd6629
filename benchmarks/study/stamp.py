"""`python -m benchmarks.study.stamp [--runs N]`: runs of older sources of ours that the sources of today still give.

Of the runs in docs/results/study.json that older sources made on a CPU with default settings, N at equal distances are
made again. If all give the same measures, to the six digits that are kept, every run of ours says that it is confirmed
with today's sources, runs on a GPU among them; else nothing is written, and ours have to run anew.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.study.models import MODELS
from benchmarks.study.page import DOCS, read_results, write_results
from benchmarks.study.records import run_of
from benchmarks.study.runner import results
from benchmarks.study.runs import SECONDS, Record, begun_record, failed, measured

N_RUNS = 12


def to_repeat(records: Sequence[Record], current: str, n_runs: int) -> list[Record]:
    """Runs of ours on a CPU, the shorter half of them, from the shortest to the median at equal distances."""
    ours = [record for record in records if _is_old(record, current) and _can_repeat(record)]
    quick = sorted(ours, key=lambda record: record["fit_seconds"])[: (len(ours) + 1) // 2]
    places = {round(k * (len(quick) - 1) / max(1, n_runs - 1)) for k in range(n_runs)} if quick else set()
    return [quick[place] for place in sorted(places)]


def _is_old(record: Record, current: str) -> bool:
    return run_of(record).base.is_ours and current not in (record["made_with"], record.get("confirmed_with"))


def _can_repeat(record: Record) -> bool:
    return record["model"] in MODELS and record["status"] == "done" and "device" not in record


def differences(before: Record, again: Record) -> str:
    """What a run gives now that it did not give before; empty where nothing."""
    changes = [
        f"{name} {before[name]} -> {again.get(name, again.get('error'))}"
        for name in _measures(before)
        if again.get(name) != before[name]
    ]
    return f"{before['model']} on {before['table']}, seed {before['seed']}: {', '.join(changes)}" if changes else ""


def _measures(record: Record) -> list[str]:
    said = {"table", "model", "seed", "made_with", "status", "confirmed_with", "run_again", *SECONDS}
    return [name for name in record if name not in said]


def confirmed(records: Sequence[Record], repeated: Sequence[Record], current: str) -> list[Record]:
    again = [run_of(record) for record in repeated]
    return [
        {**record, "confirmed_with": current, "run_again": run_of(record) in again}
        if _is_old(record, current)
        else record
        for record in records
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=N_RUNS, help=f"how many are made again ({N_RUNS})")
    parser.add_argument("--jobs", type=int, default=2, help="processes of one thread each (2)")
    parser.add_argument("--docs", type=Path, default=DOCS, help="a folder with results/study.json (docs)")
    told = parser.parse_args(argv)
    path = told.docs / "results" / "study.json"
    records, current = read_results(path), MODELS["fractional"].made_with()
    repeated = to_repeat(records, current, told.runs)
    if not repeated:
        print("no run of ours is old, or none that can be made again here")
        return 0
    by_run = {run_of(record): record for record in repeated}
    again = results(measured, by_run, told.jobs, lambda run, why: failed(begun_record(run), why))
    changes = [change for run, record in again if (change := differences(by_run[run], record))]
    if changes:
        print(*changes, sep="\n")
        print(f"{len(changes)} of {len(repeated)} runs are not the same: run ours anew")
        return 1
    write_results(path, confirmed(records, repeated, current))
    print(f"{len(repeated)} runs again, all the same; confirmed with {current}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
