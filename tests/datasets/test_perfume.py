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


def as_xlsx(rows, far=None):
    content = io.BytesIO()
    with xlsxwriter.Workbook(content) as book:
        sheet = book.add_worksheet()
        for number, row in enumerate(rows):
            sheet.write_row(number, 0, row)
        if far:
            sheet.write(far, 1)
    return content.getvalue()


def as_zip(files, method=zipfile.ZIP_DEFLATED):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
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
    with pytest.raises(InvalidArgumentError, match=r"got other readings \(checksum [0-9a-f]{8}…, not 6fc89b75…\) in "):
        load_perfume(path)
    path.write_bytes(as_csv(perfume_rows()[::-1]))
    with pytest.raises(InvalidArgumentError, match="got other readings"):
        load_perfume(path)


ROW = ["a"] + [1] * 28
TWENTY = [ROW] * 20
BAD_TABLES = {
    "empty": (b"", "0 lines instead of 20"),
    "first row taken for a heading": (as_csv(TWENTY[1:]), "19 lines instead of 20"),
    "short line": (as_csv([*TWENTY[1:], ["a", 1, 2]]), "a line of 3 cells instead of a name and 28 readings"),
    "word": (as_csv([*TWENTY[1:], [*ROW[1:], "x"]]), "the reading 'x' instead of a whole number"),
    "fraction": (as_csv([*TWENTY[1:], [*ROW[1:], 1.5]]), "the reading '1.5' instead of a whole number"),
    "missing": (as_xlsx([*TWENTY[1:], ROW[:-1]]), "the reading '' instead of a whole number"),
    "not finite": (as_csv([*TWENTY[1:], [*ROW[1:], "inf"]]), "the reading 'inf' instead of a whole number"),
    "other numbers": (as_xlsx(TWENTY), "other readings"),
    "not text": (b"\xff\xfe\x00", r"neither a spreadsheet \(.xlsx\) nor a CSV file in UTF-8"),
    "endless cell": (b"a" * 200_000, r"neither a spreadsheet \(.xlsx\) nor a CSV file in UTF-8"),
    "large": (b"a,1\n" * 300_000, "more than 1000000 bytes"),
    "half a spreadsheet": (as_xlsx(TWENTY)[:3000], r"a zip file or spreadsheet that cannot be read \("),
    "empty spreadsheet": (as_xlsx([]), r"a spreadsheet that cannot be read \(empty Excel sheet\)"),
    "zip called xlsx": (as_zip({"a.xlsx": as_zip({"xl/workbook.xml": b"<"})}), "a spreadsheet that cannot be read"),
    "zip without table": (as_zip({"a.txt": b""}), r"a zip file without a spreadsheet \(.xlsx\) or a CSV file"),
    "empty zip": (as_zip({}), r"a zip file without a spreadsheet \(.xlsx\) or a CSV file"),
    "far cell": (as_xlsx(TWENTY, far="XFD1048576"), "a spreadsheet with more than 999 rows or 702 columns"),
    "far row": (as_xlsx(TWENTY, far="A1000"), "a spreadsheet with more than 999 rows or 702 columns"),
    "bomb": (as_zip({"a.csv": b"\0" * 11_000_000}), "a file that unpacks to more than 10000000 bytes"),
    "many bombs": (
        as_zip({f"{number}.csv": b"\0" * 1_000_000 for number in range(11)}),
        "a file that unpacks to more than 10000000 bytes",
    ),
    "bomb in a spreadsheet": (
        as_zip({"a.xlsx": as_zip({"xl/workbook.xml": b"\0" * 11_000_000})}),
        "a file that unpacks to more than 10000000 bytes",
    ),
    "bomb that lies about its size": (
        as_zip({"a.csv": b"\0" * 11_000_000}).replace((11_000_000).to_bytes(4, "little"), (9).to_bytes(4, "little")),
        r"a zip file or spreadsheet that cannot be read \(Bad CRC-32",
    ),
    "uncommon packing": (
        as_zip({"a.csv": b""}, zipfile.ZIP_BZIP2),
        "a zip file packed by the uncommon method 12",
    ),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables(tmp_path, case):
    content, found = BAD_TABLES[case]
    path = tmp_path / "table"
    path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=f"path must hold the perfume table, got {found}.* in .*{REMEDY}"):
        load_perfume(path)


def test_bad_paths(tmp_path):
    rule = "path must name a readable file, got "
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
