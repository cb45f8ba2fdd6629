"""Pieces of tables: all rows once, in order; what cannot be read is named."""

import gzip
import io
import os

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fracdnn.exceptions import TableError
from fracdnn.tables import reading
from fracdnn.tables.examination import examine
from fracdnn.tables.reading import read_parts, read_table
from fracdnn.tables.streaming import Piece, TableStream, read_piece
from tests.tables.tables import chunks, mixed, write, write_parts


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_chunks_are_the_table(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PART_BYTES", 2000)
    folder = write_parts(mixed(), tmp_path / "parts", ending, 4)
    (folder / "_SUCCESS").touch()
    stream = TableStream.of(str(folder), piece_rows=33)
    assert len(stream.files) == 4
    assert list(stream.schema) == mixed().columns
    assert_frame_equal(pl.concat(chunks(stream)), read_table(str(folder)))
    if ending == "parquet":
        assert all(chunk.height <= 33 for chunk in chunks(stream))
        assert_frame_equal(pl.concat(chunks(stream)), mixed())
    assert [piece.number for piece in stream.pieces] == list(range(len(stream.pieces)))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_many_small_files_are_few_pieces(ending, tmp_path):
    """Each folder's, and parts with columns in another order, by themselves; errors name the part that has them."""
    for folder in ("d=1", "d=2"):
        (tmp_path / "t").mkdir(exist_ok=True)
        write_parts(mixed(seed=int(folder[-1])), tmp_path / "t" / folder, ending, 40)
    part = tmp_path / "t" / "d=2" / f"part-020.{ending}"
    frame = pl.read_parquet(part) if ending == "parquet" else pl.read_csv(part, infer_schema=False)
    write(frame.select(reversed(frame.columns)), part)
    end = tmp_path / "t" / "d=2" / f"part-030.{ending}"
    if ending == "csv":
        end.write_bytes(end.read_bytes().rstrip())
    stream = TableStream.of(str(tmp_path / "t"))
    assert [len(piece.spans) for piece in stream.pieces] == [40, 20, 1, 19]
    assert len(stream.files) == 80
    columns = [*mixed().columns, "d"]
    found = pl.concat([frame.select(columns) for frame in chunks(stream)])
    assert_frame_equal(found, pl.concat([part.select(columns) for part in read_parts(str(tmp_path / "t"))]))
    if ending == "csv":
        lines = end.read_text().splitlines()
        bad = ["inf", *lines[3].split(",")[1:]]
        end.write_text("\n".join([*lines[:3], ",".join(bad), *lines[4:]]))
        with pytest.raises(TableError, match=r"'a' must hold finite numbers, got inf in row 3 of .*part-030.csv"):
            examine(TableStream.of(str(tmp_path / "t")), "y")
        end.write_text("\n".join([*lines[:3], "1,2,3,4,5,6,7,8,9,10,11", *lines[4:]]))
        with pytest.raises(TableError, match=r"part-030.csv must be a table whose rows have as many cells"):
            examine(TableStream.of(str(tmp_path / "t")), "y")
    else:
        whole = end.read_bytes()
        end.write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
        with pytest.raises(TableError, match=r"part-030.parquet must be a .parquet file, got one that cannot be read"):
            list(chunks(TableStream.of(str(tmp_path / "t"))))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_small_file_after_a_large_one_repeats_no_row(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PART_BYTES", 4000)
    for number, rows in enumerate((mixed()[:150], mixed()[150:160], mixed()[160:170])):
        write(rows, tmp_path / f"part-{number}.{ending}")
    stream = TableStream.of(str(tmp_path), piece_rows=100)
    assert [len(piece.spans) for piece in stream.pieces] == [*[1] * (len(stream.pieces) - 1), 2]
    assert len(stream.pieces) > 2
    assert_frame_equal(pl.concat(chunks(stream)), read_table(str(tmp_path)))


def test_quoted_cells_with_line_ends_stay_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PART_BYTES", 64)
    table = pl.DataFrame({"a": [f'x\n"{k}",\n' for k in range(60)], "b": list(range(60))})
    path = write(table, tmp_path / "t.csv")
    stream = TableStream.of(str(path))
    assert len(stream.pieces) > 10
    assert_frame_equal(pl.concat(chunks(stream)), read_table(str(path)))
    assert pl.concat(chunks(stream)).height == 60


def parts(tmp_path, ending="parquet"):
    return write_parts(mixed(), tmp_path / "parts", ending, 3)


def break_bytes(folder, ending):
    (folder / f"part-001.{ending}").write_bytes(b"\xff\xfe nothing\n" * 9)


def other_column(folder, ending):
    write(mixed(50).rename({"age": "years"}), folder / f"part-001.{ending}")


def other_type(folder, ending):
    write(mixed(50).with_columns(pl.col("age").cast(pl.String)), folder / f"part-001.{ending}")


def other_kind(folder, ending):
    write(mixed(50), folder / "part-001.tsv")


def a_folder(folder, ending):
    (folder / "part-001").mkdir()


FAULTS = {
    break_bytes: {
        "parquet": "must be a .parquet file, got one that cannot be read",
        "csv": "must be in UTF-8|columns of",
    },
    other_column: {
        "parquet": "must have the columns of .*part-000.parquet, got 'years' beside them",
        "csv": "got 'years'",
    },
    other_type: {"parquet": "must have cells of type Int64 in column 'age' as .*part-000.parquet has, got String"},
    other_kind: {"parquet": "must be of the same kind as .*part-000.parquet"},
    a_folder: {"parquet": "must hold parts of a table only, got the folder .*part-001"},
}


@pytest.mark.parametrize(
    ("fault", "ending"), [(fault, ending) for fault, messages in FAULTS.items() for ending in messages]
)
def test_a_part_that_is_not_like_the_others_is_named(fault, ending, tmp_path):
    """By a stream and by a table read whole."""
    folder = parts(tmp_path, ending)
    fault(folder, ending)
    for read in (lambda: examine(TableStream.of(str(folder)), "y"), lambda: read_table(str(folder))):
        with pytest.raises(TableError, match=FAULTS[fault][ending]) as refused:
            read()
        assert "part-001" in str(refused.value)


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_tables_as_clusters_write_them(ending, tmp_path):
    """Parts without rows or without bytes, folders NAME=VALUE, and patterns; addresses of buckets are refused."""
    table = pl.DataFrame({"a": [1.5, 2.5, 3.5], "y": [0.1, 0.2, 0.3]})
    for day, rows in (("1", table[:2]), ("2%202", table[2:]), ("3", table[:0])):
        folder = tmp_path / "t" / f"dt={day}"
        folder.mkdir(parents=True)
        with_bytes = io.BytesIO()
        rows.write_parquet(with_bytes) if ending == "parquet" else rows.write_csv(with_bytes)
        content = with_bytes.getvalue()
        (folder / f"part-0.{ending}").write_bytes(gzip.compress(content) if ending == "csv.gz" else content)
        (folder / f"part-1.{ending}").write_bytes(b"")
    (tmp_path / "t" / "_SUCCESS").touch()
    for source in (tmp_path / "t", tmp_path / "t" / "dt=*", tmp_path / "*" / "dt=*" / f"*-[01].{ending}"):
        found = read_table(str(source))
        assert found["dt"].to_list() == ["1", "1", "2 2"]
        assert found["a"].cast(pl.Float64).to_list() == [1.5, 2.5, 3.5]
        stream = TableStream.of(str(source))
        assert list(stream.schema) == ["a", "y", "dt"]
        frames = [frame for piece in stream.pieces for frame in read_piece(piece, columns=["dt", "a"])]
        assert [cell for frame in frames for cell in frame["dt"]] == ["1", "1", "2 2"]
    for read in (TableStream.of, read_table):
        with pytest.raises(TableError, match="must hold at least one row below its heading"):
            read(str(tmp_path / "t" / "dt=3"))
        with pytest.raises(TableError, match="got no file; check the pattern"):
            read(str(tmp_path / "no*"))
        with pytest.raises(TableError, match="must be a file or folder on this machine or a mounted one, got s3://b/t"):
            read("s3://b/t")


def test_a_folder_without_parts_and_a_pipe(tmp_path):
    for read in (TableStream.of, read_table):
        with pytest.raises(TableError, match=r"must hold parts of a table .* got an empty folder"):
            read(str(tmp_path))
    with pytest.raises(TableError, match="must be a file or a folder, got standard input"):
        TableStream.of("-")


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("change", ["longer", "shorter", "touched", "replaced"])
def test_a_part_that_changes_while_it_is_read(change, ending, tmp_path):
    folder = parts(tmp_path, ending)
    stream = TableStream.of(str(folder), piece_rows=40)
    path = folder / f"part-001.{ending}"
    content = path.read_bytes()
    spans = [span for piece in stream.pieces for span in piece.spans]
    piece = Piece(0, (next(span for span in spans if span.file.path == str(path)),))
    assert sum(frame.height for frame in read_piece(piece)) > 0
    if change == "touched":
        os.utime(path, ns=(1, 1))
    elif change == "replaced":
        path.unlink()
        path.write_bytes(content)
        os.utime(path, ns=(piece.file.state[1], piece.file.state[1] + 1))
    else:
        path.write_bytes(content + b"x" if change == "longer" else content[: len(content) // 2])
    with pytest.raises(TableError, match=r"part-001.* must stay as it is while it is read"):
        list(chunks(stream))


def test_a_change_in_the_midst_of_a_piece_is_seen(tmp_path):
    path = write(mixed(), tmp_path / "t.csv.gz")
    found = chunks(TableStream.of(str(path)))
    assert next(found).height
    os.utime(path, ns=(1, 1))
    with pytest.raises(TableError, match=r"t.csv.gz must stay as it is"):
        next(found)
