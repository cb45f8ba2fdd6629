"""Run a case: check every rival's numbers, then let the right ones take turns against the clock."""

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from benchmarks.case import Case, Options, Rival

Say = Callable[[str], None]
# What tells records of cases apart.
FIELDS = ("group", "name")


def run_case(group_name: str, case: Case, options: Options, say: Say = lambda text: None) -> dict[str, Any]:
    """What JSON can hold of a case: each rival's status, error, seconds of all turns, peak memory in MiB, notes."""
    with _threads(case.threads) as threads:
        problem = case.build()
        try:
            outcomes, rivals = _checked(case, problem, say)
            say("timing")
            seconds = timed(case, rivals)
            for name, found in seconds.items():
                outcomes[name].update(seconds=found, notes=rivals[name].notes())
        finally:
            getattr(problem, "close", lambda: None)()
    del problem, rivals
    gc.collect()
    for name in case.memory:
        from benchmarks.memory import peak_memory  # which knows every case, and so needs every package

        if outcomes[name]["status"] == "timed":
            say(f"memory of {name}")
            outcomes[name]["memory"] = peak_memory(group_name, case.name, name, options)
            if case.live_memory:
                outcomes[name]["live_memory"] = peak_memory(group_name, case.name, name, options, live=True)
    return {
        "group": group_name,
        "name": case.name,
        "settings": dict(case.settings),
        "threads": threads,
        "rivals": outcomes,
        "targets": [asdict(target) for target in case.targets],
    }


def outcomes_of(case: Case) -> dict[str, dict[str, Any]]:
    """Status and error of each rival; nothing is timed."""
    with _threads(case.threads):
        problem = case.build()
        try:
            return _checked(case, problem, lambda text: None)[0]
        finally:
            getattr(problem, "close", lambda: None)()


def _checked(case: Case, problem: Any, say: Say) -> tuple[dict[str, dict[str, Any]], dict[str, Rival]]:
    """What is known of each rival before any clock runs, and those that may be timed."""
    outcomes: dict[str, dict[str, Any]] = {}
    rivals: dict[str, Rival] = {}
    for name, make in case.rivals.items():
        say(f"checking {name}")
        try:
            rival = make(problem)
        except ImportError as error:
            outcomes[name] = {"status": "not installed", "why": str(error)}
            continue
        outcomes[name] = judged(rival)
        if outcomes[name]["status"] == "timed":
            rivals[name] = rival
    return outcomes, rivals


def judged(rival: Rival) -> dict[str, Any]:
    """Whether a rival's numbers are right, and how far off they are."""
    try:
        error = float(rival.error())
    except Exception as failure:  # a peer may fail in any way; that is a result, not the end of the run
        return {"status": "failed", "why": f"{type(failure).__name__}: {failure}"[:300]}
    found: dict[str, Any] = {"error": error if math.isfinite(error) else None, "tolerance": rival.tolerance}
    if error <= rival.tolerance:
        return {"status": "timed", **found}
    return {"status": "wrong", "why": f"error {error:.1e} exceeds {rival.tolerance:.0e}: not timed", **found}


def timed(case: Case, rivals: dict[str, Rival]) -> dict[str, list[float]]:
    """Seconds of all counted turns; in each the rivals go one after the other, so that the machine's moods hit all."""
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    with _only_new_garbage():
        _take_turns(case, rivals, seconds)
    return seconds


def _take_turns(case: Case, rivals: dict[str, Rival], seconds: dict[str, list[float]]) -> None:
    for turn in range(1 - case.warm_turns, case.turns + 1):
        gc.collect()
        for name, rival in rivals.items():
            if turn > case.limits.get(name, case.turns):
                continue
            for _ in range(case.settle):
                rival.prepare()
                rival.run()
            found = _once(rival)
            if turn > 0:
                seconds[name].append(found)


def _once(rival: Rival) -> float:
    rival.prepare()
    start = time.perf_counter()
    told = rival.run()
    taken = time.perf_counter() - start
    return float(told) if rival.tells_seconds else taken


@contextmanager
def _only_new_garbage() -> Iterator[None]:
    """What is there already is not looked through for garbage again before each turn."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _threads(wanted: int | None) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(wanted or before)
    try:
        yield wanted or before
    finally:
        torch.set_num_threads(before)
