"""Parts that go on where they were ended, by an error or a real kill, and published results that are whole and hold."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from records.keeping import plain, read_file, write_file
from reproduction.check import check_part
from reproduction.part import Part
from reproduction.parts import PARTS
from reproduction.running import PartRuns

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"


@dataclass(frozen=True)
class Settings:
    values: tuple[int, ...] = (1, 2, 3, 4)
    factor: int = 10


def jobs(settings):
    return [{"value": value, "seed": seed} for value in settings.values for seed in range(3)]


def work(settings, perfume, job):
    return {"result": settings.factor * job["value"] + job["seed"] / 10}


def failing(settings, perfume, job):
    if job == {"value": 1, "seed": 2}:
        raise ArithmeticError("the third")
    return work(settings, perfume, job)


def part(work=work, full=None, **more):
    nothing = list
    return Part("p", "t", 1, full or Settings(), Settings((1,)), jobs, work, nothing, nothing, nothing, **more)


def test_what_was_done_is_not_done_again(tmp_path):
    with pytest.raises(ArithmeticError):
        list(PartRuns(part(failing), tmp_path).run(None, 0))
    assert [run["seed"] for run in read_file(tmp_path / "p.json")[1]] == [0, 1]
    runs = PartRuns(part(), tmp_path)
    assert list(runs.run(None, 0)) == jobs(Settings())[2:]
    assert runs.numbers == {"runs": [{**job, **work(Settings(), None, job)} for job in jobs(Settings())]}
    header, kept = read_file(tmp_path / "p.json")
    assert header["setting"] == "the paper's"
    assert header["settings"] == {"values": [1, 2, 3, 4], "factor": 10}
    assert header["seconds"] >= 0
    assert all(run["made_with"]["versions"]["torch"] for run in kept)
    assert PartRuns(part(), tmp_path).left == []
    with pytest.raises(ValueError, match="holds runs with other settings; delete it"):
        PartRuns(part(), tmp_path, quick=True)
    with pytest.raises(ValueError, match="holds runs with other settings; delete it"):
        PartRuns(part(full=Settings(factor=11)), tmp_path)


def test_published_numbers_are_checked_by_running_some_again(tmp_path, capsys):
    list(PartRuns(part(), tmp_path).run(None, 0))
    assert check_part(part(), tmp_path, None, 0)
    assert capsys.readouterr().out == "p: 6 runs again, the same numbers\n"
    header, runs = read_file(tmp_path / "p.json")
    runs[-1]["result"] += 100
    write_file(tmp_path / "p.json", header, runs)
    assert not check_part(part(), tmp_path, None, 0)
    assert capsys.readouterr().out == "p, {'value': 4, 'seed': 2}: result 140.2 -> 40.2\n"
    runs[-1]["result"] -= 100.1  # another number, but one that a seed could give
    write_file(tmp_path / "p.json", header, runs)
    assert not check_part(part(), tmp_path, None, 0)
    assert check_part(part(is_chaotic=lambda job: job["value"] == 4), tmp_path, None, 0)
    write_file(tmp_path / "p.json", header, runs[:-1])
    with pytest.raises(ValueError, match=r"p\.json lacks .*; run python -m reproduction p"):
        check_part(part(), tmp_path, None, 0)


def test_a_command_that_is_killed_goes_on_from_there(tmp_path):
    """SIGKILL at a moment that its own file shows; the second run does the rest, and keeps the first to the letter."""
    arguments = ["refinement", "--quick", "--jobs", "0", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "reproduction", *arguments]
    path = tmp_path / "refinement.json"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT) as process:
        while len(read_file(path)[1]) < 3:
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    before = read_file(path)[1]
    n_wanted = len(PARTS["refinement"].jobs(PARTS["refinement"].quick))
    assert 3 <= len(before) < n_wanted
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert f"{n_wanted}/{n_wanted}" in done.stderr
    runs = read_file(path)[1]
    assert len(runs) == n_wanted
    assert all(run in runs for run in before)


def test_ctrl_c_keeps_what_is_done(tmp_path):
    """A real signal, with runs in processes of their own under way; the message says how to go on."""
    command = [sys.executable, "-m", "reproduction", "nonsmooth", "--quick", "--jobs", "1", "--out", str(tmp_path)]
    path = tmp_path / "nonsmooth.json"
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        while not read_file(path)[1]:
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        told = process.stderr.read()
    assert process.returncode == 130
    assert told.splitlines()[-1] == "interrupted; what is done is kept, and the same command goes on"
    assert "Traceback" not in told
    assert read_file(path)[1]


def test_every_part_has_jobs_of_its_own_and_a_module_that_runs_them():
    for each in PARTS.values():
        for settings in (each.full, each.quick):
            found = [json.dumps(job, sort_keys=True) for job in each.jobs(settings)]
            assert len(found) == len(set(found)) > 0
        assert each.work.__module__.startswith("reproduction.")
        assert ".shown." not in each.work.__module__
    assert sum(each.minutes for each in PARTS.values()) <= 75


@pytest.mark.parametrize("name", PARTS)
def test_published_results_are_whole(name):
    """All jobs of the paper's settings, in their order. Whether they still hold, `make check-results` says."""
    published = PartRuns(PARTS[name], RESULTS)
    assert published.records.header["setting"] == "the paper's"
    keys = published.records.key
    assert [keys(run) for run in published.records.runs] == [keys(job) for job in plain(published.jobs)]
    assert all(run["made_with"]["commit"] and run["made_with"]["versions"] for run in published.records.runs)
    assert published.records.header["seconds"] / 2 <= 60 * PARTS[name].minutes
