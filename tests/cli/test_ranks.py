"""The commands on several processes: those that torchrun starts, or with the environment it gives them."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.distributed.run import parse_args as torchrun_options

import fracdnn
from tests.cli.commands import run, run_ranks
from tests.plain import PLAIN_OPTIONS
from tests.tables.tables import mixed, write, write_parts

SMALL = ["--width", "8", "--max-iter", "20", "--dtype", "float64", *PLAIN_OPTIONS]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A table of classes and one of values, whole and in parts, and a model of each."""
    found = tmp_path_factory.mktemp("ranks")
    for name, classes in (("classes", True), ("values", False)):
        table = mixed(900, classes=classes)
        write(table, found / f"{name}.csv")
        for ending in ("parquet", "csv"):
            write_parts(table, found / f"{name}-{ending}", ending, 5)
        options = ["--target", "y", "--out", f"{name}.fracdnn", "--drop", "flag", *SMALL]
        assert run("train", f"{name}.csv", *options, cwd=found).returncode == 0
    return found


def codes(ranks):
    return [each.returncode for each in ranks]


@pytest.mark.parametrize("command", ["predict", "evaluate", "report"])
def test_what_runs_in_one_process_says_so(command, place):
    ranks = run_ranks(2, command, "classes.fracdnn", *([] if command == "report" else ["classes-csv"]), cwd=place)
    assert codes(ranks) == [1, 1]
    assert "must run in one process, got several; start it without torchrun" in ranks[0].stderr
    assert ranks[1].stderr == ""


def test_what_one_process_alone_can_read_is_refused(place):
    ranks = run_ranks(2, "train", "-", "--target", "y", "--out", "m.fracdnn", cwd=place)
    assert codes(ranks) == [1, 1]
    assert "DATA must be a file if several processes run" in ranks[0].stderr


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
TORCHRUN += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--max-restarts", "40", "-m", "fracdnn"]


def test_torchrun_leaves_the_options_of_documented_commands_to_fracdnn():
    pages = ["docs/scale.md", "src/fracdnn/cli/app.py", "src/fracdnn/cli/ranks.py"]
    text = "".join((Path(__file__).parents[2] / page).read_text(encoding="utf-8") for page in pages)
    found = re.findall(r"torchrun (--.* fracdnn train .*)", text.replace("\\\n", " "))
    assert len(found) == 4
    for command in found:
        words = command.rstrip('.`"').split()
        told = torchrun_options(words)
        assert [told.training_script, *told.training_script_args] == words[words.index("fracdnn") :]


def workers_of(torchrun):
    return [int(pid) for pid in Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split()]


def trained_by_torchrun(place, out, iterations, kills, chosen):
    """Train, with a worker killed so often, each time when a new checkpoint is there and a random time later."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    options = ["--target", "y", "--out", out, "--max-iter", str(iterations), "--width", "8", "--batch-size", "1000"]
    options += ["--resume", "--max-time", "1e6", "--quiet", *PLAIN_OPTIONS]
    command = [*TORCHRUN, "train", "classes.csv", *options]
    with subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as job:
        checkpoint, killed = out.with_suffix(".ckpt"), 0
        while job.poll() is None and killed < kills:
            before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
            while job.poll() is None and not (checkpoint.exists() and checkpoint.stat().st_mtime_ns > before):
                time.sleep(0.02)
            time.sleep(chosen.uniform(0.0, 0.4))
            workers = workers_of(job) if job.poll() is None else []
            if len(workers) == 2:
                os.kill(chosen.choice(workers), signal.SIGKILL)
                killed += 1
                while job.poll() is None and set(workers) & set(workers_of(job)):
                    time.sleep(0.02)
        told = job.communicate(timeout=300)[0].decode()
    assert job.returncode == 0, told
    assert killed == kills, f"the training ended after {killed} kills"
    return fracdnn.load(out).estimator


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "iterations"), [(1, 200), (20, 4000)])
def test_torchrun_starts_again_and_ends_at_the_same_bits(kills, iterations, place, tmp_path):
    chosen = random.Random(kills)
    whole = trained_by_torchrun(place, tmp_path / "whole.fracdnn", iterations, 0, chosen)
    ended = trained_by_torchrun(place, tmp_path / "ended.fracdnn", iterations, kills, chosen)
    assert whole.history_.records == ended.history_.records
    for name, value in whole.network_.state_dict().items():
        assert value.equal(ended.network_.state_dict()[name])


def test_two_processes_train_one_model_of_the_same_quality(place, tmp_path):
    """Each on its rows; all rows are learned from, and rank 0 alone writes."""
    options = ["classes.csv", "--target", "y", "--json", *SMALL]
    alone = run("train", *options, "--run", tmp_path / "one", cwd=place)
    ranks = run_ranks(2, "train", *options, "--run", tmp_path / "all", cwd=place)
    assert codes(ranks) == [0, 0], ranks[0].stderr + ranks[1].stderr
    assert (ranks[1].stdout, ranks[1].stderr) == ("", "")
    assert "features, shared among 2 processes" in ranks[0].stderr
    found, expected = json.loads(ranks[0].stdout), json.loads(alone.stdout)
    assert found["rows"] == expected["rows"]
    for part in ("training", "test"):
        assert found[part]["accuracy"] == pytest.approx(expected[part]["accuracy"], abs=0.04)
    one, every = (fracdnn.load(tmp_path / each / "model.fracdnn").estimator for each in ("one", "all"))
    assert every.encoding_.columns == one.encoding_.columns
    assert len(every.members_) == len(one.members_)


def test_methods_other_than_adam_run_in_one_process(place, tmp_path):
    options = ["--target", "y", "--out", tmp_path / "m.fracdnn", "--optimizer", "lbfgs", *SMALL]
    ranks = run_ranks(2, "train", "classes.csv", *options, cwd=place)
    assert codes(ranks) == [1, 1]
    assert "training must be AdamTraining on several processes, got FullBatchTraining" in ranks[0].stderr
