"""The runs of a part: kept in its own file as each is done, and shown as numbers and figures."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fracdnn.datasets import Perfume
from fracdnn.report.figures import save_figure
from records.keeping import Record, Records, made_with, read_file
from records.processes import DIED, in_processes
from reproduction.part import Job, Numbers, Part

SETTINGS = {True: "quick, not the paper's", False: "the paper's"}


class PartRuns:
    """A part with its settings: which jobs an earlier run has done, and the rest."""

    def __init__(self, part: Part, folder: Path, *, quick: bool = False) -> None:
        self.part, self.settings = part, part.quick if quick else part.full
        self.jobs = part.jobs(self.settings)
        fields = dict.fromkeys(name for job in self.jobs for name in job)
        header = {"settings": asdict(self.settings), "setting": SETTINGS[quick]}
        self.records = Records(folder / f"{part.name}.json", list(fields), **header)

    @property
    def left(self) -> list[Job]:
        return [job for job in self.jobs if self.records.get(job) is None]

    @property
    def numbers(self) -> Numbers:
        return numbers_of([run for job in self.jobs if (run := self.records.get(job)) is not None])

    def run(self, perfume: Perfume | None, processes: int) -> Iterator[Job]:
        """What is left, each job as it is done."""
        work, left, made = partial(worked, self.part.work, self.settings, perfume), self.left, made_with()
        for job, found in in_processes(work, left, processes):
            if found == DIED:
                raise ChildProcessError(f"{self.part.name}: {DIED} that ran {job}")
            numbers, seconds = found
            self.records.header["seconds"] = round(self.records.header.get("seconds", 0.0) + seconds, 3)
            self.records.add({**job, **numbers, "made_with": made})
            yield job
        if left:
            self.records.arrange(self.jobs)


def worked(work: Callable[..., Numbers], settings: Any, perfume: Perfume | None, job: Job) -> tuple[Numbers, float]:
    """What a job gives, by one thread, and the seconds of a core that it takes."""
    before, begun = torch.get_num_threads(), time.process_time()
    torch.set_num_threads(1)
    try:
        return work(settings, perfume, job), time.process_time() - begun
    finally:
        torch.set_num_threads(before)


def numbers_of(runs: list[Record]) -> Numbers:
    return {"runs": [{name: value for name, value in run.items() if name != "made_with"} for run in runs]}


def read_numbers(path: Path) -> Numbers:
    return numbers_of(read_file(path)[1])


def write_figures(folder: Path, part: Part, numbers: Numbers) -> None:
    """The part's figure as PNG and SVG."""
    figure = part.figure(numbers)
    for suffix in (".png", ".svg"):
        save_figure(folder / f"{part.name}{suffix}", figure)
