import os
import re
import subprocess
import sys

import pytest

import fracdnn
from tests.cli import commands


def run(*arguments, cwd=None):
    command = [sys.executable, "-m", "fracdnn", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_demo_trains_and_ends_with_accuracy_and_picture(tmp_path):
    result = commands.run("demo", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "iteration 180 of 180" in result.stderr  # which is not on standard output
    assert len((result.stdout + result.stderr).splitlines()) <= 20
    here, paper = map(float, re.search(r"test accuracy: (\S+) % \(paper (\S+) %\)", result.stdout).groups())
    assert here >= 99.2
    assert paper == 99.79
    picture = tmp_path / result.stdout.strip().splitlines()[-1].removeprefix("picture: ")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in picture.parent.iterdir()] == [picture.name]  # no temporary file left


def test_demo_says_where_it_cannot_write(tmp_path):
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    result = commands.run("demo", "--out", "taken", cwd=tmp_path)
    assert result.returncode == 1
    assert "cannot write to taken: File exists; pass another path" in result.stderr
    assert "Traceback" not in result.stderr


def test_version_and_help():
    assert run("--version").stdout.strip() == f"fracdnn {fracdnn.__version__}"
    assert run("--version", "demo").stdout == run("--version").stdout
    assert "demo" in run("--help").stdout


def completing(words):
    return {"_FRACDNN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fracdnn tr", "train"),
        pytest.param("fracdnn train --learn-o", "--learn-order", marks=pytest.mark.slow),  # imports torch
    ],
)
def test_completion_in_the_shell(words, expected):
    command, environment = [sys.executable, "-m", "fracdnn"], os.environ | completing(words)
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert expected in done.stdout.split()


def slow_modules(result):
    """Those that take seconds to import."""
    assert "fracdnn.cli" in result.imported
    return result.imported & {"torch", "numpy", "sklearn", "numba", "fracdnn.nn"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--version"], "fracdnn"),
        (["--help"], "evaluate"),
        pytest.param(["predict", "--help"], "--interval", marks=pytest.mark.slow),
        (["train", "--help"], "--help-all"),
        (["train", "no.csv", "--target", "y", "--out", "m"], "fracdnn: no.csv: No such file"),
        (["train", "table.cvs", "--target", "y", "--out", "m"], "table.cvs must end in one of .csv"),
        (["predict", "no.fracdnn", "no.csv"], "fracdnn: no.fracdnn must be a model file, got none there; check "),
    ],
)
def test_help_and_errors_about_files_import_nothing_slow(arguments, told, tmp_path):
    done = commands.run_light(*arguments, cwd=tmp_path)
    assert told in done.stdout + done.stderr
    assert slow_modules(done) == set()


def test_the_short_help_of_train_has_what_people_use_and_fits_80_columns():
    text = run("train", "--help").stdout
    options = re.findall(r"^  (?:-q, )?(--[a-z-]+)", text, flags=re.MULTILINE)
    assert options[:3] == ["--target", "--out", "--run"]
    assert len(options) == 11
    assert "--outlier-limit" not in options


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fracdnn ", ["train", "predict", "evaluate", "info", "report", "fit", "demo"]),
        ("fracdnn predict --enc", ["--encoding"]),
        ("fracdnn train measurements.c", []),
    ],
)
def test_completion_imports_nothing_slow(words, expected, tmp_path):
    result = commands.run_light(cwd=tmp_path, **completing(words))
    assert result.stdout.split() == expected
    assert slow_modules(result) == set()
