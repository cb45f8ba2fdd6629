"""Random changes to good files, tried in a process of its own: a crash, a hang and a flood of memory are findings too.

A subject is a module with

    ready(folder)           writes good files into the folder and returns what the others need
    draw(world, random)     a case: the name of a good file and a list of changes, [kind, numbers and texts …]
    problem(world, case)    None, or what is wrong with how the changed file is taken: a title, then more lines
    undamaged(world)        cases without changes, to warm up

`python -m tests.campaign.shards SUBJECT FIRST COUNT SEED FOLDER` tries COUNT cases from FIRST on, shrinks those that
fail and notes them in the folder. `tried` starts that, watches it, and returns what it found.
"""

import contextlib
import importlib
import json
import os
import random
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Beyond what the process takes before it starts.
MOST_MEMORY = 1_000_000_000
# What one small file may add, in kB; what it may take, in seconds.
MOST_GROWTH, MOST_SECONDS = 64_000, 10.0
MOST_FINDINGS = 12
HANGS_AFTER = 120.0


def case_of(subject, world, seed, number):
    return subject.draw(world, random.Random(f"{seed} {number}"))


def judged(subject, world, case):
    """What is wrong with a case, memory and time included."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    found = subject.problem(world, case)
    grown, taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, time.perf_counter() - start
    if found is None and grown > MOST_GROWTH:
        found = f"took memory far beyond the file's size\n{grown / 1000:.0f} MB"
    if found is None and taken > MOST_SECONDS:
        found = f"took too long\n{taken:.1f} s"
    return found


def shrunk(fails, changes, most=300):
    """The fewest and smallest changes that still fail, as far as single steps lead."""
    tries, better = 0, True
    while better and tries < most:
        better = False
        for smaller in _smaller(changes):
            tries += 1
            if fails(smaller):
                changes, better = smaller, True
                break
            if tries >= most:
                break
    return changes


def _smaller(changes):
    """One change less, then one number or text of a change made smaller."""
    if len(changes) > 1:
        yield from (changes[:k] + changes[k + 1 :] for k in range(len(changes)))
    for k, (kind, *values) in enumerate(changes):
        for place, value in enumerate(values):
            options = []
            if isinstance(value, str) and value:
                options = ["", value[: len(value) // 4 * 2], value[:-2]]  # an even number of hexadecimal digits
            elif isinstance(value, int) and value:
                options = [0, value // 2, value - 1]
            for option in options:
                if option != value:
                    yield [*changes[:k], [kind, *values[:place], option, *values[place + 1 :]], *changes[k + 1 :]]


def _title(problem):
    return None if problem is None else problem.splitlines()[0]


def work(subject_name, first, count, seed, folder):
    """Try the cases; findings go to `findings.jsonl`, the case under way to `now.json`."""
    subject = importlib.import_module(subject_name)
    world = subject.ready(folder)
    for case in subject.undamaged(world):
        problem = judged(subject, world, case)
        assert problem is None or problem.startswith("took"), problem
    warnings.simplefilter("error")  # a warning is not one clear error
    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MOST_MEMORY, resource.RLIM_INFINITY))
    now = os.open(folder / "now.json", os.O_RDWR | os.O_CREAT)
    titles = set()
    with (folder / "findings.jsonl").open("a", encoding="utf-8") as findings:
        for number in range(first, first + count):
            name, changes = case_of(subject, world, seed, number)
            text = json.dumps([number, [name, changes]]).encode()
            os.pwrite(now, text + b"\n", 0)
            problem = judged(subject, world, (name, changes))
            if problem is None or _title(problem) in titles:
                continue
            title = _title(problem)
            titles.add(title)
            changes = shrunk(lambda few: _title(judged(subject, world, (name, few))) == title, changes)  # noqa: B023
            findings.write(json.dumps({"number": number, "case": [name, changes], "problem": problem}) + "\n")
            findings.flush()
            if len(titles) >= MOST_FINDINGS:
                break


def tried(subject, first, count, seed, folder):
    """The findings of a shard, as texts that say what is wrong and how to make the file again."""
    folder.mkdir(parents=True, exist_ok=True)
    findings, end = [], first + count
    while first < end and len(findings) < MOST_FINDINGS:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.campaign.shards", subject, *map(str, (first, end - first, seed, folder))],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
        )
        hung = _watched(process, folder / "now.json")
        complaint = process.stderr.read()
        process.stderr.close()
        if process.wait() == 0:
            break
        if not (folder / "now.json").exists():
            raise AssertionError(f"the shard did not begin\n{complaint}")
        number, case = json.loads((folder / "now.json").read_text(encoding="utf-8").splitlines()[0])
        what = "hangs" if hung else f"ends the process with {process.returncode}"
        findings.append(
            _told(subject, seed, {"number": number, "case": case, "problem": f"{what}\n{complaint[-2000:]}"})
        )
        first = number + 1
    noted = folder / "findings.jsonl"
    lines = noted.read_text(encoding="utf-8").splitlines() if noted.exists() else []
    return findings + [_told(subject, seed, json.loads(line)) for line in lines]


def _watched(process, now):
    """Wait for its end; whether it had to be ended because one case took too long."""
    seen, since = None, time.monotonic()
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
        at = now.read_bytes()[:200] if now.exists() else None
        if at != seen:
            seen, since = at, time.monotonic()
        elif time.monotonic() - since > HANGS_AFTER:
            process.kill()
            return True
    return False


def _told(subject, seed, finding):
    name, changes = finding["case"]
    return (
        f"{finding['problem']}\n"
        f"case {finding['number']} of seed {seed}, shrunk; python -c "
        f"\"from {subject} import rebuilt; rebuilt({name!r}, {changes!r}, 'found')\" writes it again"
    )


if __name__ == "__main__":
    work(sys.argv[1], *map(int, sys.argv[2:5]), Path(sys.argv[5]))
