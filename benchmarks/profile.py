"""Where a training spends its time: the stack is looked at a thousand times a second."""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import fracdnn

PACKAGE = Path(fracdnn.__file__).parent
INTERVAL = 0.001
SHARES = ("value and gradient", "BFGS linear algebra", "line search", "mini-batches and records")


def shares(run: Callable[[], Any]) -> dict[str, float]:
    """The share of time of each of `SHARES` while `run` runs."""
    seen: Counter[str] = Counter()

    def look(number: int, frame: FrameType | None) -> None:
        seen[_kind(frame)] += 1

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)
    try:
        run()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    total = max(1, seen.total())
    return {kind: seen[kind] / total for kind in SHARES}


def _kind(frame: FrameType | None) -> str:
    """By the innermost frame that belongs to one of the kinds."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            place = path.relative_to(PACKAGE).as_posix()
            if place.startswith("optim/") and frame.f_code.co_name in ("_direction", "_update"):
                return "BFGS linear algebra"
            if place.startswith("optim/"):
                return "line search"
            if frame.f_code.co_name == "closure":
                return "value and gradient"
            if place in ("training/run.py", "training/records.py"):
                return "mini-batches and records"
        frame = frame.f_back
    return "mini-batches and records"
