"""Trainings on several real processes against the same on one, and what happens when one of them is in trouble."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.training.rank_groups import loaded

ROOT = Path(__file__).parents[2]
# Sums in another order: over fifty iterations of BFGS, twenty of L-BFGS, which amplifies rounding more.
CLOSE = {"rtol": 0.0, "atol": 1e-10}


def run(folder, *what, module="rank_runs"):
    command = [sys.executable, "-m", f"tests.training.{module}", str(folder), *what]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def distance(one, other):
    return float((one - other).abs().max())


def assert_same(found, expected):
    """The same training up to rounding: parameters, and each record."""
    torch.testing.assert_close(found[0], expected[0], **CLOSE)
    ours, theirs = found[1], expected[1]
    assert ours["status"] == theirs["status"]
    assert len(ours["records"]) == len(theirs["records"]) > 0
    for one, other in zip(ours["records"], theirs["records"], strict=True):
        assert one["line_search_trials"] == other["line_search_trials"]
        for name in ("loss", "gradient_norm", "accuracy", "validation_score", "layer_gradients"):
            expected = other[name]
            assert one[name] == (expected if expected is None else pytest.approx(expected, rel=1e-9, abs=1e-10)), name


def assert_identical(found, expected):
    """The same to the last bit."""
    assert torch.equal(found[0], expected[0])
    assert found[1] == expected[1]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """What `make test` runs, from one process that imports everything once."""
    folder = tmp_path_factory.mktemp("together")
    run(folder, "equal", "framed")
    return folder


@pytest.fixture(scope="module")
def more(tmp_path_factory):
    folder = tmp_path_factory.mktemp("more")
    run(folder, "more", "framed by two")
    return folder


@pytest.mark.parametrize(
    ("where", "what", "counts"),
    [("place", "equal", (3,)), pytest.param("more", "more", (2, 4), marks=pytest.mark.slow)],
)
def test_any_number_of_processes_trains_as_one_does(where, what, counts, request):
    folder = request.getfixturevalue(where) / what
    (alone,) = loaded(folder / "1", 1)
    # One process with its samples in another order comes as far from itself as this.
    others = torch.load(folder / "shuffled.pt")
    rounding = max(distance(other, alone["lbfgs, long"][0]) for other in others)
    assert 0 < rounding < 1e-6
    assert all(alone[name][1]["records"][-1]["gradient_norm"] > 1e-5 for name in ("bfgs", "lbfgs"))
    for count in counts:
        ranks = loaded(folder / str(count), count)
        unseeded = [rank.pop("unseeded", None) for rank in ranks]
        assert count == 4 or all(torch.equal(each, unseeded[0]) for each in unseeded)
        for name in ranks[0]:
            if name == "lbfgs, long":
                assert distance(ranks[0][name][0], alone[name][0]) < 10 * rounding
            else:
                assert_same(ranks[0][name], alone[name])
            for rank in ranks[1:]:
                assert_identical(rank[name], ranks[0][name])
    assert [len(alone[name][1]["records"]) for name in ("bfgs", "lbfgs", "lbfgs, long")] == [50, 20, 50]
    assert len(ranks[0]) == (4 if count == 4 else len(alone) - 1)  # without what is unseeded
    early = [alone[name][1] for name in ("adam, early", "lbfgs, early")]
    assert all(history["status"] == "no improvement" for history in early)


@pytest.mark.parametrize(
    ("where", "what", "count"),
    [("place", "framed", 3), pytest.param("more", "framed by two", 2, marks=pytest.mark.slow)],
)
def test_any_number_of_processes_knows_the_same_categories_and_medians(where, what, count, request):
    folder = request.getfixturevalue(where) / what
    (alone,) = loaded(folder / "1", 1)
    for rank in loaded(folder / str(count), count):
        for name, (encoding, training) in alone.items():
            assert rank[name][0] == encoding
            assert_same(rank[name][1], training)
    document, names = alone["FractionalClassifier"][0]
    assert document[1]["gaps"]
    assert document[2] == {
        "kind": "category",
        "name": "colour",
        "categories": ("blue", "red"),
        "gaps": True,
        "others": False,
    }
    assert [document[k]["kind"] for k in (0, 4)] == ["category", "date"]
    assert "code=none" in names


@pytest.mark.slow
def test_troubles_of_one_process_are_those_of_all(tmp_path):
    run(tmp_path, "faults", "resumed", "killed")
    check_other_settings(*loaded(tmp_path / "faults" / "other", 2))
    check_disturbed(loaded(tmp_path / "faults" / "disturbed", 3))
    check_hanging(loaded(tmp_path / "faults" / "hanging", 3))
    check_resumed(tmp_path / "resumed")
    for name in ("bfgs", "adam, early"):
        check_same_bits(tmp_path / "killed" / f"{name}-whole", tmp_path / "killed" / f"{name}-2")


def check_other_settings(first, second):
    alike = (
        "training",
        "training limit",
        "training time",
        "network",
        "samples",
        "parameters",
        "generator",
        "objective",
    )
    for name in alike:
        rule = f"InvalidArgumentError: {name.split()[0]} must be the same on all 2 ranks, got other on rank 1 than on"
        assert first[name].startswith(rule)
    for name in ("random_state", "solver"):
        assert first[name].startswith("InvalidArgumentError: parameters must be the same on all 2 ranks")
    assert first["no samples"].startswith("InvalidArgumentError: x must hold a sample on some rank, got none on all")
    assert first["labels"].startswith(
        "ValueError: y must hold text on all processes or numbers on all, got labels of both"
    )
    for name in (*alike, "random_state", "solver", "no samples", "labels"):
        assert second[name] == first[name]
    assert first["infinity in X"].startswith("RankError: rank 1 failed in checking the samples: Input X contains inf")
    assert second["infinity in X"].startswith("ValueError: Input X contains inf")


def check_disturbed(ranks):
    for name in ("signal", "signal, adam", "interrupt"):
        for said, history, parameters in (rank[name] for rank in ranks):
            assert said == "nothing"
            assert history == ranks[0][name][1]
            assert torch.equal(parameters, ranks[0][name][2])
        assert history["status"] == "interrupted"
        assert 0 < len(history["records"]) < 12
    for name in ("time, steepest", "time, adam"):
        assert ranks[0][name][1]["status"] == "time limit"
        for rank in ranks[1:]:
            assert_identical(rank[name], ranks[0][name])
    assert [rank["watch"] for rank in ranks] == ["KeyboardInterrupt: "] * 3
    for name in ("NaN, bfgs", "NaN, adam"):
        assert [rank[name] for rank in ranks] == [("not finite", True)] * 3
    others = "RankError: rank 1 failed in an evaluation: no such file"
    assert [rank["error"][0] for rank in ranks] == [others, "ValueError: no such file", others]
    assert all(torch.equal(rank["error"][2], ranks[0]["error"][2]) for rank in ranks)
    told = "target must hold classes from 0 to 1 for 2 outputs, got 7"
    said = [rank["label"] for rank in ranks]
    assert said[1].startswith(f"InvalidArgumentError: {told}")
    assert all(said[rank].startswith(f"RankError: rank 1 failed in checking the labels: {told}") for rank in (0, 2))
    assert ranks[0]["checkpoint"].startswith("FileExistsError")
    assert all(rank["checkpoint"].startswith("RankError: rank 0 failed in record 2: ") for rank in ranks[1:])


def check_hanging(ranks):
    for said, seconds in ranks[:2]:
        rule = "RankError: all 3 ranks must take part in the sum of loss and gradients, got nothing from rank 2 in "
        assert said.startswith(rule)
        assert seconds < 8  # before the hanging rank went on


def check_resumed(folder):
    for name in ("bfgs", "adam, early", "estimator"):
        ((whole),) = loaded(folder / f"{name}-whole", 1)
        stopped, further, (ended,) = (loaded(folder / f"{name}-{count}", count) for count in (2, 3, 1))
        assert_same(ended, whole)
        lengths = [len(ranks[0][1]["records"]) for ranks in (stopped, further)]
        assert lengths == ([4, 8] if name == "estimator" else [5, 9])
        for ranks in (stopped, further):
            assert all(torch.equal(rank[0], ranks[0][0]) for rank in ranks)
            # It did go on: what was noted before is there to the last bit.
            assert ranks[0][1]["records"][:3] == ended[1]["records"][:3]


def check_same_bits(whole, ended):
    for undisturbed, disturbed in zip(loaded(whole, 2), loaded(ended, 2), strict=True):
        assert_identical(disturbed, undisturbed)


@pytest.mark.slow
def test_kills_at_random_moments_change_no_bit(tmp_path):
    run(tmp_path, "kills")
    check_same_bits(tmp_path / "kills" / "whole", tmp_path / "kills" / "25")
