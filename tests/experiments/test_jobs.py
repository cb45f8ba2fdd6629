"""Jobs that go on where they were ended: by a real kill, a line cut off, other settings, older sources."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace

import pytest

from fracdnn.experiments import stamp
from fracdnn.experiments.jobs import Jobs
from fracdnn.experiments.part import Part
from fracdnn.experiments.parts import PARTS
from fracdnn.experiments.records import whole_lines
from fracdnn.experiments.results import finished, write_result


@dataclass(frozen=True)
class Settings:
    values: tuple[int, ...] = (1, 2, 3, 4)
    factor: int = 10


def jobs(settings):
    return [{"value": value} for value in settings.values]


def work(settings, perfume, job):
    return {"result": settings.factor * job["value"]}


def failing(settings, perfume, job):
    if job["value"] == 3:
        raise ArithmeticError("the third")
    return work(settings, perfume, job)


def part(work=work, full=None):
    nothing = list
    return Part("p", "t", 1, full or Settings(), Settings((1,)), jobs, work, nothing, nothing, nothing)


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    monkeypatch.setattr("fracdnn.experiments.jobs.sources_of", lambda part: "hash")
    monkeypatch.setattr("fracdnn.experiments.results.sources_of", lambda part: "hash")


def run(settings, path, work=work):
    ticks = []
    found = Jobs(part(work), settings, path)
    return found.n_done, found.run(None, lambda: ticks.append(0)), len(ticks)


def test_what_was_done_is_not_done_again(tmp_path):
    path = tmp_path / "p.jsonl"
    with pytest.raises(ArithmeticError):
        run(Settings(), path, failing)
    assert [line["job"]["value"] for line in whole_lines(path)[1:]] == [1, 2]
    with path.open("a", encoding="utf-8") as file:
        file.write('{"job": {"value": 3}, "fou')  # cut off
    n_done, numbers, n_ticks = run(Settings(), path)
    assert (n_done, n_ticks) == (2, 2)
    assert numbers == {"runs": [{"value": k, "result": 10 * k} for k in (1, 2, 3, 4)]}
    assert run(Settings(), path)[0] == 4


@pytest.mark.parametrize("change", ["settings", "sources"])
def test_other_settings_and_older_sources_begin_anew(tmp_path, monkeypatch, change):
    path, settings = tmp_path / "p.jsonl", Settings()
    run(settings, path)
    if change == "settings":
        settings = replace(settings, factor=11)
    else:
        monkeypatch.setattr("fracdnn.experiments.jobs.sources_of", lambda part: "other")
    n_done, numbers, _ = run(settings, path)
    assert n_done == 0
    assert numbers["runs"][0]["result"] == settings.factor


def test_a_finished_result_is_taken_as_it_is(tmp_path, monkeypatch):
    path = tmp_path / "p.json"
    numbers = {"runs": [{"value": 1, "result": "ä"}, {"value": 2, "result": 20}]}
    write_result(path, part(), numbers, quick=False, seconds=1.0)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["numbers"] == numbers == finished(path, part(), quick=False)
    assert document["settings"] == {"values": [1, 2, 3, 4], "factor": 10}
    assert document["versions"]["torch"]
    assert len(document["commit"].rstrip("+")) == 40
    assert finished(path, part(), quick=True) is None  # of other settings
    assert finished(path, part(full=Settings(factor=1)), quick=False) is None
    monkeypatch.setattr("fracdnn.experiments.results.sources_of", lambda part: "other")
    assert finished(path, part(), quick=False) is None


def test_results_that_today_gives_too_are_told_by_running_some_again():
    numbers = {"runs": [{"value": k, "result": 10 * k} for k in (1, 2, 3, 4)]}
    assert stamp.checked(part(), numbers, None, 2) == [{"value": 1}, {"value": 4}]
    assert stamp.checked(part(), numbers, None, 9) == jobs(Settings())
    numbers["runs"][3]["result"] += 1
    assert stamp.checked(part(), numbers, None, 2) is None
    assert stamp.checked(part(), {"runs": numbers["runs"][:3]}, None, 2) is None
    chaotic = replace(part(), is_chaotic=lambda job: job["value"] == 4)
    assert stamp.checked(chaotic, numbers, None, 2) == [{"value": 1}, {"value": 3}]
    assert stamp.checked(replace(part(), is_chaotic=lambda job: True), numbers, None, 2) is None


def test_a_command_that_is_killed_goes_on_from_there(tmp_path):
    """SIGKILL at a moment that its own file shows; the second run does the rest, and its result is the same."""
    command = [sys.executable, "-m", "fracdnn", "reproduce", "refinement", "--quick", "--out", str(tmp_path)]
    environment = {**os.environ, "LOKY_MAX_CPU_COUNT": "1"}
    path = tmp_path / "refinement.jsonl"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        while len(whole_lines(path)) < 3:
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    before = whole_lines(path)
    assert not (tmp_path / "refinement.json").exists()
    n_wanted = len(PARTS["refinement"].jobs(PARTS["refinement"].quick))
    assert 2 <= len(before) - 1 < n_wanted
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert f"{n_wanted}/{n_wanted}" in done.stderr
    assert not path.exists()
    runs = json.loads((tmp_path / "refinement.json").read_text(encoding="utf-8"))["numbers"]["runs"]
    assert len(runs) == n_wanted
    for line in before[1:]:
        assert {**line["job"], **line["found"]} in runs


def test_every_part_has_jobs_of_its_own_and_a_module_that_runs_them():
    for each in PARTS.values():
        for settings in (each.full, each.quick):
            found = [json.dumps(job, sort_keys=True) for job in each.jobs(settings)]
            assert len(found) == len(set(found)) > 0
        assert each.work.__module__.startswith("fracdnn.experiments.")
        assert ".shown." not in each.work.__module__
    assert sum(each.minutes for each in PARTS.values()) <= 60
