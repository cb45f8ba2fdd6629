"""The perfume table from a file."""

import csv
import io
import zipfile

import numpy as np
import pytest
import xlsxwriter

from fracdnn.datasets import load_perfume
from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from tests.datasets.test_datasets import PERFUME, needs_perfume

REMEDY = r"; get perfume_data.xlsx from https://archive.ics.uci.edu/dataset/303/perfume\+data and pass where it is, "


def perfume_rows():
    with PERFUME.open(newline="", encoding="utf-8") as file:
        return [[row[0], *map(int, row[1:])] for row in list(csv.reader(file))[1:]]


def as_csv(rows, start=""):
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return (start + text.getvalue()).encode()


def as_xlsx(rows):
    content = io.BytesIO()
    with xlsxwriter.Workbook(content) as book:
        sheet = book.add_worksheet()
        for number, row in enumerate(rows):
            sheet.write_row(number, 0, row)
    return content.getvalue()


def as_zip(files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


HEADING = ["perfume", *(f"t{second}" for second in range(1, 29))]
SAME_TABLE = {
    "csv": as_csv,
    "csv with a heading": lambda rows: as_csv([HEADING, *rows]),
    "csv with a byte order mark and an empty line": lambda rows: as_csv([*rows, [""] * 29], start="\ufeff"),
    "csv with blanks and quoted names": lambda rows: as_csv([[f" '{row[0]}' ", *row[1:]] for row in rows]),
    "csv with decimal points": lambda rows: as_csv([[row[0], *map(float, row[1:])] for row in rows]),
    "xlsx": as_xlsx,
    "xlsx with a heading": lambda rows: as_xlsx([HEADING, *rows]),
    "xlsx with readings as text": lambda rows: as_xlsx([map(str, row) for row in rows]),
    "zip with the xlsx": lambda rows: as_zip({"notes.txt": b"", "perfume_data.xlsx": as_xlsx(rows)}),
    "zip with a csv in capitals": lambda rows: as_zip({"_PERFUME.CSV": as_csv(rows)}),
    "zip with a csv, packed on a Mac": lambda rows: as_zip({"__MACOSX/._a.csv": b"\0", "a.csv": as_csv(rows)}),
}


@needs_perfume
def test_perfume():
    perfume = load_perfume(PERFUME)
    assert perfume.data.shape == (560, 2)
    assert len(perfume.target_names) == 20
    assert len(np.unique(perfume.data, axis=0)) == 152
    assert perfume.data[:, 0].min() == 46
    assert perfume.data[:, 0].max() == 85
    assert perfume.data[0].tolist() == [64, 558]
    X_train, X_test, y_train, y_test = perfume.split_by_time()
    assert len(X_train) == len(X_test) == 280
    assert (np.bincount(y_train) == 14).all()
    assert (np.bincount(y_test) == 14).all()


@needs_perfume
@pytest.mark.parametrize("form", SAME_TABLE)
def test_every_form_is_the_same_table(tmp_path, form):
    path = tmp_path / "table"  # the content decides, not the name
    path.write_bytes(SAME_TABLE[form](perfume_rows()))
    expected, perfume = load_perfume(PERFUME), load_perfume(str(path))
    np.testing.assert_array_equal(perfume.data, expected.data)
    np.testing.assert_array_equal(perfume.target, expected.target)
    np.testing.assert_array_equal(perfume.second, expected.second)
    assert perfume.target_names == expected.target_names


@needs_perfume
def test_names_may_differ_but_neither_readings_nor_their_order(tmp_path):
    path, rows = tmp_path / "table.csv", perfume_rows()
    path.write_bytes(as_csv([["x", *row[1:]] for row in rows]))
    assert load_perfume(path).target_names == ["x"] * 20
    rows[3][7] += 1
    path.write_bytes(as_csv(rows))
    with pytest.raises(
        InvalidArgumentError, match=r"other readings, \[20, 28\] \(checksum [0-9a-f]{8}…, not 6fc89b75…\)"
    ):
        load_perfume(path)
    path.write_bytes(as_csv(perfume_rows()[::-1]))
    with pytest.raises(InvalidArgumentError, match="other readings"):
        load_perfume(path)


ROW = ["a"] + [1] * 28
TWENTY = [ROW] * 20
NO_TABLE = r"neither a spreadsheet \(.xlsx\) nor a CSV file of readings "
BAD_TABLES = {
    "empty": (b"", r"other readings, \[0\]"),
    "19 lines": (as_csv(TWENTY[1:]), r"other readings, \[19, 28\]"),
    "short line": (as_csv([*TWENTY[1:], ["a", 1, 2]]), NO_TABLE),
    "word": (as_csv([*TWENTY[1:], [*ROW[1:], "x"]]), rf"{NO_TABLE}\(could not convert string to float: 'x'"),
    "missing": (as_xlsx([*TWENTY[1:], ROW[:-1]]), NO_TABLE),
    "not finite": (as_csv([*TWENTY[1:], [*ROW[1:], "inf"]]), "other readings"),
    "other numbers": (as_xlsx(TWENTY), "other readings"),
    "not text": (b"\xff\xfe\x00", NO_TABLE),
    "endless cell": (b"a" * 200_000, NO_TABLE),
    "half a spreadsheet": (as_xlsx(TWENTY)[:3000], NO_TABLE),
    "empty spreadsheet": (as_xlsx([]), NO_TABLE),
    "zip called xlsx": (as_zip({"a.xlsx": as_zip({"xl/workbook.xml": b"<"})}), NO_TABLE),
    "zip without table": (as_zip({"a.txt": b""}), rf"{NO_TABLE}\(no .xlsx or .csv in the zip file\)"),
    "empty zip": (as_zip({}), NO_TABLE),
    "bomb": (as_zip({"a.csv": b"\0" * 11_000_000}), rf"{NO_TABLE}\(it unpacks to more than 10000000 bytes\)"),
    "bomb that lies about its size": (
        as_zip({"a.csv": b"\0" * 11_000_000}).replace((11_000_000).to_bytes(4, "little"), (9).to_bytes(4, "little")),
        rf"{NO_TABLE}\(Bad CRC-32",
    ),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables(tmp_path, case):
    content, found = BAD_TABLES[case]
    path = tmp_path / "table"
    path.write_bytes(content)
    with pytest.raises(
        InvalidArgumentError, match=f"path must hold the perfume table, got '.*table': {found}.*{REMEDY}"
    ):
        load_perfume(path)


def test_bad_paths(tmp_path):
    rule = "path must hold the perfume table, got "
    with pytest.raises(InvalidArgumentError, match=f"{rule}'.*none.csv': No such file or directory{REMEDY}"):
        load_perfume(tmp_path / "none.csv")
    with pytest.raises(InvalidArgumentError, match=rule):
        load_perfume(tmp_path)
    with pytest.raises(InvalidArgumentError, match=f"{rule}.*: embedded null"):
        load_perfume("a\0b")
    with pytest.raises(InvalidTypeError, match=f"path must be a str or a Path, got 303 of type int{REMEDY}"):
        load_perfume(303)
    with pytest.raises(InvalidArgumentError, match="url must be left out when path is given, got 'http://x'; pass one"):
        load_perfume("a.csv", url="http://x")
