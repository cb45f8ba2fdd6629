"""A part's jobs, side by side and one thread each; each is a line in a file as soon as it is done."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fracdnn.datasets import Perfume
from fracdnn.experiments.part import Job, Numbers, Part
from fracdnn.experiments.records import append_line, whole_lines
from fracdnn.experiments.sources import hash_of_module


class Jobs:
    """A part with its settings: which jobs an earlier run has done, kept in `path`, and the rest."""

    def __init__(self, part: Part, settings: Any, path: Path) -> None:
        self.part, self.settings, self.path = part, settings, path
        self._wanted = part.jobs(settings)
        opening = {"part": part.name, "settings": plain(settings), "sources": sources_of(part)}
        lines = whole_lines(path)
        if lines[:1] != [opening]:  # of other settings or older sources
            path.unlink(missing_ok=True)
            lines = []
        elif path.stat().st_size:  # without a line that was cut off
            path.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), encoding="utf-8")
        if not lines:
            append_line(path, opening)
        self._done = {_key(line["job"]): line for line in lines[1:]}

    @property
    def n_done(self) -> int:
        return sum(_key(job) in self._done for job in self._wanted)

    @property
    def n_wanted(self) -> int:
        return len(self._wanted)

    def run(self, perfume: Perfume | None, tick: Callable[[], None]) -> Numbers:
        """What is left; `tick` is called as each is done. Gives the part's numbers."""
        left = [job for job in self._wanted if _key(job) not in self._done]
        arguments = [(self.settings, perfume, job) for job in left]
        for place, seconds, found in in_parallel(self.part.work, arguments):
            line = {"job": left[place], "seconds": round(seconds, 3), "found": found}
            append_line(self.path, line)
            self._done[_key(left[place])] = line
            tick()
        return {"runs": [{**job, **self._done[_key(job)]["found"]} for job in self._wanted]}

    @property
    def seconds(self) -> float:
        """Of a core, for all jobs."""
        return sum(line["seconds"] for line in self._done.values())


def sources_of(part: Part) -> str:
    return hash_of_module(part.work.__module__)


def plain(settings: Any) -> Any:
    """Settings as they come back from JSON."""
    return json.loads(json.dumps(asdict(settings)))


def in_parallel(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, float, Any]]:
    """The place of each tuple of arguments, a core's seconds and the function's result, in the order they are done."""
    from joblib import Parallel, delayed

    jobs = (delayed(_in_one_thread)(place, function, *each) for place, each in enumerate(arguments))
    yield from Parallel(n_jobs=-1, return_as="generator_unordered", batch_size=1)(jobs)


def _key(job: Job) -> str:
    return json.dumps(job, sort_keys=True)


def _in_one_thread(place: int, function: Callable[..., Any], *arguments: Any) -> tuple[int, float, Any]:
    before, begun = torch.get_num_threads(), time.process_time()
    torch.set_num_threads(1)
    try:
        found = function(*arguments)
        return place, time.process_time() - begun, found
    finally:
        torch.set_num_threads(before)
