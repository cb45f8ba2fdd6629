"""Tables changed at random: cells, columns, separators, encodings and bytes; and whether each is read and prepared."""

import gzip
import io
import json
import zipfile
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl

from fracdnn.exceptions import FracdnnError, TableError
from fracdnn.tables import reading
from fracdnn.tables.encoder import Encoder
from fracdnn.tables.targets import split_target, target_values, task_of
from tests.campaign.changes import BYTES, drawn, raised, unclear, with_bytes
from tests.tables.learning import inputs_of, learned_from

N = 14
COLUMNS = {
    "length": [f"{k / 7:.3f}" for k in range(N)],
    "colour": [("red", "green", 'said "blue, dark"\nand left')[k % 3] for k in range(N)],
    "weight": ["" if k == 3 else str(10 - k) for k in range(N)],
    "y": [str(k % 2) for k in range(N)],
}
CELLS = [
    *("", " ", "NA", "nan", "NaN", "inf", "-inf", "Infinity", "1e999", "-1e-999", "1e308", "9" * 400, "0x10", "1_000"),
    *("1,5", "1,500", "1.500,00", "1,000,000", "٣", "½", "−1", "+1", "--1", "1e", "e1", ".", ",", ";", "\t", "|", '"'),
    *('""', '"a', 'a"b', "'", "\\", "\r", "\n", "\x00", "\ufeff", "\u200b", "é", "🙂", "\x1b[31m", "true", "FALSE"),
    *("2024-02-30", "12:00", "1/2/2024", "(missing)", "None", "null", "x" * 5000, "=1+1", "#REF!", "0", "-0", "2"),
]
TEXT = ("cell", "cell", "cell", "fewer", "more", "heading", "double", "separator", "ends", "encoding", "rows", "quotes")
COLUMN_KINDS = [
    lambda n: [date(2024, 1, 1) + timedelta(k) for k in range(n)],
    lambda n: [datetime(2024, 1, 1, k % 24) for k in range(n)],
    lambda n: [timedelta(k) for k in range(n)],
    lambda n: [[1, 2]] * n,
    lambda n: [{"a": 1}] * n,
    lambda n: [b"\xff\x00"] * n,
    lambda n: [Decimal("1.5")] * n,
    lambda n: [None] * n,
    lambda n: [float("nan")] * n,
    lambda n: [float("inf"), *[1.0] * (n - 1)],
    lambda n: [True, None] * (n // 2),
    lambda n: [2**63 - 1] * n,
    lambda n: pl.Series(["a", "b"] * (n // 2), dtype=pl.Categorical),
    lambda n: pl.Series(["a", "b"] * (n // 2), dtype=pl.Enum(["a", "b"])),
    lambda n: pl.Series([k % 2 for k in range(n)], dtype=pl.UInt8),
    lambda n: pl.Series([0.5] * n, dtype=pl.Float32),
    lambda n: pl.Series([1] * n, dtype=pl.Int128),
    lambda n: [object.__name__, ""] * (n // 2),
]
FRAME = ("kind", "kind", "name", "rows")


def _csv(columns, separator=","):
    def quoted(cell):
        return '"' + cell.replace('"', '""') + '"' if any(mark in cell for mark in (separator, '"', "\n")) else cell

    rows = [list(columns), *zip(*columns.values(), strict=True)]
    return "".join(separator.join(map(quoted, row)) + "\n" for row in rows).encode()


def ready(folder):
    frame = pl.read_csv(_csv(COLUMNS))
    binary = {}
    for name, write in ((".parquet", frame.write_parquet), (".xlsx", frame.write_excel)):
        write(folder / f"good{name}")
        binary[name] = (folder / f"good{name}").read_bytes()
    return {"folder": folder, "frame": frame, **binary}


def undamaged(world):
    return [(ending, []) for ending in (".csv", ".tsv", ".csv.gz", ".parquet", ".xlsx")]


def draw(world, chosen):
    # An .xlsx takes some ten times as long as the others.
    ending = chosen.choices([".csv", ".tsv", ".csv.gz", ".parquet", ".xlsx"], [80, 6, 4, 8, 2])[0]
    if ending == ".parquet":
        kinds = chosen.choice([FRAME, BYTES[:-1]])
    elif ending == ".xlsx":
        kinds = chosen.choice([BYTES[:-1], ("part",), FRAME])
    else:
        kinds = chosen.choices([TEXT, BYTES[:-1], ("packed",)], [75, 20, 5 if ending == ".csv.gz" else 0])[0]
    return ending, [drawn(chosen, chosen.choice(kinds)) for _ in range(chosen.choice([1, 1, 2, 3]))]


def changed(world, ending, changes):
    """The bytes of the file with the changes."""
    if ending in (".parquet", ".xlsx"):
        data = _framed(world, ending, [change for change in changes if change[0] in FRAME])
    else:
        data = _texts(ending, [change for change in changes if change[0] in TEXT])
    for kind, *values in changes:
        if kind in BYTES:
            data = with_bytes(data, kind, *values)
        elif kind == "part":
            data = _inside_zip(data, *values)
    if ending == ".csv.gz":
        data = gzip.compress(data, 1, mtime=0)
        for kind, *values in changes:
            if kind == "packed":
                data = with_bytes(data, BYTES[values[2] % 6] if values[2] % 6 not in (2, 4) else "flip", *values)
    return data


def _texts(ending, changes):
    """Names and cells first, then how they are written."""
    names = list(COLUMNS)
    rows = [list(row) for row in zip(*COLUMNS.values(), strict=True)]
    how = {"separator": "\t" if ending == ".tsv" else ",", "end": "\n", "encoding": "utf-8", "quote": '"'}
    for kind, a, b, c in changes:
        row, cell = rows[a % len(rows)] if rows else [], CELLS[c % len(CELLS)]
        if kind == "cell" and row:
            row[b % len(row)] = cell
        elif kind == "fewer" and row:
            del row[b % len(row)]
        elif kind == "more":
            row.insert(b % (len(row) + 1), cell)
        elif kind == "heading" and names:
            names[b % len(names)] = cell
        elif kind == "double" and names:
            names[a % len(names)] = names[b % len(names)]
        elif kind == "rows":
            del rows[a % 4 :]
        elif kind == "separator":
            how["separator"] = [";", "|", "\t", " ", ",", ";;"][b % 6]
        elif kind == "ends":
            how["end"] = ["\r\n", "\r", "\n\n", "\n\r", "\v", ""][b % 6]
        elif kind == "encoding":
            how["encoding"] = ["latin-1", "utf-16", "utf-8-sig", "utf-16-le", "cp1252", "utf-32"][b % 6]
        elif kind == "quotes":
            how["quote"] = ["'", "", '""'][b % 3]
    return _written(names, rows, **how)


def _written(names, rows, *, separator, end, encoding, quote):
    def quoted(cell):
        inside = cell.replace('"', '""') if quote == '"' else cell
        return f"{quote}{inside}{quote}" if any(mark in cell for mark in (separator, '"', "\n")) else cell

    lines = "".join(separator.join(map(quoted, row)) + end for row in [names, *rows])
    return lines.encode(encoding, "replace")


def _framed(world, ending, changes):
    if not changes:
        return world[ending]
    frame = world["frame"]
    for kind, a, b, c in changes:
        name = frame.columns[a % frame.width]
        if kind == "kind" and frame.height == N:
            frame = frame.with_columns(pl.Series(name, COLUMN_KINDS[b % len(COLUMN_KINDS)](N), strict=False))
        elif kind == "name" and (new := CELLS[c % len(CELLS)]) not in frame.columns:
            frame = frame.rename({name: new})
        elif kind == "rows":
            frame = frame.head(b % 3)
    file = io.BytesIO()
    try:
        frame.write_parquet(file) if ending == ".parquet" else frame.write_excel(file)
    except Exception:  # of any kind: what Polars cannot write is no file
        return world[ending]
    return file.getvalue()


def _inside_zip(data, a, b, c):
    """A byte changed in one of the files of a zip, whose checksums are right again."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
    except zipfile.BadZipFile:
        return data
    names = sorted(parts)
    name = names[a % len(names)]
    parts[name] = with_bytes(parts[name], ("flip", "cut", "drop")[c % 3], b, c)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for each, content in parts.items():
            archive.writestr(each, content)
    return file.getvalue()


def problem(world, case):
    ending, changes = case
    path = world["folder"] / f"changed{ending}"
    path.write_bytes(changed(world, ending, changes))
    try:
        table = reading.read_table(str(path))
    except TableError as error:
        return unclear(error, path)
    except BaseException as error:
        return f"reading {raised(error)}"
    try:
        features, values, _ = split_target(table, "y")
        target_values(values, task_of(values))
        encoding, notes = learned_from(features)
        X = inputs_of(encoding, features)
    except FracdnnError as error:
        return unclear(error)
    except BaseException as error:
        return f"preparing {raised(error)}"
    found = _doubts(encoding, notes, features, X)
    # A tenth of the cases is enough for what takes twice as long as all the rest.
    if found is None and (not changes or changes[0][1] % 10 == 0):
        found = _differs_after_a_round_trip(encoding, features, X) or _differs_in_parts(path, encoding, table)
    return found


def _doubts(encoding, notes, features, X):
    """What is wrong with features that came without an error."""
    n = features.height
    if X.shape != (n, len(encoding.feature_names)) or not np.isfinite(X).all():
        return f"gives features of shape {X.shape} for {n} rows, or some that are not finite"
    if sum("is left out" in note for note in notes) + len(encoding.columns) != features.width:
        return "loses columns without a word"
    return None


def _differs_after_a_round_trip(encoding, features, X):
    again = Encoder.from_state(json.loads(json.dumps(encoding.state())))
    if not np.array_equal(inputs_of(again, features), X):
        return "prepares otherwise after a round trip through a document"
    return None


def _differs_in_parts(path, encoding, table):
    """As `predict` reads it, numbers as numbers, whole and in small parts: the same features, or the same refusal."""
    try:
        whole = inputs_of(encoding, table)
    except TableError:  # for a row that has no target, so none of those learned from
        return None
    before = reading.PART_ROWS
    for size in (before, 7) if ".csv" in path.suffixes else (before,):
        reading.PART_ROWS = size
        try:
            parts = list(reading.read_parts(str(path)))
            found = [inputs_of(encoding, part) for part in parts]
        except BaseException as error:
            return f"reading parts of {size} rows {raised(error)}"
        finally:
            reading.PART_ROWS = before
        if not np.array_equal(np.vstack(found), whole):
            return f"gives other features in parts of {size} rows"
    return None


def rebuilt(ending, changes, folder):
    """The changed file of a finding, written into the folder for a closer look."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    world = ready(folder)
    print(folder / f"changed{ending}", problem(world, (ending, changes)))
