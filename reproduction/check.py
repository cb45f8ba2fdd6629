"""Whether the published numbers still come out: some jobs of each part again."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fracdnn.datasets import Perfume
from records.checking import Again, holds, sample
from records.keeping import Record, made_with, plain
from records.processes import in_processes
from reproduction.part import Job, Part
from reproduction.running import PartRuns, worked

N_STEADY, N_CHAOTIC = 6, 2


def check_part(part: Part, folder: Path, perfume: Perfume | None, processes: int) -> bool:
    """Jobs at equal distances; of those that are chaotic fewer, and only where there are seeds to compare with."""
    return holds(part.name, _again(part, PartRuns(part, folder), perfume, processes), made_with())


def _again(part: Part, published: PartRuns, perfume: Perfume | None, processes: int) -> Iterator[Again]:
    kinds: dict[bool, list[Job]] = {False: [], True: []}
    for job in published.jobs:
        if not part.is_chaotic(job) or len(_alike(published, job)) > 2:
            kinds[part.is_chaotic(job)].append(job)
    chosen = sample(kinds[False], N_STEADY) + sample(kinds[True], N_CHAOTIC)
    for job, found in in_processes(partial(worked, part.work, part.full, perfume), chosen, processes):
        before = published.records.get(job)
        if before is None:
            raise ValueError(f"{published.records.path} lacks {job}; run python -m reproduction {part.name}")
        yield Again(str(job), before, plain(found[0]), _alike(published, job), part.is_chaotic(job))


def _alike(published: PartRuns, job: Job) -> list[Record]:
    """Runs that differ from a job's in seed and rounding alone."""
    kind = {name: value for name, value in job.items() if name not in ("seed", "rounding")}
    return [run for run in published.records.runs if kind.items() <= run.items()]
