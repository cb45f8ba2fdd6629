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

import numpy as np
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


def test_processes_that_see_another_table_are_refused(place, tmp_path):
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        write_parts(mixed(900), folder / "parts", "csv", 5)
    (folders[1] / "parts" / "part-004.csv").unlink()
    ranks = run_ranks(2, "train", "parts", "--target", "y", "--out", "m.fracdnn", *SMALL, cwd=folders)
    assert codes(ranks) == [1, 1]
    assert "table must be the same on all 2 ranks, got other on rank 1 than on rank 0" in ranks[0].stderr
    assert ranks[1].stderr == ""
    assert not (folders[0] / "m.fracdnn").exists()


def test_ctrl_c_on_a_process_that_waits_ends_all_alike(place, tmp_path):
    """While the processes tell each other what they have read of a streamed table."""
    options = ["--target", "y", "--memory-limit", "0", "--out", tmp_path / "m.fracdnn", *SMALL]
    ranks = run_ranks(2, "train", "classes-csv", *options, cwd=place, moment="the summary of the table")
    assert codes(ranks) == [130, 130], ranks[0].stderr + ranks[1].stderr
    assert ranks[0].stderr.endswith("fracdnn: interrupted\n")
    assert ranks[1].stderr == ""
    assert not list(tmp_path.iterdir())


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
TORCHRUN += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--max-restarts", "40", "-m", "fracdnn"]


def test_torchrun_leaves_the_options_of_documented_commands_to_fracdnn():
    pages = ["docs/scale.md", "src/fracdnn/cli/app.py", "src/fracdnn/cli/ranks.py"]
    text = "".join((Path(__file__).parents[2] / page).read_text(encoding="utf-8") for page in pages)
    found = re.findall(r"torchrun (--.* fracdnn train .*)", text.replace("\\\n", " "))
    assert len(found) == 7
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
    options += ["--checkpoint-every", "5", "--resume", "--quiet", *PLAIN_OPTIONS]
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


@pytest.mark.parametrize(("count", "name"), [(2, "classes"), pytest.param(3, "values", marks=pytest.mark.slow)])
def test_a_streamed_table_is_learned_from_as_by_one_process(count, name, place, tmp_path):
    options = [f"{name}-csv", "--target", "y", "--memory-limit", "0", "--json", *SMALL]
    alone = run("train", *options, "--run", tmp_path / "one", cwd=place)
    ranks = run_ranks(count, "train", *options, "--run", tmp_path / "all", cwd=place)
    assert codes(ranks) == [0] * count, ranks[0].stderr
    assert not any(each.stdout or each.stderr for each in ranks[1:])
    assert f"features, shared among {count} processes" in ranks[0].stderr
    one, every = (fracdnn.load(tmp_path / each / "model.fracdnn") for each in ("one", "all"))
    assert every.encoding.columns == one.encoding.columns
    for key, value in one.estimator.network_.state_dict().items():
        np.testing.assert_allclose(every.estimator.network_.state_dict()[key], value, rtol=1e-9, atol=1e-10)
    found, expected = json.loads(ranks[0].stdout), json.loads(alone.stdout)
    assert found["rows"] == expected["rows"]
    for part in ("training", "test"):
        assert list(found[part].values()) == pytest.approx(list(expected[part].values()), rel=1e-6)
    assert (tmp_path / "all" / "held-out.csv").read_bytes() == (tmp_path / "one" / "held-out.csv").read_bytes()


def test_a_streamed_table_with_a_fault_ends_all_with_one_line(place, tmp_path):
    write_parts(mixed(900), tmp_path / "parts", "parquet", 5)
    (tmp_path / "parts" / "part-004.parquet").write_bytes(b"PAR1 nothing PAR1")
    options = ["--target", "y", "--memory-limit", "0", "--run", tmp_path / "run"]
    ranks = run_ranks(2, "train", tmp_path / "parts", *options, cwd=place)
    assert codes(ranks) == [1, 1]
    told = [line for each in ranks for line in each.stderr.splitlines() if "streaming:" not in line]
    assert len(told) == 1
    assert "part-004.parquet must be a .parquet file, got one that cannot be read" in told[0]
    assert not (tmp_path / "run").exists()
