"""The benchmark itself: it refuses wrong numbers, keeps what it has, and its page says what its results say."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import gpu, versions
from benchmarks.__main__ import main, run_cases
from benchmarks.case import Case, Group, Options, Rival, Target
from benchmarks.cases.gpu import StackOf
from benchmarks.check import check_group
from benchmarks.measures import number, ratio, seconds_to_reach
from benchmarks.memory import measured
from benchmarks.networks import DefinitionNetwork, PlainNetwork, twin
from benchmarks.page import PAGES, filled
from benchmarks.registry import GROUPS, find_case
from benchmarks.runner import FIELDS, run_case
from benchmarks.tables import TABLES, refused, targets
from benchmarks.ways import definition, distance, double_loop, sum_by_layer
from fracdnn.nn import FractionalNetwork
from records.keeping import Records, read_file

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
QUICK = Options(quick=True)
needs_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")


def command(*arguments, out):
    return [sys.executable, "-m", "benchmarks", *arguments, "--quick", "--out", str(out)]


def by_name(path):
    return {f"{record['group']}/{record['name']}": record for record in read_file(path)[1]}


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


class Squares:
    """A sum of squares, rightly and wrongly; how often each was run is counted."""

    def __init__(self):
        self.x = torch.arange(10.0)
        self.runs = {"right": 0, "wrong": 0, "not a number": 0, "broken": 0}

    def value(self, name):
        self.runs[name] += 1
        right = self.x @ self.x
        return {"right": right, "wrong": 1.01 * right, "not a number": right * float("nan")}[name]

    def rival(self, name):
        return Rival(lambda: self.value(name), lambda: abs(float(self.value(name)) / 285 - 1), tolerance=1e-6)

    def missing(self):
        import a_package_that_nobody_has  # noqa: F401


def squares_case(problem):
    rivals = {name: lambda problem, name=name: problem.rival(name) for name in problem.runs}
    return Case(
        name="ten",
        settings={"numbers": 10},
        build=lambda: problem,
        rivals={**rivals, "missing": Squares.missing},
        turns=3,
        targets=(Target("right / right", "right", "right", at_most=1), Target("wrong / right", "wrong", "right")),
    )


SQUARES = Group("squares", "for these tests", lambda options: [])
ORDER = [{"group": "squares", "name": name} for name in ("ten", "eleven")]


@pytest.fixture
def squares():
    return Squares()


def test_a_rival_with_a_wrong_answer_is_not_timed(squares):
    record = run_case("squares", squares_case(squares), QUICK)
    status = {name: outcome["status"] for name, outcome in record["rivals"].items()}
    assert status == {
        "right": "timed",
        "wrong": "wrong",
        "not a number": "wrong",
        "broken": "failed",
        "missing": "not installed",
    }
    assert squares.runs == {"right": 5, "wrong": 1, "not a number": 1, "broken": 1}  # a check, a warm turn, three turns
    for name, outcome in record["rivals"].items():
        assert ("seconds" in outcome) == (name == "right")
    assert "error 1.0e-02 exceeds 1e-06: not timed" in record["rivals"]["wrong"]["why"]
    json.dumps(record)
    table = refused([record])
    assert "| squares, ten | wrong | wrong | error 1.0e-02" in table
    assert "| missing | not installed | No module named 'a_package_that_nobody_has' |" in table
    assert ratio(record, "wrong", "right") is None


def test_targets_say_reached_miss_and_not_measured(squares):
    record = run_case("squares", squares_case(squares), QUICK)
    record["rivals"]["right"]["seconds"] = [2.0, 2.0, 2.0]
    record["targets"][1]["at_least"] = 3.0
    assert "| right / right | at most 1 | 1.00 | ten | reached |" in targets([record])
    assert "| wrong / right | at least 3 | - | - | not measured |" in targets([record])
    record["rivals"]["wrong"].update(status="timed", seconds=[4.0, 4.0, 4.0])
    assert "| wrong / right | at least 3 | 2.00 | ten | MISS (0 of 1 reached) |" in targets([record])


def work(**points):
    """A record of points (seconds, error), by curve."""
    return {
        "rivals": {
            f"{curve}: {place}": {"status": "timed", "seconds": [seconds], "error": error}
            for curve, found in points.items()
            for place, (seconds, error) in enumerate(found)
        }
    }


def test_the_time_to_reach_an_error_lies_between_settings():
    record = work(ours=[(1.0, 1e-2), (4.0, 1e-6)], peer=[(2.0, 1e-3), (8.0, 1e-5), (1.0, 1e-1)])
    assert seconds_to_reach(record, "ours", 1e-4) == (pytest.approx(2.0), True)
    assert seconds_to_reach(record, "peer", 1e-4) == (pytest.approx(4.0), True)
    assert seconds_to_reach(record, "ours", 0.1) == (1.0, True)
    assert seconds_to_reach(record, "peer", 1e-6) == (8.0, False)
    assert seconds_to_reach(record, "nobody", 1e-4) is None
    assert ratio(record, "peer", "ours", "seconds at 0.0001") == pytest.approx(2.0)
    assert ratio(record, "peer", "ours", "seconds at 1e-06") == pytest.approx(2.0)  # at least
    assert ratio(record, "ours", "peer", "seconds at 1e-06") is None


def test_a_ratio_that_is_only_bounded_from_below_decides_a_target_or_nothing():
    record = work(ours=[(1.0, 1e-7)], peer=[(5.0, 1e-3)])
    target = {"what": "peer / ours", "over": "peer", "under": "ours", "measure": "seconds at 1e-06", "at_most": None}
    for at_least, row in ((4.0, "| 5.00 | problem | reached |"), (6.0, "| - | - | not measured |")):
        case = {**record, "name": "problem", "targets": [{**target, "at_least": at_least}]}
        assert row in targets([case])


def test_an_error_that_is_small_by_luck_is_not_reached():
    record = work(lucky=[(1.0, 1e-3), (2.0, 1e-9), (4.0, 1e-5)])
    assert seconds_to_reach(record, "lucky", 1e-6) == (4.0, False)
    assert seconds_to_reach(record, "lucky", 1e-5)[0] == pytest.approx(2.0)


def test_the_fastest_curve_counts():
    record = work(**{"peer, slow": [(9.0, 1e-7)], "peer, fast": [(3.0, 1e-7)], "peer, coarse": [(1.0, 1e-1)]})
    assert seconds_to_reach(record, "peer", 1e-6) == (3.0, True)


# The command, which gets a signal as the case named in its last argument begins.
INTERRUPTED = """
import signal, sys
from benchmarks import __main__ as command

name, run_case = sys.argv.pop(), command.run_case

def interrupted(group, case, *rest):
    if case.name == name:
        signal.raise_signal(signal.SIGINT)
    return run_case(group, case, *rest)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
command.run_case = interrupted
sys.exit(command.main())
"""


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_resume_makes_results_page_and_pictures(tmp_path):
    """A real signal in a real process, as the second of two cases begins: the first is kept to the letter."""
    first, second = (f"scaling-depth/{n} layers of width 8" for n in (10, 40))
    path = tmp_path / "results" / "benchmarks.json"
    arguments = {"cwd": ROOT, "env": environment(), "capture_output": True, "text": True}
    started = [sys.executable, "-c", INTERRUPTED, *command("--only", "scaling-depth", out=tmp_path)[3:]]
    run = subprocess.run([*started, second.split("/")[1]], **arguments)
    assert run.returncode == 130, run.stderr
    assert "--resume goes on" in run.stderr
    kept = by_name(path)
    assert list(kept) == [first]
    assert "| 10 | 8 x 8 |" in (tmp_path / "benchmarks.md").read_text(encoding="utf-8")

    groups = ["paper-size", "precision", "order-one", "scaling-depth", "long-solve", "long-steps"]
    run = subprocess.run(command("--only", *groups, "--resume", out=tmp_path), **arguments)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str(tmp_path / "benchmarks.md")
    records = by_name(path)
    wanted = [f"{name}/{case.name}" for name in GROUPS if name in groups for case in GROUPS[name].cases(QUICK)]
    assert list(records) == wanted
    assert records[first] == kept[first]
    for name, record in records.items():
        assert f"{name}: {'done before' if name == first else 'timing'}" in run.stderr
        assert record["made_with"]["versions"]["torch"] == torch.__version__
        for rival, outcome in record["rivals"].items():
            peer = any(package in rival for package in ("pycaputo", "PyPI", "torchdiffeq"))
            assert outcome["status"] == "timed" or peer, (name, rival, outcome)
    page = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert "QUICK SIZES, NOT RESULTS" in page
    assert "| paper's size: plain autograd / ours | at least 8 |" in page
    assert "Not measured yet: `python -m benchmarks --only predict`." in page
    for picture in ("depth", "memory", "precision", "scaling"):
        assert (tmp_path / "images" / f"benchmark_{picture}.png").read_bytes().startswith(b"\x89PNG")


@needs_proc
def test_peak_memory_is_what_a_run_holds_at_most():
    """Forty MiB are seen though they are freed before the end, and a run without memory of its own takes hardly any."""

    def filled(mebibytes):
        return lambda problem: Rival(lambda: torch.ones(mebibytes, 2**18).sum() and None, lambda: 0.0, tolerance=0.0)

    case = Case("blocks", {}, lambda: None, {"forty": filled(40), "none": filled(0)})
    assert 38 < measured(case, "forty") < 50
    assert measured(case, "none") < 8


@needs_proc
def test_memory_is_measured_in_a_process_of_its_own():
    case = find_case("depth", "60 layers of width 32", QUICK)
    record = run_case("depth", replace(case, memory=("compressed",)), QUICK)
    assert all(isinstance(record["rivals"]["compressed"][name], float) for name in ("memory", "live_memory"))
    assert "memory" not in record["rivals"]["residual"]


def test_only_keeps_the_results_of_other_groups(tmp_path, squares):
    path = tmp_path / "benchmarks.json"
    chosen = [(SQUARES, squares_case(squares))]
    run_cases(chosen, path, QUICK, ORDER, keep=True, resume=False)
    first = by_name(path)["squares/ten"]
    chosen = [(SQUARES, Case("eleven", {}, lambda: squares, {"right": lambda problem: problem.rival("right")}))]
    run_cases(chosen, path, QUICK, ORDER, keep=True, resume=False)
    assert list(by_name(path)) == ["squares/ten", "squares/eleven"]
    assert by_name(path)["squares/ten"] == first
    run_cases(chosen, path, QUICK, ORDER, keep=False, resume=False)
    assert list(by_name(path)) == ["squares/eleven"]


def test_published_answers_are_checked_without_a_clock(tmp_path, squares, capsys):
    """The quickest case that is published: the status of each rival, and its error within a few times itself."""
    path, group = tmp_path / "benchmarks.json", replace(SQUARES, cases=lambda options: [squares_case(squares)])
    records = Records(path, FIELDS)
    assert check_group(group, records, QUICK)
    assert capsys.readouterr().out == "squares: nothing is published\n"
    run_cases([(group, squares_case(squares))], path, QUICK, ORDER, keep=True, resume=False)
    runs = dict(squares.runs)
    assert check_group(group, Records(path, FIELDS), QUICK)
    assert "squares: 1 runs again, the same numbers" in capsys.readouterr().out
    assert squares.runs == {name: count + 1 for name, count in runs.items()}
    (record,) = read_file(path)[1]
    for change, told in (({"error": 1e-3}, "wrong error 0.001 -> 0.0"), ({"status": "timed"}, "status timed -> wrong")):
        rivals = {**record["rivals"], "wrong": {**record["rivals"]["wrong"], **change}}
        records.add({**record, "rivals": rivals})
        assert not check_group(group, records, QUICK)
        assert told in capsys.readouterr().out


def test_list_and_unknown_groups(capsys):
    assert main(["--list", "--quick"]) == 0
    listed = capsys.readouterr().out
    for name in ("paper-size", "perfume", "solver", "study", "adaptive"):
        assert f"\n{name}: " in f"\n{listed}"
    assert main(["--only", "dpeth"]) == 2
    assert "no group is called dpeth; choose from paper-size" in capsys.readouterr().err


def test_every_group_that_was_measured_has_a_place_on_the_page():
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)
    records = read_file(DOCS / "results" / "benchmarks.json")[1]
    for name in GROUPS:
        assert name in TABLES
    for name, table in TABLES.items():
        assert (f"<!-- benchmark {name} -->" in text) == (not table(records).startswith("Not measured yet"))


def test_the_pages_are_made_from_the_results():
    records = read_file(DOCS / "results" / "benchmarks.json")[1]
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        assert filled(text, records) == text, "run python -m benchmarks.page"
    assert not any(record["quick"] for record in records)
    for record in records:
        for outcome in record["rivals"].values():
            assert ("seconds" in outcome) == (outcome["status"] == "timed")
            assert outcome["status"] != "timed" or outcome["error"] <= outcome["tolerance"]


def test_the_other_ways_are_those_of_the_definition():
    x = torch.randn(3, 4, dtype=torch.float64)
    matrices = torch.randn(13, 4, 4, dtype=torch.float64)
    expected = definition(lambda j, y: torch.tanh(y @ matrices[j]), x, 13, 0.3, 0.2)
    for way in (double_loop, sum_by_layer):
        found = way(lambda j, y: torch.tanh(y @ matrices[j]), x, 13, 0.3, 0.2)
        assert distance([found], [expected]) < 1e-13
    network = FractionalNetwork(4, 2, n_layers=7, order=0.3).double()
    for kind in (DefinitionNetwork, PlainNetwork):
        assert distance([twin(network, kind)(x)], [network(x)]) < 1e-12


def test_numbers_as_text():
    assert [number(value) for value in (12345.6, 99.44, 3.14159, 0.5, 0.01234, None)] == [
        "12,346",
        "99.4",
        "3.14",
        "0.50",
        "0.012",
        "-",
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device, which runs the group itself")
def test_the_gpu_groups_say_that_there_is_no_gpu(capsys):
    for group in ("gpu", "gpu-dense"):
        record = run_case(group, GROUPS[group].cases(QUICK)[0], QUICK)
        reasons = {outcome["why"] for outcome in record["rivals"].values()}
        assert reasons == {"needs a CUDA device, and there is none"}
        assert all("not installed" in line for line in gpu.lines(record))
    assert gpu.main(["--quick"]) == 0
    assert "skipped: the groups of the GPU need a CUDA device" in capsys.readouterr().err


@pytest.mark.parametrize("sums", ["torch", "triton"])
def test_the_stacks_of_the_gpu_run_on_the_sums_that_they_name(sums):
    layers = [torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()) for _ in range(200)]
    stack = StackOf(layers, sums)
    assert stack.memory.plan(torch.zeros(1, 2), 200)._sums == sums


def test_memory_on_a_gpu_is_that_of_the_eager_passes():
    def outcome(seconds, **notes):
        return {"status": "timed", "error": 0.0, "tolerance": 1.0, "seconds": [seconds], "notes": notes}

    rivals = {
        "residual, eager": outcome(1.0, **{"peak MiB": 100.0}),
        "torch, eager": outcome(2.0, **{"peak MiB": 150.0}),
        "triton, eager": outcome(1.1, **{"peak MiB": 105.0}),
        "residual, graph": outcome(0.5),
        "triton, graph": outcome(0.6),
    }
    record = {"group": "gpu", "name": "one", "settings": {"layers": 1000}, "rivals": rivals}
    assert TABLES["gpu-memory"]([record]).splitlines()[-1] == "| 1,000 | 100 | 150 | 105 | 1.50 | 1.05 |"
    assert "1.10 x residual,      105 MiB,   1.05 x residual" in gpu.lines(record)[2]
    assert "1.20 x residual, error" in gpu.lines(record)[4]


def test_two_checkouts_are_timed_in_turns(capsys):
    few = ["--starts", "1", "--turns", "1"]
    assert versions.main([str(ROOT), str(ROOT), *few, "--only", "fdeint", "linear", "values"]) == 0
    *_, row = capsys.readouterr().out.splitlines()
    name, before, after, ratio = (cell.strip() for cell in row.strip("|").split("|"))
    assert name == "fdeint, linear, values"
    assert float(ratio.split()[0]) == pytest.approx(float(after) / float(before), rel=0.02)
