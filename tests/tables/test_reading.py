"""Tables of text: headings, and encodings that are not UTF-8."""

import gzip
import re

import pandas as pd
import polars as pl
import pytest
import xlsxwriter
from polars.testing import assert_frame_equal

from fracdnn.exceptions import InvalidArgumentError, TableError
from fracdnn.tables import reading
from fracdnn.tables.frames import as_polars


@pytest.mark.parametrize("part_bytes", [reading.PART_BYTES, 200])
def test_names_may_hold_line_ends(part_bytes, tmp_path, monkeypatch):
    """As spreadsheets write them: every part of the table has the whole heading."""
    monkeypatch.setattr(reading, "PART_BYTES", part_bytes)
    rows = "".join(f"{k},{k % 3}\n" for k in range(100))
    (tmp_path / "t.csv").write_text(f'"length\nin ""mm""","y"\n{rows}', encoding="utf-8")
    table = reading.read_table(str(tmp_path / "t.csv"))
    assert table.columns == ['length\nin "mm"', "y"]
    assert table["y"].to_list() == [str(k % 3) for k in range(100)]
    assert pl.concat(reading.read_parts(str(tmp_path / "t.csv"), ["y"]))["y"].dtype == pl.Float64


NAMES = {
    "latin-1": "Größe",
    "cp1252": "Preis €",
    "utf-16": "größe",
    "utf-16-le": "größe",
    "utf-32": "größe",
    "shift_jis": "大きさ",
}


@pytest.mark.parametrize("encoding", NAMES)
@pytest.mark.parametrize("part_bytes", [reading.PART_BYTES, 50])
@pytest.mark.parametrize("ending", ["csv", "tsv.gz"])
def test_other_encodings_give_the_table_of_utf_8(encoding, part_bytes, ending, tmp_path, monkeypatch):
    """In parts too, cells with line ends among them."""
    monkeypatch.setattr(reading, "PART_BYTES", part_bytes)
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
@pytest.mark.parametrize("part_bytes", [reading.PART_BYTES, 200])
def test_a_row_with_too_many_cells_is_named_by_its_line(name, part_bytes, tmp_path, monkeypatch):
    """Also behind cells of several lines, and in a later part."""
    monkeypatch.setattr(reading, "PART_BYTES", part_bytes)
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
