"""Tables of text: headings, and encodings that are not UTF-8."""

import gzip
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import xlsxwriter
from polars.testing import assert_frame_equal

from fracdnn.exceptions import InvalidArgumentError, TableError
from fracdnn.tables import Encoder, reading
from fracdnn.tables.frames import as_polars
from tests.tables.tables import mixed, write, write_parts


@pytest.mark.parametrize("part_rows", [reading.PART_ROWS, 20])
def test_names_may_hold_line_ends(part_rows, tmp_path, monkeypatch):
    """As spreadsheets write them: every part of the table has the whole heading."""
    monkeypatch.setattr(reading, "PART_ROWS", part_rows)
    rows = "".join(f"{k},{k % 3}\n" for k in range(100))
    (tmp_path / "t.csv").write_text(f'"length\nin ""mm""","y"\n{rows}', encoding="utf-8")
    table = reading.read_table(str(tmp_path / "t.csv"))
    assert table.columns == ['length\nin "mm"', "y"]
    assert table["y"].to_list() == [str(k % 3) for k in range(100)]


NAMES = {
    "latin-1": "Größe",
    "cp1252": "Preis €",
    "utf-16": "größe",
    "utf-16-le": "größe",
    "utf-32": "größe",
    "shift_jis": "大きさ",
}


@pytest.mark.parametrize("encoding", NAMES)
@pytest.mark.parametrize("part_rows", [reading.PART_ROWS, 5])
@pytest.mark.parametrize("ending", ["csv", "tsv.gz"])
def test_other_encodings_give_the_table_of_utf_8(encoding, part_rows, ending, tmp_path, monkeypatch):
    """In parts too, cells with line ends among them."""
    monkeypatch.setattr(reading, "PART_ROWS", part_rows)
    separator = "," if ending == "csv" else "\t"
    rows = "".join(f'"{NAMES[encoding]}\n{k}"{separator}{k}\n' for k in range(40))
    text = f"{NAMES[encoding]}{separator}y\n{rows}"
    found = {}
    for name in (encoding, "utf-8"):
        content = text.encode(name)
        path = tmp_path / f"{name}.{ending}"
        path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
        found[name] = reading.read_table(str(path), name)
    assert_frame_equal(found[encoding], found["utf-8"])
    assert found[encoding].columns == [NAMES[encoding], "y"]
    assert found[encoding][NAMES[encoding]][39] == f"{NAMES[encoding]}\n39"


@pytest.mark.parametrize(
    ("content", "guess"),
    [
        ("a,b\ncafé,1\n".encode("latin-1"), "--encoding latin-1, which it looks like"),
        ("a,b\n5 €,1\n".encode("cp1252"), "--encoding cp1252, which it looks like"),
        ("a,b\ncafé,1\n".encode("utf-16"), "--encoding utf-16, which it looks like"),
        ("a,b\ncafé,1\n".encode("utf-16-le"), "--encoding utf-16-le, which it looks like"),
        ("a,b\ncafé,1\n".encode("utf-16-be"), "--encoding utf-16-be, which it looks like"),
        ("a,b\ncafé,1\n".encode("utf-32"), "--encoding utf-32, which it looks like"),
        (b"a,b\n\x81\x8d\xe9,1\n", "--encoding NAME, the one that it was saved in"),
    ],
)
def test_what_is_not_utf_8_names_the_option_and_a_guess_that_is_right(content, guess, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(TableError, match=f"t.csv must be in UTF-8, got .*; pass {guess}, or save it as UTF-8"):
        reading.read_table(str(path))
    name = guess.split()[1].rstrip(",")
    if name != "NAME":
        assert reading.read_table(str(path), name)["a"][0] in ("café", "5 €")


def test_encodings_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("a,b\ncafé,1\n".encode("latin-1"))
    for encoding, message in (
        ("ascii", "must be in ascii, got bytes that are not .*; pass another --encoding, or leave it out for UTF-8"),
        ("utf-16", "must be in utf-16"),
    ):
        with pytest.raises(TableError, match=message):
            reading.read_table(str(path), encoding)
    for encoding in ("latin-nine", "base64", "\0", "undefined"):
        with pytest.raises(InvalidArgumentError, match="encoding must be one of text that Python knows, got"):
            reading.read_table(str(path), encoding)
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(TableError, match=r"must be a \.csv or \.tsv file for --encoding, got a \.parquet file"):
        reading.read_table(str(tmp_path / "t.parquet"), "latin-1")


def test_a_name_that_occurs_twice(tmp_path):
    (tmp_path / "t.csv").write_text('b,"a",c,a\n1,2,3,4\n', encoding="utf-8")
    (tmp_path / "t.tsv").write_text("b\ta\tc\ta\n1\t2\t3\t4\n", encoding="utf-8")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"b;a;a;a\n1;2;3;4\n"))
    with xlsxwriter.Workbook(tmp_path / "t.xlsx") as book:
        sheet = book.add_worksheet()
        for row, cells in enumerate((["b", "a", "c", "a"], [1, 2, 3, 4])):
            sheet.write_row(row, 0, cells)
    for name, times in (("t.csv", 2), ("t.tsv", 2), ("t.csv.gz", 3), ("t.xlsx", 2)):
        path = str(tmp_path / name)
        message = f"{re.escape(path)} must have each column once, got 'a' {times} times; rename or remove one"
        with pytest.raises(TableError, match=message):
            reading.read_table(path)
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(TableError, match="the frame must have each column once, got 'a' 2 times"):
        as_polars(frame)


def test_columns_without_a_name_may_be_several(tmp_path):
    """As a spreadsheet leaves them at the right."""
    path = tmp_path / "t.csv"
    path.write_text('a,"b ""c""",,\n1,2,,5\n', encoding="utf-8")
    names = ["a", 'b "c"', "Unnamed: 2", "Unnamed: 3"]
    assert reading.read_table(str(path)).to_dicts() == [dict(zip(names, ("1", "2", None, "5"), strict=True))]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
@pytest.mark.parametrize("part_rows", [reading.PART_ROWS, 20])
def test_a_row_with_too_many_cells_is_named_by_its_line(name, part_rows, tmp_path, monkeypatch):
    """Also behind cells of several lines, and in a later part."""
    monkeypatch.setattr(reading, "PART_ROWS", part_rows)
    path = tmp_path / name
    rows = ["x,1", '"a\nb",2'] * 30 + ["Smith, John,3", *["y,4"] * 30]
    content = '"full\nname",n\n' + "\n".join(rows)
    path.write_bytes(gzip.compress(content.encode()) if name.endswith("gz") else content.encode())
    line = content[: content.index("Smith")].count("\n") + 1
    message = (
        f"must be a table whose rows have as many cells as its heading, got 3 in line {line} in place of 2; "
        f"correct that line, and put cells with ',' in double quotes"
    )
    with pytest.raises(TableError, match=message):
        reading.read_table(str(path))


@pytest.mark.parametrize("first", ["# export of 2024-01-02", "sep=,"])
def test_a_line_above_the_heading_is_named(first, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"{first}\na,b,y\n1,2,3\n", encoding="utf-8")
    with pytest.raises(TableError, match=f"got 3 in line 2 in place of .* let line 1 name all columns, .* '{first}'$"):
        reading.read_table(str(path))


def a_damaged_part(folder, ending):
    (folder / f"part-001.{ending}").write_bytes(b"\xff\xfe nothing\n" * 9)


def another_column(folder, ending):
    write(mixed(50).rename({"age": "years"}), folder / f"part-001.{ending}")


def another_type(folder, ending):
    write(mixed(50).with_columns(pl.col("age").cast(pl.String)), folder / f"part-001.{ending}")


def another_kind(folder, ending):
    write(mixed(50), folder / "part-001.tsv")


def a_folder(folder, ending):
    (folder / "part-001").mkdir()


FAULTS = [
    (a_damaged_part, "parquet", "must be a .parquet file, got one that cannot be read"),
    (a_damaged_part, "csv", "must be in UTF-8"),
    (another_column, "parquet", "must have the columns of .*part-000.parquet, got 'years' beside them"),
    (another_column, "csv", "got 'years'"),
    (another_type, "parquet", "must have cells of type Int64 in column 'age' as .*part-000.parquet has, got String"),
    (another_kind, "parquet", "must be of the same kind as .*part-000.parquet"),
    (a_folder, "parquet", "must hold parts of a table only, got the folder .*part-001"),
]


@pytest.mark.parametrize(("fault", "ending", "message"), FAULTS)
def test_a_part_that_is_not_like_the_others_is_named(fault, ending, message, tmp_path):
    folder = write_parts(mixed(), tmp_path / "parts", ending, 3)
    fault(folder, ending)
    with pytest.raises(TableError, match=message) as refused:
        reading.read(str(folder))
    assert "part-001" in str(refused.value)


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_tables_as_clusters_write_them(ending, tmp_path):
    """Parts without rows or without bytes, folders NAME=VALUE, and patterns; addresses of buckets are refused."""
    table = pl.DataFrame({"a": [1.5, 2.5, 3.5], "y": [0.1, 0.2, 0.3]})
    for day, rows in (("1", table[:2]), ("2%202", table[2:]), ("3", table[:0])):
        folder = tmp_path / "t" / f"dt={day}"
        folder.mkdir(parents=True)
        write(rows, folder / f"part-0.{ending}")
        (folder / f"part-1.{ending}").write_bytes(b"")
    (tmp_path / "t" / "_SUCCESS").touch()
    for source in (tmp_path / "t", tmp_path / "t" / "dt=*", tmp_path / "*" / "dt=*" / f"*-[01].{ending}"):
        found, summary = reading.read(str(source))
        assert found["dt"].to_list() == ["1", "1", "2 2"]
        assert found["a"].cast(pl.Float64).to_list() == [1.5, 2.5, 3.5]
        assert len(summary.files) == 6
    for source, message in (
        (tmp_path / "t" / "dt=3", "must hold at least one row below its heading"),
        (tmp_path / "no*", "got no file; check the pattern"),
        ("s3://b/t", "must be a file or folder on this machine or a mounted one, got s3://b/t"),
    ):
        with pytest.raises(TableError, match=message):
            reading.read(str(source))
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match=r"must hold parts of a table .* got an empty folder"):
        reading.read(str(tmp_path / "empty"))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_an_encoder_of_a_first_part_serves_the_others(ending, tmp_path, monkeypatch):
    """As `partial_fit` over the batches of a table larger than memory does it."""
    monkeypatch.setattr(reading, "PART_ROWS", 70)
    path = write(mixed().drop("y"), tmp_path / f"t.{ending}")
    parts = list(reading.read_parts(str(path)))
    assert max(part.height for part in parts) <= 70 < sum(part.height for part in parts)
    encoder = Encoder.fit(parts[0])
    inputs = np.vstack([encoder.transform(part) for part in parts])
    np.testing.assert_array_equal(inputs, encoder.transform(pl.concat(parts)))


def test_the_summary_tells_of_sheets(tmp_path):
    with xlsxwriter.Workbook(tmp_path / "t.xlsx") as book:
        for name in ("first", "second"):
            sheet = book.add_worksheet(name)
            sheet.write_row(0, 0, ["a"])
            sheet.write_row(1, 0, [name])
    path = str(tmp_path / "t.xlsx")
    table, summary = reading.read(path)
    assert (table["a"].to_list(), summary.sheets) == (["first"], ("first", "second"))
    assert summary.notes() == ["reading the sheet 'first' of 'first', 'second'; --sheet NAME reads another"]
    assert reading.read(path, sheet="second")[0]["a"].to_list() == ["second"]
    with pytest.raises(TableError, match=r"must have the sheet 'secnd' \(did you mean 'second'\?\)"):
        reading.read(path, sheet="secnd")
