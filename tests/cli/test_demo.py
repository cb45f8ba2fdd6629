import subprocess
import sys

import pytest

import fracdnn


def run(*arguments, cwd=None):
    command = [sys.executable, "-m", "fracdnn", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_demo_ends_with_a_table_and_a_picture(tmp_path):
    result = run("demo", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "0.068284" in result.stdout  # u(1) by L1 with the paper's step, from Alg. 1 by hand
    assert "0.068500" in result.stdout  # 0.5 E_0.5(−4)
    picture = tmp_path / result.stdout.strip().splitlines()[-1].removeprefix("picture: ")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in picture.parent.iterdir()] == [picture.name]  # no temporary file left


@pytest.mark.parametrize("command", [["demo"], ["reproduce", "gradient-test"]])
def test_commands_say_where_they_cannot_write(command, tmp_path):
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    result = run(*command, "--out", "taken", cwd=tmp_path)
    assert result.returncode == 1
    assert "cannot write" in result.stderr
    assert "--out" in result.stderr
    assert "Traceback" not in result.stderr


def test_version_and_help():
    assert run("--version").stdout.strip() == f"fracdnn {fracdnn.__version__}"
    assert "demo" in run("--help").stdout
