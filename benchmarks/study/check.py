"""Whether our estimators still give the published numbers: short runs on a CPU with default settings again."""

from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from benchmarks.study.models import MODELS
from benchmarks.study.runs import SECONDS, Record, Run, measured
from benchmarks.study.tables import tables
from records.checking import Again, holds, sample
from records.keeping import made_with, read_file
from records.processes import in_processes

N_RUNS = 12


def check_study(path: Path, processes: int) -> bool:
    published = read_file(path)[1]
    return holds("study", _again(published, to_repeat(published, N_RUNS, tables()), processes), made_with())


def to_repeat(records: Sequence[Record], n_runs: int, tables_here: Container[str]) -> list[Record]:
    """Of ours on tables that are here, the shorter half, from the shortest to the median at equal distances."""
    ours = [record for record in records if _can_repeat(record) and record["table"] in tables_here]
    quick = sorted(ours, key=lambda record: record["fit_seconds"])[: (len(ours) + 1) // 2]
    return sample(quick, n_runs)


def _can_repeat(record: Record) -> bool:
    is_default = record["model"] in MODELS and MODELS[record["model"]].is_ours
    return is_default and record["status"] == "done" and "device" not in record


def _again(published: Sequence[Record], chosen: Sequence[Record], processes: int) -> Iterator[Again]:
    by_run = {Run.of(record): record for record in chosen}
    for run, found in in_processes(measured, by_run, processes):
        now = {name: value for name, value in found.items() if name not in SECONDS}
        alike = [each for each in published if (each["table"], each["model"]) == (run.table, run.model)]
        yield Again(str(run), by_run[run], now, [{**each, "seed": run.seed} for each in alike])
