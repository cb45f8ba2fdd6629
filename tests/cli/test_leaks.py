"""Row numbers and ids are left out of a table's model, which terminal and report say; --keep uses them."""

import json
import re

import numpy as np
import polars as pl
import pytest

from tests.cli.commands import run

QUICK = ["--max-iter", "40", "--n-members", "1"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A table in the order of its target, with row numbers from 1 on, as R writes them, and with numbers of orders."""
    folder = tmp_path_factory.mktemp("leaks")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 400))
    table = pl.DataFrame(
        {"a": a, "b": b, "order": rng.permutation(400) * 7, "y": a + np.sin(b) + rng.normal(0, 0.5, 400)}
    )
    table = table.sort("y").with_row_index("n", offset=1).sample(fraction=1, shuffle=True, seed=1)
    table.write_csv(folder / "t.csv")
    return folder


def trained(place, *options):
    done = run("train", "t.csv", "--target", "y", *QUICK, "--json", *options, cwd=place)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_row_numbers_are_left_out_and_said_to_be(place, tmp_path):
    honest, told = trained(place, "--run", tmp_path / "run")
    why = "it numbers the rows, from 1 to 400; --keep 'n' uses it"
    assert re.search(rf"\n  n +left out .*{re.escape(why)}\n", told)
    assert "'order' holds a different whole number in each row; if that is an id, leave it out: --drop 'order'" in told
    assert honest["left_out"] == ["n"]
    assert honest["test"]["R2"] < 0.9
    leaking, told = trained(place, "--keep", "n", "--run", tmp_path / "kept")
    assert "left out" not in told
    assert leaking["test"]["R2"] > 0.97
    page, warned = tmp_path / "report.html", tmp_path / "warned.html"
    assert run("report", tmp_path / "run", "--out", page, cwd=place).returncode == 0
    assert "it numbers the rows, from 1 to 400; --keep &#39;n&#39; uses it" in page.read_text(encoding="utf-8")
    assert "explains nearly everything" not in page.read_text(encoding="utf-8")
    assert run("report", tmp_path / "kept", "--out", warned, cwd=place).returncode == 0
    assert "Possible leak: column “n” explains nearly everything by itself." in warned.read_text(encoding="utf-8")
    assert "n" in pl.read_csv(tmp_path / "run" / "held-out.csv").columns


def test_a_model_without_the_row_number_predicts_for_tables_without_it(place, tmp_path):
    trained(place, "--out", tmp_path / "m.fracdnn")
    pl.read_csv(place / "t.csv").drop("n", "y").write_csv(tmp_path / "new.csv")
    done = run("predict", "m.fracdnn", "new.csv", "--out", "p.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_where_nothing_else_is_left(tmp_path):
    """Row numbers alone are what there is to learn from; ids by their name are not."""
    for name in ("x", "id"):
        pl.DataFrame({name: range(60), "y": np.sin(np.arange(60) / 9)}).write_csv(tmp_path / f"{name}.csv")
    options = ["--target", "y", "--out", "m.fracdnn", "--max-iter", "3"]
    assert run("train", "x.csv", *options, cwd=tmp_path).returncode == 0
    done = run("train", "id.csv", *options, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "fracdnn: the table must have a column to learn from, got none: column 'id' is left out: it is an id, by its "
        "name and its different values; --keep 'id' uses it"
    )
    assert run("train", "id.csv", *options, "--keep", "id", cwd=tmp_path).returncode == 0


def test_columns_to_keep_must_be_there_and_not_dropped(place, tmp_path):
    options = ["--target", "y", "--out", tmp_path / "m"]
    done = run("train", "t.csv", *options, "--keep", "N", cwd=place)
    assert done.returncode == 1
    assert "the table must have the column 'N' (did you mean 'n'?)" in done.stderr
    done = run("train", "t.csv", *options, "--keep", "n", "--drop", "n", cwd=place)
    assert done.returncode == 2
    assert "must be no column of --drop, got 'n'; leave one out" in done.stderr
    (tmp_path / "settings.toml").write_text('keep = ["n"]\nmax_iter = 2\n', encoding="utf-8")
    done = run("train", "t.csv", *options, "--config", tmp_path / "settings.toml", cwd=place)
    assert done.returncode == 0
    assert "left out" not in done.stderr
