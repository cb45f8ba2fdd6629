"""Where commands write: never to what they read, one training at a time, and no training is lost by mistake."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

from fracdnn.cli.runs import LOCK, locked
from tests.cli.commands import run, run_ranks
from tests.cli.test_termination import started, wait_for

QUICK = ["--target", "y", "--n-members", "1", "--max-iter", "20"]
LONG = ["--max-iter", "100000", "--no-early-stopping"]


def write_table(folder, name="t.csv", seed=0):
    a, b = np.random.default_rng(seed).standard_normal((2, 200))
    pl.DataFrame({"a": a, "b": b, "y": a - b}).write_csv(folder / name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A table and a run."""
    folder = tmp_path_factory.mktemp("places")
    write_table(folder)
    assert run("train", "t.csv", *QUICK, "--run", "run", "-q", cwd=folder).returncode == 0
    return folder


@pytest.fixture
def place(trained, tmp_path):
    """A copy of the table and its run, with parts, settings, and other names for the table."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    (tmp_path / "parts").mkdir()
    for number in range(2):
        write_table(tmp_path, f"parts/{number}.csv", number)
    (tmp_path / "s.toml").write_text("max_iter = 20\n", encoding="utf-8")
    (tmp_path / "link.csv").symlink_to("t.csv")
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "t.csv")
    return tmp_path


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


SAME = "must not be an input, got {}, which is {}; pass another path"
INSIDE = "must be outside the table's folder parts, got {}; pass another path"


def test_an_output_is_no_input(place):
    absolute = place / "run" / ".." / "t.csv"
    commands = [
        (["predict", "run/model.fracdnn", "t.csv", "--out", "t.csv"], "--out", SAME.format("t.csv", "t.csv")),
        (["predict", "run/model.fracdnn", "t.csv", "--out", absolute], "--out", SAME.format(absolute, "t.csv")),
        (["predict", "run/model.fracdnn", "t.csv", "--out", "link.csv"], "--out", SAME.format("link.csv", "t.csv")),
        (["predict", "run/model.fracdnn", "t.csv", "--out", "hard.csv"], "--out", SAME.format("hard.csv", "t.csv")),
        (["predict", "run/model.fracdnn", "link.csv", "--out", "t.csv"], "--out", SAME.format("t.csv", "link.csv")),
        (
            ["predict", "run/model.fracdnn", "parts", "--out", "parts/1.csv"],
            "--out",
            SAME.format("parts/1.csv", "parts/1.csv"),
        ),
        (["predict", "run/model.fracdnn", "parts", "--out", "parts/2.csv"], "--out", INSIDE.format("parts/2.csv")),
        (
            ["report", "run", "--out", "run/model.fracdnn"],
            "--out",
            SAME.format("run/model.fracdnn", "run/model.fracdnn"),
        ),
        (["report", "run", "--out", "run/held-out.csv"], "--out", SAME.format("run/held-out.csv", "run/held-out.csv")),
        (["report", "run", "--data", "t.csv", "--out", "link.csv"], "--out", SAME.format("link.csv", "t.csv")),
        (["train", "t.csv", *QUICK, "--out", "hard.csv"], "--out", SAME.format("hard.csv", "t.csv")),
        (["train", "t.csv", *QUICK, "--config", "s.toml", "--out", "s.toml"], "--out", SAME.format("s.toml", "s.toml")),
        (
            ["train", "run/held-out.csv", *QUICK, "--run", "run"],
            "--run",
            SAME.format("run/held-out.csv", "run/held-out.csv"),
        ),
        (
            ["train", "t.csv", *QUICK, "--out", "m.fracdnn", "--checkpoint-path", "t.csv"],
            "--checkpoint-path",
            SAME.format("t.csv", "t.csv"),
        ),
        (["train", "parts", *QUICK, "--run", "parts/run"], "--run", INSIDE.format("parts/run/model.fracdnn")),
        (["train", "parts", *QUICK, "--out", "parts/m.fracdnn"], "--out", INSIDE.format("parts/m.fracdnn")),
        (
            ["train", "t.csv", *QUICK, "--out", "m.fracdnn", "--checkpoint-path", "m.fracdnn"],
            "--checkpoint-path",
            "must differ from the model file, got m.fracdnn for both; pass another path",
        ),
    ]
    (place / "out").mkdir()
    (place / "out" / "nonsmooth.json").write_text("{}", encoding="utf-8")
    before = content(place)
    for command, option, message in commands:
        done = run(*command, cwd=place)
        assert (done.returncode, done.stderr) == (1, f"fracdnn: {option} {message}\n"), command
        assert content(place) == before, command


@pytest.mark.parametrize(
    "command",
    [
        "predict run/model.fracdnn - --out t.csv < t.csv",
        pytest.param("predict run/model.fracdnn t.csv >> t.csv", marks=pytest.mark.slow),
    ],
)
def test_an_output_is_not_what_a_pipe_or_a_redirection_reads(command, place):
    before = content(place)
    command = f"{sys.executable} -m fracdnn {command}"
    done = subprocess.run(command, shell=True, cwd=place, capture_output=True, text=True)
    assert done.returncode == 1
    assert "--out must not be an input, got " in done.stderr
    assert content(place) == before


def test_a_path_without_a_model_is_told_with_a_remedy(place):
    (place / "new").mkdir()
    (place / "half").mkdir()
    (place / "half" / "model.ckpt").touch()
    train = "check the path, or train a model: fracdnn train TABLE --target COLUMN"
    unfinished = "but the checkpoint of an unfinished training; repeat its fracdnn train with --resume"
    cases = {
        "run": "a folder; pass the model in it, run/model.fracdnn",
        "new": f"a folder; {train} --run new",
        "half": f"a folder {unfinished}",
        "new/model.fracdnn": f"none there; {train} --run new",
        "half/model.fracdnn": f"none there {unfinished}",
        "other.fracdnn": f"none there; {train} --out model.fracdnn",
    }
    for path, message in cases.items():
        for command in (["predict", path, "t.csv"], ["evaluate", path, "t.csv"], ["info", path], ["report", path]):
            if command == ["report", "run"]:
                continue  # it takes the folder
            read = f"{path}/model.fracdnn" if command[0] == "report" and path in ("new", "half") else path
            told = message.replace("a folder", "none there") if read != path else message
            done = run(*command, cwd=place)
            assert (done.returncode, done.stderr) == (1, f"fracdnn: {read} must be a model file, got {told}\n"), command


def test_other_places_are_good(place):
    for out in ("p.csv", "run/p.csv", "parts/_p.csv"):
        done = run("predict", "run/model.fracdnn", "parts", "--out", out, cwd=place)
        assert done.returncode == 0, done.stderr
    assert run("report", "run", "--out", "run/report.html", cwd=place).returncode == 0


@pytest.mark.parametrize(
    ("where", "lost"),
    [
        (["--run", "full"], "full"),
        pytest.param(["--out", "full/model.fracdnn"], "full/model.fracdnn", marks=pytest.mark.slow),
    ],
)
def test_a_full_disk_at_the_end_of_a_training_loses_nothing(where, lost, tmp_path):
    """Long categories make the rows held out and the model larger than the limit on file sizes; checkpoints are not."""
    rng = np.random.default_rng(0)
    kind, a = rng.integers(0, 2, 60), rng.standard_normal(60)
    texts = [letter * 700_000 for letter in "ab"]
    pl.DataFrame({"kind": [texts[k] for k in kind], "a": a, "y": a + kind}).write_parquet(tmp_path / "t.parquet")
    command = ["train", "t.parquet", *QUICK, *where, "--max-time", "1e6"]
    done = run(*command, cwd=tmp_path, file_size=600_000)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"fracdnn: cannot write to {lost}: File too large")
    assert done.stderr.endswith("; free some space; then --resume continues from full/model.ckpt\n")
    assert "Traceback" not in done.stderr
    left = {path.name for path in (tmp_path / "full").iterdir()} - {"metrics.jsonl"}
    assert left == {"model.ckpt", "model.ckpt.previous"}
    done = run(*command, "--resume", "--json", cwd=tmp_path)
    assert "--resume continues after iteration 20: full/model.ckpt" in done.stderr
    assert json.loads(done.stdout)["iterations"] == 20
    resumed = run("predict", "full/model.fracdnn", "t.parquet", cwd=tmp_path).stdout
    assert run(*command[: -len(where) - 2], "--out", "whole.fracdnn", cwd=tmp_path).returncode == 0
    assert run("predict", "whole.fracdnn", "t.parquet", cwd=tmp_path).stdout == resumed


def test_a_full_disk_in_the_midst_of_a_training(tmp_path):
    write_table(tmp_path)
    done = run("train", "t.csv", *QUICK, "--run", "full", cwd=tmp_path, file_size=4000)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "fracdnn: cannot write to full/model.ckpt: File too large; free some space, or pass another path"
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "full").exists()


def test_a_finished_run_is_not_trained_again(place):
    before = content(place / "run")
    command = ["train", "t.csv", *QUICK, "--run", "run"]
    done = run(*command, "--resume", cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "fracdnn: this training is finished: run/model.fracdnn; to train again, pass --start-over, not --resume\n"
    )
    assert "R2 on the test rows (40): " in done.stdout
    assert json.loads(run(*command, "--resume", "--json", cwd=place).stdout)["iterations"] == 20
    assert [each.returncode for each in run_ranks(2, *command, "--resume", cwd=place)] == [0, 0]
    assert content(place / "run") == before
    write_table(place, seed=5)
    for options, what in (([], "data"), (["--order", "0.3", "--drop", "a"], "data and drop and order")):
        done = run(*command, *options, "--resume", cwd=place)
        assert (done.returncode, done.stderr) == (
            1,
            f"fracdnn: run/model.fracdnn is the model of a finished training with different {what}, which --resume "
            f"cannot continue; pass --start-over to replace it, or another path\n",
        )
    assert content(place / "run") == before
    assert run(*command, "--start-over", "-q", cwd=place).returncode == 0
    assert content(place / "run") != before


def test_a_report_of_a_model_and_the_rows_of_another_training_is_refused(place):
    """As a kill between the two files leaves them; the next --start-over puts that right."""
    command = ["train", "t.csv", *QUICK, "--run", "half"]
    assert run(*command, "-q", cwd=place).returncode == 0
    model = (place / "half" / "model.fracdnn").read_bytes()
    assert run(*command, "--test-fraction", "0.4", "--start-over", "-q", cwd=place).returncode == 0
    (place / "half" / "model.fracdnn").write_bytes(model)
    done = run("report", "half", "--out", "other.html", cwd=place)
    assert done.returncode == 1
    assert "half/held-out.csv does not match half/model.fracdnn: one of them was changed" in done.stderr
    assert not (place / "other.html").exists()
    assert run(*command, "--start-over", "-q", cwd=place).returncode == 0
    assert run("report", "half", "--out", "half.html", cwd=place).returncode == 0


@pytest.mark.parametrize("where", [["--run", "new"], ["--out", "new/model.fracdnn", "--max-time", "1e6"]])
def test_a_checkpoint_is_gone_on_from_or_discarded_on_purpose(where, place):
    command = ["train", "t.csv", *QUICK, *where]
    assert run(*command, cwd=place, moment="9").returncode == 130
    before = content(place / "new")
    done = run(*command, "--order", "0.3", cwd=place)
    assert (done.returncode, done.stderr) == (
        1,
        "fracdnn: new/model.ckpt is the checkpoint of an unfinished training; pass --resume to continue it, "
        "--start-over to discard it, or another path\n",
    )
    done = run(*command, "--order", "0.3", "--resume", cwd=place)
    assert done.returncode == 1
    assert "new/model.ckpt must be a checkpoint of this training, got one with other " in done.stderr
    assert content(place / "new") == before
    done = run(*command, "--resume", "--start-over", cwd=place)
    assert done.returncode == 2
    assert "must go without --resume, got both; leave one out" in done.stderr
    done = run(*command, "--order", "0.3", "--start-over", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["iterations"] == 20
    assert not (place / "new" / "model.ckpt").exists()


def test_two_trainings_at_once(place):
    """The second is refused while the first is at work; where that was killed, its lock is free."""
    command = ["train", "t.csv", *QUICK, *LONG, "--run", "two"]
    with started(*command, cwd=place) as first:
        wait_for((place / "two" / "model.ckpt").exists, first)
        before = (place / "two" / LOCK).read_bytes()
        assert before.decode() == f"process {first.pid} on {socket.gethostname()}"
        for option in ([], ["--resume"], ["--start-over"]):
            done = run(*command, *option, cwd=place)
            assert (done.returncode, done.stderr) == (
                1,
                f"fracdnn: two is in use by the training of process {first.pid} on "
                f"{socket.gethostname()}; wait for it, or pass another --run\n",
            )
        assert (place / "two" / "model.ckpt").exists()
        assert (place / "two" / LOCK).read_bytes() == before
        first.send_signal(signal.SIGKILL)
        first.wait(60)
    assert (place / "two" / LOCK).exists()
    done = run(*command, "--max-time", "1e-6", "--resume", cwd=place)
    assert "--resume continues after iteration " in done.stderr
    assert done.returncode == 0
    assert not (place / "two" / LOCK).exists()


@pytest.mark.parametrize("stale", [True, False])
def test_many_at_once_hold_the_lock_one_by_one(stale, tmp_path):
    """Each holds the lock for a moment; two at once would find the other's mark."""
    if stale:
        (tmp_path / LOCK).write_text("process 1 on elsewhere", encoding="utf-8")
    children = []
    for _ in range(8):
        child = os.fork()
        if not child:
            code = 1
            try:
                with locked(tmp_path):
                    (tmp_path / "mark").mkdir()  # fails where another is at work
                    time.sleep(0.05)
                    (tmp_path / "mark").rmdir()
                code = 0
            except FileExistsError:
                code = 2
            except BaseException:
                code = 3  # refused
            os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert set(codes) <= {0, 3}
    assert 0 in codes
    assert not (tmp_path / LOCK).exists()


def test_a_training_that_fails_leaves_no_folder(tmp_path):
    write_table(tmp_path)
    done = run("train", "t.csv", "--target", "z", "--run", "new", cwd=tmp_path)
    assert done.returncode == 1
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = run("train", "t.csv", "--target", "y", "--run", "file", cwd=tmp_path)
    assert done.returncode == 1
    assert "--run must be a folder, got the file file; pass another path" in done.stderr


def test_ranks_share_one_lock(place):
    with locked(place / "ranks"):
        done = run_ranks(2, "train", "t.csv", *QUICK, "--run", "ranks", cwd=place)
    assert [each.returncode for each in done] == [1, 1]
    assert f"ranks is in use by the training of process {os.getpid()} on {socket.gethostname()}; wait" in done[0].stderr
    assert done[1].stderr == ""
    done = run_ranks(2, "train", "t.csv", *QUICK, "--run", "ranks", cwd=place)
    assert [each.returncode for each in done] == [0, 0], done[0].stderr
    assert not (place / "ranks" / LOCK).exists()
