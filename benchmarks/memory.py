"""Peak memory of one rival, in a process of its own: `python -m benchmarks.memory GROUP CASE RIVAL [--quick]`.

The rival runs twice. The first run gets what stays: compiled code, threads, weights that are kept. What it has freed is
then given back to the system, the process's high-water mark is set down to what it holds, and the second run's rise
counts.

Measured twice: as the system's allocator has it, which is what a user sees and depends on how the heap is cut up; and
"live", with freed blocks given back at once, which is what the rival needs. They can differ several times over: an
allocator cannot reuse holes for blocks that grow from step to step.
"""

import argparse
import ctypes
import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.case import Case, Options
from benchmarks.registry import find_case

# For glibc: blocks of four pages and more are mapped and unmapped one by one. For mimalloc, which torch has on ARM:
# what is freed is given back at once.
_LIVE = {
    "MALLOC_MMAP_THRESHOLD_": "16384",
    "MALLOC_TRIM_THRESHOLD_": "16384",
    "MALLOC_MMAP_MAX_": "60000",
    "MIMALLOC_PURGE_DELAY": "0",
}
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_memory(group: str, case: str, rival: str, options: Options, *, live: bool = False) -> float | None:
    """MiB that a run takes at most; None where the system does not tell."""
    arguments = [group, case, rival, *(["--quick"] if options.quick else [])]
    if options.perfume is not None:
        arguments += ["--perfume", str(options.perfume)]
    command = [sys.executable, "-m", "benchmarks.memory", *arguments]
    child = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(_LIVE if live else {})})
    return float(child.stdout) if child.returncode == 0 else None


def measured(case: Case, rival_name: str) -> float:
    """MiB that a second run adds to this process at most."""
    if case.threads:
        torch.set_num_threads(case.threads)
    rival = case.rivals[rival_name](case.build())
    rival.prepare()
    (rival.rehearse or rival.run)()
    rival.prepare()
    _give_back()
    _CLEAR.write_text("5", encoding="ascii")
    before = _mebibytes("VmRSS")
    rival.run()
    return _mebibytes("VmHWM") - before


def _give_back() -> None:
    """Free memory back to the system: glibc's when told, mimalloc's some milliseconds later, when it is next asked."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    for _ in range(10):
        time.sleep(0.03)
        torch.empty(2**22)  # never touched, so it takes no memory itself


def _mebibytes(name: str) -> float:
    return int(_STATUS.read_text(encoding="ascii").split(f"{name}:")[1].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("group", "case", "rival"):
        parser.add_argument(name)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--perfume", type=Path)
    told = parser.parse_args()
    case = find_case(told.group, told.case, Options(told.quick, told.perfume))
    print(measured(case, told.rival))


if __name__ == "__main__":
    main()
