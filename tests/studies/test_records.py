"""The record keeper of all studies: what is done is kept, what made it is told, digits are compared."""

import json
import math

import pytest
import torch

import fracdnn
from records.checking import Again, differences, holds, sample
from records.keeping import Records, made_with, read_file, write_file
from records.pages import fill_page, filled
from records.processes import DIED, in_processes
from tests.studies.light_jobs import upper

MADE = {"commit": "abc", "versions": {"torch": "2"}, "machine": {"cores": 2}}
OTHER = {**MADE, "commit": "abd"}


def run(seed, value, made=MADE):
    return {"seed": seed, "value": value, "made_with": made}


# Files.


def test_runs_are_kept_and_found_again(tmp_path):
    path = tmp_path / "results" / "a.json"
    records = Records(path, ["seed"], settings={"sizes": (1, 2)})
    records.add(run(0, 1.5))
    records.add(run(1, "ä", OTHER), run(2, [0.1]))
    again = Records(path, ["seed"], settings={"sizes": [1, 2]})
    assert again.runs == [run(0, 1.5), run(1, "ä", OTHER), run(2, [0.1])]
    assert again.get({"seed": 2, "more": 3})["value"] == [0.1]
    assert again.get({"seed": 3}) is None
    again.add(run(0, 2.5, OTHER))
    assert [each["value"] for each in read_file(path)[1]] == [2.5, "ä", [0.1]]
    again.arrange([{"seed": 2}, {"seed": 9}, {"seed": 0}])
    assert read_file(path) == ({"settings": {"sizes": [1, 2]}}, [run(2, [0.1]), run(0, 2.5, OTHER)])


def test_a_file_has_a_line_for_each_run_and_each_maker_once(tmp_path):
    write_file(tmp_path / "a.json", {}, [run(0, 1), run(1, 2, OTHER), run(2, 3)])
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert '  {"seed": 1, "value": 2, "made_with": 1},\n' in text
    document = json.loads(text)
    assert document["made"] == [MADE, OTHER]
    assert [each["made_with"] for each in document["runs"]] == [0, 1, 0]
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_file(tmp_path / "a.json", {}, [run(0, math.nan)])
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == text


def test_runs_of_other_settings_are_refused(tmp_path):
    path = tmp_path / "a.json"
    Records(path, ["seed"], settings={"size": 1}).add(run(0, 1))
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"a\.json holds runs with other settings; delete it, or pass another folder"):
        Records(path, ["seed"], settings={"size": 2})
    assert path.read_bytes() == before


def test_a_run_says_what_made_it():
    made = made_with(["pytest", "a-package-that-nobody-has"])
    assert len(made["commit"].rstrip("+")) == 40
    assert made["versions"]["fracdnn"] == fracdnn.__version__
    assert made["versions"]["pytest"] == pytest.__version__
    assert "a-package-that-nobody-has" not in made["versions"]
    assert made["machine"]["threads"] == torch.get_num_threads()
    assert made["machine"]["processor"]
    json.dumps(made)


def test_outside_a_repository_there_is_no_commit(monkeypatch):
    monkeypatch.setattr("records.keeping.__file__", "/nowhere/records/keeping.py")
    assert made_with()["commit"] is None


# Processes.


def test_a_process_that_dies_takes_no_other_job_with_it():
    found = dict(in_processes(upper, ["a", "dies", "b", "c"], 2))
    assert found == {"a": "A", "b": "B", "c": "C", "dies": DIED}


def test_jobs_may_run_here():
    jobs = iter("ab")
    first = next(in_processes(upper, jobs, 0))
    assert (first, next(jobs)) == (("a", "A"), "b")  # the second is not taken before it is wanted


def test_an_error_of_a_job_is_raised_here():
    with pytest.raises(ArithmeticError, match="no such letter"):
        list(in_processes(upper, ["raises"], 1))


# Pages.


def test_marked_places_are_made_anew_and_nothing_else(tmp_path):
    page = tmp_path / "a.md"
    page.write_text("Before.\n\n<!-- mark a b -->\nold\n<!-- end -->\n<!-- other a -->\nkept\n<!-- end -->\n")

    def make(text):
        return filled(text, "mark", lambda first, second: f"{second}{first}")

    assert fill_page(page, make) == page
    text = page.read_text(encoding="utf-8")
    assert text == "Before.\n\n<!-- mark a b -->\n\nba\n\n<!-- end -->\n<!-- other a -->\nkept\n<!-- end -->\n"
    fill_page(page, make, tmp_path / "b.md")
    assert (tmp_path / "b.md").read_text(encoding="utf-8") == page.read_text(encoding="utf-8") == text


# Checks.


@pytest.mark.parametrize(("count", "expected"), [(1, "a"), (2, "ae"), (3, "ace"), (9, "abcde")])
def test_a_sample_has_both_ends(count, expected):
    assert sample("abcde", count) == list(expected)
    assert sample("", count) == []


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({"x": 1.0 + 1e-12, "y": [1, 2], "z": "a"}, []),
        ({"x": 1.0 + 1e-6}, ["x 1.0 -> 1.000001"]),
        ({"y": [1, 3]}, ["y 2 -> 3"]),
        ({"y": [1]}, ["y, length 2 -> 1"]),
        ({"z": "b", "new": None}, ["z a -> b"]),
        ({"new": 1}, ["new None -> 1"]),
        ({"tiny": 1.1e-10}, ["tiny 1e-10 -> 1.1e-10"]),
    ],
)
def test_digits_are_compared(now, expected):
    before = {"x": 1.0, "y": [1, 2], "z": "a", "tiny": 1e-10, "gone": 1}
    assert list(differences(before, now, [])) == expected


def again(before, now, alike=(), **more):
    return Again(
        "job", {"value": before, "made_with": MADE}, {"value": now}, [{"value": each} for each in alike], **more
    )


@pytest.mark.parametrize(
    ("rerun", "made", "good"),
    [
        (again(1.0, 1.0), MADE, True),
        (again(1.0, 1.001), MADE, False),
        (again(1.0, 1.001), OTHER, False),  # another commit is no excuse
        (again(1.0, 1.001), {**MADE, "machine": {"cores": 3}}, True),
        (again(1.0, 1.04), {**MADE, "machine": {"cores": 3}}, False),
        (again(1.0, 1.4, [1.0, 1.2]), {**MADE, "machine": {"cores": 3}}, True),
        (again(1.0, 1.5, [1.0, 1.2]), {**MADE, "machine": {"cores": 3}}, False),
        (again(1.0, 1.4, [1.0, 1.2]), MADE, False),
        (again(1.0, 1.4, [1.0, 1.2], is_chaotic=True), MADE, True),
        (again("done", "failed", ["done"]), {**MADE, "versions": {}}, False),
    ],
)
def test_results_hold_to_the_last_digits_here_and_in_kind_elsewhere(rerun, made, good, capsys):
    assert holds("study", [again(2.0, 2.0), rerun], made) == good
    told = capsys.readouterr().out
    assert ("study: 2 runs again, " in told) == good
    assert (f"study, job: value {rerun.before['value']} -> {rerun.now['value']}\n" == told) != good
