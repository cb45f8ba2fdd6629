"""Runs of a study in one JSON file: what they share, what made them, and a line for each."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from fracdnn.files import write_whole
from fracdnn.version import versions

Record = dict[str, Any]


class Records:
    """Runs by the values of `fields`. The file is written whole after each run, so that no end at any time loses one.

    `header` is what all runs share, such as their settings; a file with another one is refused.
    """

    def __init__(self, path: Path, fields: Sequence[str], **header: Any) -> None:
        self.path, self.fields = path, tuple(fields)
        self.header, runs = read_file(path)
        for name, value in plain(header).items():
            if self.header.setdefault(name, value) != value:
                raise ValueError(f"{path} holds runs with other {name}; delete it, or pass another folder as --out")
        self._runs = {self.key(run): run for run in runs}

    def key(self, job: Record) -> str:
        return json.dumps([job.get(field) for field in self.fields])

    @property
    def runs(self) -> list[Record]:
        return list(self._runs.values())

    def get(self, job: Record) -> Record | None:
        """The run of a job, if there is one."""
        return self._runs.get(self.key(job))

    def add(self, *runs: Record) -> None:
        """Keep runs, in the place of earlier ones of the same jobs."""
        self._runs.update((self.key(run), plain(run)) for run in runs)
        write_file(self.path, self.header, self.runs)

    def arrange(self, jobs: Iterable[Record]) -> None:
        """Keep the runs of these jobs alone, in this order."""
        keys = [self.key(job) for job in jobs]
        self._runs = {key: self._runs[key] for key in keys if key in self._runs}
        write_file(self.path, self.header, self.runs)


def read_file(path: Path) -> tuple[Record, list[Record]]:
    """Header and runs, nothing of both where there is no file. A run's "made_with" is its place in the list `made`."""
    if not path.exists():
        return {}, []
    header = json.loads(path.read_text(encoding="utf-8"))
    made, runs = header.pop("made"), header.pop("runs")
    return header, [{**run, "made_with": made[run["made_with"]]} for run in runs]


def write_file(path: Path, header: Record, runs: Iterable[Record]) -> None:
    """A line for each run: short files, readable differences."""
    made: list[Record] = []
    lines = []
    for run in runs:
        if run["made_with"] not in made:
            made.append(run["made_with"])
        line = {**run, "made_with": made.index(run["made_with"])}
        lines.append(json.dumps(line, ensure_ascii=False, allow_nan=False))
    text = json.dumps({**header, "made": made, "runs": []}, indent=1, ensure_ascii=False).removesuffix("[]\n}")
    text += "[\n  " + ",\n  ".join(lines) + "\n ]\n}\n"
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def plain(value: Any) -> Any:
    """As it comes back from JSON."""
    return json.loads(json.dumps(value))


def made_with(packages: Iterable[str] = ()) -> Record:
    """Commit, versions and machine; also the versions of those packages that are installed."""
    found = versions()
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return {"commit": commit(), "versions": found, "machine": machine()}


def commit() -> str | None:
    """The commit of these sources, with "+" where they differ from it; None outside a repository."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    questions = ["rev-parse", "HEAD"], ["status", "--porcelain", "--", "*.py"]
    try:
        answers = [subprocess.check_output([*git, *words], text=True, stderr=subprocess.PIPE) for words in questions]
    except (OSError, subprocess.CalledProcessError):
        return None
    return answers[0].strip() + ("+" if answers[1] else "")


def machine() -> Record:
    """Processor, cores, memory and system, as far as the system tells."""
    files = [path for path in map(Path, ("/proc/cpuinfo", "/proc/meminfo")) if path.exists()]
    told = "".join(path.read_text(encoding="utf-8") for path in files)
    model, memory = re.search(r"^model name\s*: (.*)", told, re.M), re.search(r"^MemTotal: *(\d+)", told, re.M)
    return {
        "processor": model[1].strip() if model else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(int(memory[1]) / 2**20) if memory else None,
        "system": platform.system(),
        **({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
    }
