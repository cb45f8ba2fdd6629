import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import typer

import fracdnn
from fracdnn.cli.reproduce import reproduce_parts
from fracdnn.experiments.depth_independence import DepthIndependence, prolong
from fracdnn.experiments.flow import separability
from fracdnn.experiments.page import filled
from fracdnn.experiments.part import Table, percent
from fracdnn.experiments.parts import PARTS
from fracdnn.experiments.table import TableSettings
from fracdnn.nn import FractionalNetwork
from tests.cli.commands import run as fracdnn_command
from tests.datasets.test_datasets import PERFUME, needs_perfume

DOCS = Path(__file__).parents[2] / "docs"
FREE = [name for name, part in PARTS.items() if not part.needs_perfume]


def reproduce(*arguments, out):
    """The command in a process of its own, with all runs in it."""
    command = [sys.executable, "-m", "fracdnn", "reproduce", *arguments, "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LOKY_MAX_CPU_COUNT": "1"})


def check_files(out, names):
    assert sorted(path.name for path in out.iterdir()) == sorted(
        f"{name}.{suffix}" for name in names for suffix in ("json", "png", "svg")
    )
    for name in names:
        document = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
        assert document["setting"] == "quick, not the paper's"
        assert document["versions"]["fracdnn"] == fracdnn.__version__
        assert document["settings"]
        assert PARTS[name].rows(document["numbers"])
        for table in PARTS[name].tables(document["numbers"]):
            assert all(len(row) == len(table.headings) for row in table.rows)
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert ElementTree.parse(out / f"{name}.svg").getroot().tag.endswith("svg")


@needs_perfume
def test_every_part_runs_quickly(tmp_path):
    run = reproduce("all", "--quick", "--perfume", str(PERFUME), out=tmp_path)
    assert run.returncode == 0, run.stderr
    check_files(tmp_path, PARTS)
    assert "not the paper's setting" in run.stdout
    for name in PARTS:
        assert name[:12] in run.stdout
        assert name in run.stderr  # its bar
    assert run.stdout.strip().endswith(str(tmp_path).split("/")[-1])


def test_parts_by_name_without_the_perfume_table(tmp_path):
    """All that do without it; two of them, one in several processes, where the test above has run every part."""
    names = ["gradient-test", "nonsmooth"] if PERFUME.exists() else FREE
    run = fracdnn_command("reproduce", *names, "--quick", "--out", tmp_path, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    check_files(tmp_path, names)


def test_without_the_perfume_table_other_parts_run_and_the_end_says_what_is_missing(tmp_path, monkeypatch, capsys):
    """Nothing in the cache, and a network that nobody answers on."""
    monkeypatch.setenv("FRACDNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    needing = [name for name, part in PARTS.items() if part.needs_perfume]
    out = tmp_path / "results"
    with pytest.raises(typer.Exit) as ended:
        reproduce_parts([needing[0], "mittag-leffler", needing[1]], out, quick=True, perfume_path=None)
    assert ended.value.exit_code == 1
    check_files(out, ["mittag-leffler"])
    told = capsys.readouterr()
    assert f"numbers and figures: {out}" in told.out
    first, last = told.err.splitlines()[0], told.err.splitlines()[-1]
    assert first == "fracdnn: the perfume table cannot be fetched; other parts run without it"
    assert last.startswith(f"fracdnn: {needing[0]}, {needing[1]} could not run without the perfume table: ")
    assert last.endswith("(or --perfume PATH)")
    with pytest.raises(typer.Exit):
        reproduce_parts(needing[:1], tmp_path / "none", quick=True, perfume_path=None)
    assert not list((tmp_path / "none").iterdir())


def test_what_the_user_can_mend(tmp_path):
    run = fracdnn_command("reproduce", "tabel", "--out", tmp_path, cwd=tmp_path)
    assert run.returncode == 1
    assert "no result is called 'tabel'; choose from all, mittag-leffler, gradient-test" in run.stderr
    run = fracdnn_command("reproduce", "table", "--perfume", "nowhere.csv", "--out", tmp_path, cwd=tmp_path)
    assert run.returncode == 1
    assert "nowhere.csv" in run.stderr
    assert "--perfume PATH" in run.stderr
    for each in (run.stdout, run.stderr):
        assert "Traceback" not in each
    assert "table" in fracdnn_command("reproduce", "list", cwd=tmp_path).stdout


def test_settings_are_those_of_the_paper():
    level_sets, level_sets_fractional, perfumes, perfumes_fractional = TableSettings().columns
    for column, order in ((level_sets, 1.0), (level_sets_fractional, 0.1)):
        assert (column.order, column.n_layers, column.n_batches, column.iterations) == (order, 5, 6, 30)
        assert (column.class_map, column.operator, column.bias) == (1e-1, 1e2, 1e-2)
    for column, order in ((perfumes, 1.0), (perfumes_fractional, 0.9)):
        assert (column.order, column.n_layers, column.n_batches, column.iterations) == (order, 35, 567, 15)
        assert (column.class_map, column.operator, column.bias) == (1e-8, 0.0, 0.0)
    assert DepthIndependence().depths == (5, 10, 20, 40, 80)
    assert PARTS["vanishing-gradient"].full.n_layers == 70


@pytest.mark.parametrize("depth", [4, 7, 12])
def test_prolongation_keeps_what_is_linear_in_time(depth):
    coarse, fine = (FractionalNetwork(2, 2, n_layers=n, step_size=1 / n).double() for n in (4, depth))
    slope = torch.randn(2, 2, dtype=torch.float64)
    with torch.no_grad():
        for j in range(4):
            coarse.K[j] = 1 + slope * j / 4
            coarse.b[j] = j / 4
    prolong(coarse, fine)
    torch.testing.assert_close(fine.W, coarse.W)
    for j in range(depth):
        t = min(j / depth, 3 / 4)  # constant behind the last layer
        torch.testing.assert_close(fine.K[j].detach(), 1 + slope * t)
        torch.testing.assert_close(fine.b[j].detach(), torch.full((2,), t, dtype=torch.float64))


def test_separability_is_that_of_a_linear_classifier():
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1.0]]).repeat(10, 0)
    assert separability(corners, corners[:, 0].astype(int)) == 1.0
    assert separability(corners, (corners.sum(1) % 2).astype(int)) <= 0.75  # exclusive or


def test_tables_and_percentages_as_text():
    table = Table("t", ("a", "b"), [["1", "2"]])
    assert table.markdown() == "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert percent([0.5, 0.75]) == "62.50 (50.00 to 75.00)"


def test_the_pages_tables_are_those_of_the_results():
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert filled(text, DOCS / "results") == text, (
            f"run python -m fracdnn.experiments.page docs/{page.name} docs/results"
        )
    for path in (DOCS / "results").glob("*.json"):
        if path.stem in PARTS:
            assert json.loads(path.read_text(encoding="utf-8"))["setting"] == "the paper's"


def test_the_figure_in_words_is_that_of_the_results():
    numbers = json.loads((DOCS / "results" / "gradient-test.json").read_text(encoding="utf-8"))["numbers"]
    (largest,) = (c["first_layer"] for c in numbers["comparisons"] if c["order"] == 0.1 and c["adjoint"] != "exact")
    text = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    assert "<!-- table gradient-test 0 -->" in text
    assert f"{largest:.0f}-fold" in text
