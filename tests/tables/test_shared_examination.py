"""A table examined by several real processes: the same bits as by one, and one error where one is in trouble."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fracdnn.tables import reading
from fracdnn.tables.streaming import read_piece
from tests.tables.rank_tables import COUNTS, DIVISION, TABLES, stream_of
from tests.tables.tables import mixed, write_parts
from tests.training.rank_groups import loaded

ROOT = Path(__file__).parents[2]
N = 21_000


def run(folder, what):
    command = [sys.executable, "-m", "tests.tables.rank_tables", str(folder), what]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def tables(tmp_path):
    """More different numbers than a sketch of quantiles holds, of sizes that make every sum round."""
    rng = np.random.default_rng(2)
    scales = 10.0 ** rng.uniform(-3, 3, N)
    more = {
        "large": pl.Series(rng.standard_normal(N) * scales),
        "late": pl.Series(["1"] * (N - N // 15) + ["text"] * (N // 15)),
        "early": pl.Series(["text"] * (N // 15) + ["1"] * (N - N // 15)),
        "strays": pl.Series(["<0.1"] + [str(k % 80) for k in range(N - 4)] + ["n.d.", "<0.1", "?!"]),
        "many": pl.Series([f"k{k // 190}" for k in range(N)]),
        "value": pl.Series(rng.standard_normal(N) * scales),
        "color": pl.Series(["red", None, "blue", "green"]).sample(N, with_replacement=True, seed=1),
    }
    table = mixed(N).with_columns(**more)
    for ending, n_parts in (("csv", 3), ("parquet", 4), ("csv.gz", 2)):
        write_parts(table, tmp_path / ending, ending, n_parts)
    return tmp_path


@pytest.mark.slow
def test_any_number_of_processes_finds_the_same_bits(tables, monkeypatch):
    monkeypatch.setattr(reading, "PART_BYTES", reading.PART_BYTES)  # which `stream_of` sets
    message = with_bad_cells(tables / "bad")
    run(tables, "equal")
    ((alone, n_pieces),) = loaded(tables / "1", 1)
    for count in COUNTS:
        ranks = loaded(tables / str(count), count)
        assert all(found == alone for found, _ in ranks)
        assert sum(n_read for _, n_read in ranks) == n_pieces
        assert max(n_read for _, n_read in ranks) <= n_pieces / count + len(TABLES) + 1
    check_found(alone, tables)
    assert alone["bad"] == message


def with_bad_cells(folder):
    """Two cells that are not finite, in rows to test of the second file; gives what is said of the first."""
    rows = 100_000
    table = pl.DataFrame({"a": [f"{k:05d}" for k in range(rows)], "y": np.arange(rows) % 2})
    write_parts(table, folder, "csv", 2)
    stream = stream_of(folder)
    pieces = [piece for piece in stream.pieces if piece.file.path.endswith("part-001.csv")]
    cells = []
    for piece in (pieces[1], pieces[-1]):
        (frame,) = read_piece(piece)
        row = int(np.flatnonzero(DIVISION.roles(DIVISION.generator(piece), frame.height) == 2)[9])
        cells.append(frame["a"][row])
    path = Path(pieces[0].file.path)
    content = path.read_text()
    first = next(number for number, line in enumerate(content.splitlines()) if line.startswith(cells[0]))
    path.write_text(content.replace(f"{cells[0]},", "inf,").replace(f"{cells[1]},", "-inf,"))
    return (
        f"TableError: column 'a' must hold finite numbers, got inf in row {first} of {path}; "
        f"correct the cell, or leave it empty if it is not known"
    )


def check_found(alone, folder):
    """That the tables are what they are for: long, with columns that only the whole table explains."""
    table = pl.read_parquet(folder / "parquet" / "*.parquet")
    for source, target in TABLES:
        found = alone[source, target]
        columns = {column["name"]: column for column in found["columns"]}
        assert all(columns[name]["categories"] == ("1", "text") for name in ("early", "late"))
        assert columns["strays"]["skips_text"]
        assert any(note.startswith("warning: column 'strays': ") for note in found["notes"])
        assert columns["kind"]["categories"] == ("blue", "green", "red")
        assert columns["kind"]["gaps"]
        assert columns["many"]["others"]
        assert found["left_out"]["id"].startswith("it is text with more than 10,000 different values")
        assert len(found["sizes"]) == 2 if source == "csv.gz" else len(found["sizes"]) > 12
        assert sum(map(sum, found["sizes"])) + found["n_without_target"] == N
        assert found["n_without_target"] == table[target].null_count()
        rank = (table["large"] <= columns["large"]["median"]).mean()
        assert abs(rank - 0.5) < 0.01  # of a share of the rows, drawn at random
    assert alone["csv", "y"]["digest"] != alone["csv.gz", "y"]["digest"]


def test_a_trouble_of_one_process_is_that_of_all(tables):
    run(tables, "faults")
    ranks = loaded(tables / "faults", 3)
    assert [rank["interrupted"] for rank in ranks] == ["KeyboardInterrupt: "] * 3
    for name, what in (("other table", "table"), ("other settings", "settings")):
        for rank in ranks:
            rule = f"InvalidArgumentError: {what} must be the same on all 3 ranks, got other on rank 1 than on rank 0"
            assert rank[name].startswith(rule)
    error = f"{tables / 'parquet' / 'part-003.parquet'} must be a .parquet file, got one that cannot be read"
    assert ranks[2]["unreadable"].startswith(f"TableError: {error}")
    for rank in ranks[:2]:
        assert rank["unreadable"].startswith(f"RankError: rank 2 failed in reading the table: {error}")
    for rank in ranks:
        assert rank["no such column"].startswith("TableError: the table must have the target column 'z'")
