"""The results as one JSON file, written whole after each case, so that an end at any time loses no case."""

import json
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from fracdnn.files import write_whole
from fracdnn.version import versions

PACKAGES = ("numba", "torchdiffeq", "fdeint", "pycaputo", "torchode")
Record = dict[str, Any]


def made_with() -> dict[str, Any]:
    """Machine and versions; kept with each case, since a file may hold cases of several runs."""
    packages = versions()
    for name in PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = "not installed"
    return {"machine": machine(), "versions": packages}


def machine() -> dict[str, Any]:
    """Processor, cores, memory and system, as far as the system tells."""
    cpu, memory = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    models = [line.partition(":")[2].strip() for line in _lines(cpu) if line.startswith("model name")]
    total = [int(line.split()[1]) / 2**20 for line in _lines(memory) if line.startswith("MemTotal")]
    return {
        "processor": models[0] if models else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(total[0]) if total else None,
        "system": platform.system(),
        **({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
    }


def read_results(path: Path) -> dict[str, Record]:
    """Cases by "group/name", in the order of the file; nothing where there is no file."""
    if not path.exists():
        return {}
    records = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return {f"{record['group']}/{record['name']}": record for record in records}


def write_results(path: Path, records: Iterable[Record]) -> None:
    text = json.dumps({"cases": list(records)}, indent=1, ensure_ascii=False) + "\n"
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
