"""What one pass over a streamed table finds is what the table in memory says."""

from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest
import torch

from fracdnn.exceptions import TableError
from fracdnn.tables import reading
from fracdnn.tables.examination import Division, examine
from fracdnn.tables.reading import read_table
from fracdnn.tables.streaming import TableStream
from fracdnn.tables.targets import split_target, target_values, task_of
from fracdnn.training import Standardization
from fracdnn.training.samples import chunks
from tests.slow import each_once, slow_but
from tests.tables.learning import inputs_of, learned_from
from tests.tables.tables import mixed, write, write_parts


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(reading, "PART_BYTES", 3000)


def all_samples(samples):
    x, target, _ = zip(*chunks(samples, 10**9), strict=True)
    return torch.cat(x), torch.cat(target)


def assert_as_in_memory(source, table, target="y", **options):
    """The examined stream against `learned_from`, `Standardization.of` and the target of the whole table."""
    found = examine(TableStream.of(str(source), piece_rows=60), target, **options)
    features, values, places = split_target(table, target)
    expected, notes = learned_from(features, categorical=options.get("categorical", ()))
    assert found.encoding.columns == expected.columns
    assert found.summary.notes(found.every) == [note for note in notes if "warning" in note]
    assert found.n_without_target == len(table) - len(places)
    X = inputs_of(expected, features)
    scaling = Standardization.of(torch.from_numpy(X))
    torch.testing.assert_close(found.standardization.mean, scaling.mean, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(found.standardization.deviation, scaling.deviation, rtol=1e-13, atol=1e-13)
    task = task_of(values)
    assert found.target.task == task
    y = target_values(values, task)
    x, labels = all_samples(found.samples("training"))
    assert torch.equal(x, torch.from_numpy(X))
    if task == "classification":
        assert found.target.classes.tolist() == np.unique(y).tolist()
        assert found.target.classes[labels].tolist() == y.tolist()
        assert found.target.counts.tolist() == np.unique(y, return_counts=True)[1].tolist()
    else:
        assert labels.squeeze(1).tolist() == y.tolist()
        assert (found.target.least, found.target.most) == (y.min(), y.max())
        scale = Standardization.of(torch.from_numpy(y)[:, None])
        torch.testing.assert_close(found.target.scale.mean, scale.mean, rtol=1e-13, atol=0)
        torch.testing.assert_close(found.target.scale.deviation, scale.deviation, rtol=1e-13, atol=0)
    return found


@pytest.mark.parametrize(
    ("ending", "n_parts", "classes"),
    slow_but(
        [("parquet", 0, True), ("csv", 0, False), ("csv.gz", 3, True)],
        product(["parquet", "csv", "tsv", "csv.gz"], [0, 3], [True, False]),
    ),
)
def test_a_stream_says_what_the_table_says(ending, n_parts, classes, tmp_path, small_pieces):
    table = mixed(classes=classes)
    if n_parts:
        source = write_parts(table, tmp_path / "parts", ending, n_parts)
    else:
        source = write(table, tmp_path / f"table.{ending}")
    whole = read_table(str(source))
    assert whole.height == table.height
    found = assert_as_in_memory(source, whole)
    if not ending.endswith("gz"):
        assert len(found.stream.pieces) >= 8


def test_columns_of_numbers_that_are_names(tmp_path):
    path = write(mixed(), tmp_path / "t.parquet")
    found = assert_as_in_memory(path, read_table(str(path)), categorical=["age"])
    assert next(c for c in found.encoding.columns if c.name == "age").kind == "category"


def test_decimal_commas_that_only_the_whole_table_explains(tmp_path, small_pieces):
    """The last piece has only cells such as 1,234, which alone would be ambiguous."""
    rows = [f"{k},{k % 10};{k % 2}" for k in range(900)] + [f"{k % 9 + 1},{k % 900 + 100};{k % 2}" for k in range(900)]
    path = tmp_path / "t.csv"
    path.write_text("a;y\n" + "\n".join(rows) + "\n")
    found = assert_as_in_memory(path, read_table(str(path)))
    assert found.encoding.columns[0].kind == "number"
    assert len(found.stream.pieces) > 3
    path.write_text("a;y\n" + "\n".join(rows[900:]) + "\n")
    with pytest.raises(TableError, match="column 'a' must be clear about its commas, got '1,100'"):
        examine(TableStream.of(str(path)), "y")


def test_text_that_begins_with_numbers(tmp_path, small_pieces):
    """What looks like numbers in the first pieces is categories, or classes, of the whole table."""
    cells = [str(k % 7) for k in range(2000)] + ["seven"] * 120
    table = pl.DataFrame({"a": cells, "b": np.arange(2120.0) * 3, "y": cells})
    path = write(table, tmp_path / "t.csv")
    found = assert_as_in_memory(path, read_table(str(path)))
    assert found.target.classes.tolist() == ["0", "1", "2", "3", "4", "5", "6", "seven"]
    assert found.encoding.columns[0].categories == ("0", "1", "2", "3", "4", "5", "6", "seven")


@pytest.mark.parametrize(
    ("numbers", "strays", "kind"),
    [
        (950, ["<0.5"] * 30 + ["n.d."] * 20, "number"),  # 95 % of the cells
        (949, ["<0.5"] * 30 + ["n.d."] * 21, "category"),
        (20, ["n.d."], "number"),
        (19, ["n.d."], "category"),
        (950, ["<0,5, or 1,234"] * 2 + ["n.d."], "number"),  # a comma in no number
    ],
)
@pytest.mark.parametrize("comma", [False, True])
def test_a_few_cells_among_numbers_that_are_none(numbers, strays, kind, comma, tmp_path, small_pieces):
    """Missing in the stream as in memory; what is missing otherwise does not count."""
    cells = [f"{k % 30}{',' if comma else '.'}5" for k in range(numbers)] + strays + ["NA", ""] * 40
    order = np.random.default_rng(0).permutation(len(cells))
    table = pl.DataFrame({"a": [cells[k] for k in order], "b": np.arange(len(cells)) % 9, "y": order % 2})
    path = tmp_path / "t.csv"
    table.write_csv(path, separator=";")
    found = assert_as_in_memory(path, read_table(str(path)))
    column = found.encoding.columns[0]
    assert (column.kind, getattr(column, "skips_text", False)) == (kind, kind == "number")
    if kind == "number":
        few = "a cell that is no number is" if len(strays) == 1 else f"{len(strays)} cells that are no numbers are"
        shown = ", ".join(repr(text) for text in sorted(set(strays)))
        assert found.summary.notes(found.every) == [
            f"warning: column 'a': {few} taken as missing, such as {shown}; "
            f"--categorical (in Python, the dtype category) takes all as categories"
        ]
    else:  # which is said where they are many
        mostly = [f"{numbers} of {numbers + len(strays):,} cells are numbers, but not"] if numbers > 20 else []
        assert [text in note for text, note in zip(mostly, found.summary.notes(found.every), strict=True)] == [
            True
        ] * len(mostly)


def test_a_cell_that_is_no_number_only_in_rows_that_are_tested(tmp_path):
    division = Division(test=0.5, seed=2)
    path = tmp_path / "t.csv"
    write(pl.DataFrame({"a": [str(k) if k != 330 else "n.d." for k in range(1500)], "y": np.arange(1500) % 2}), path)
    stream = TableStream.of(str(path))
    is_tested = division.roles(division.generator(stream.pieces[0]), 1500) == 2
    assert is_tested[330]
    found = examine(stream, "y", division=division)
    features = read_table(str(path)).drop("y")
    expected, notes = learned_from(features.filter(~is_tested), tested=features.filter(is_tested))
    assert found.encoding.columns == expected.columns
    assert found.summary.notes(found.every) == [note for note in notes if "warning" in note]
    assert found.encoding.columns[0].skips_text
    x, _ = all_samples(found.samples("test"))
    assert found.encoding.columns[0].median in x


def test_medians_of_many_values_are_near(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    table = pl.DataFrame({"a": rng.standard_normal(30_000), "y": rng.integers(0, 2, 30_000)})
    found = examine(TableStream.of(str(write(table, tmp_path / "t.parquet")), piece_rows=10_000), "y")
    rank = (np.sort(table["a"].to_numpy()) <= found.encoding.columns[0].median).mean()
    assert abs(rank - 0.5) <= 3 / (2 * 8192)


def test_rows_are_divided_alike_however_often_and_by_whomever_they_are_read(tmp_path):
    path = write(mixed(2000), tmp_path / "t.parquet")
    stream, division = TableStream.of(str(path), piece_rows=250), Division(test=0.2, validation=0.25, seed=5)
    whole = examine(stream, "y", division=division)
    n = whole.sizes.sum()
    assert abs(whole.n_rows("test") / n - 0.2) < 0.04
    assert abs(whole.n_rows("validation") / n - 0.2) < 0.04
    assert n + whole.n_without_target == 2000
    for role in ("training", "validation", "test"):
        x, _ = all_samples(whole.samples(role))
        assert len(x) == whole.n_rows(role)
    part = examine(replace(stream, pieces=stream.pieces[:3]), "y", division=division)
    assert part.sizes.tolist() == whole.sizes[:3].tolist()
    other = examine(stream, "y", division=Division(test=0.2, validation=0.25, seed=6))
    assert other.sizes.tolist() != whole.sizes.tolist()
    assert len({whole.digest, other.digest, part.digest}) == 3
    assert examine(stream, "y", division=division).digest == whole.digest


def test_the_rows_held_out_to_test_are_not_learned_from(tmp_path):
    table = pl.DataFrame({"a": np.arange(400.0), "y": np.arange(400) % 2})
    stream = TableStream.of(str(write(table, tmp_path / "t.parquet")), piece_rows=50)
    found = examine(stream, "y", division=Division(test=0.3, validation=0.2))
    learned = torch.cat([all_samples(found.samples(role))[0] for role in ("training", "validation")])
    assert found.standardization.mean.item() == pytest.approx(learned.mean().item(), rel=1e-13)
    assert found.encoding.columns[0].median == np.median(learned.numpy())


@pytest.mark.parametrize(
    ("cell", "n_numbers", "message"),
    [
        ("bad", 15, r"must hold numbers, got 'bad' in row 331 of .*t.csv"),  # too few numbers to skip it
        ("inf", 1500, r"finite numbers, got inf in row 331 of"),
    ],
)
def test_cells_are_named_by_file_and_row_before_training(cell, n_numbers, message, tmp_path, small_pieces):
    """Also in rows that are only tested."""
    cells = [str(k) if k < n_numbers else "NA" for k in range(1500)]
    division = Division(test=0.5, seed=2)
    path = tmp_path / "t.csv"
    write(pl.DataFrame({"a": cells, "y": np.arange(1500) % 2}), path)
    stream = TableStream.of(str(path))
    cells[330] = cell
    write(pl.DataFrame({"a": cells, "y": np.arange(1500) % 2}), path)
    changed = TableStream.of(str(path))
    piece = changed.pieces[0]
    assert len(changed.pieces) > 2
    assert division.roles(division.generator(piece), 331)[330] == 2
    with pytest.raises(TableError, match=message):
        examine(changed, "y", division=division)
    with pytest.raises(TableError, match=r"t.csv must stay as it is while it is read"):
        examine(stream, "y")


def test_targets_that_cannot_be(tmp_path):
    rows = 300
    columns = {"a": np.arange(rows) % 7, "one": ["x"] * rows, "gone": pl.Series([None] * rows, dtype=pl.Float64)}
    columns |= {"list": [[1]] * rows, "inf": [1.5] * (rows - 1) + [np.inf], "name": ["x", "y"] * 149 + ["x", "z"]}
    table = pl.DataFrame(columns)
    stream = TableStream.of(str(write(table, tmp_path / "t.parquet")))
    halves = (Division(test=0.5, seed=seed) for seed in range(99))
    without_z = next(half for half in halves if half.roles(half.generator(stream.pieces[0]), rows)[-1] == 2)
    for target, options, message in (
        ("one", {}, "must hold two classes at least, got only 'x'"),
        ("gone", {}, "the target column 'gone' must hold values, got none"),
        ("list", {}, "must hold numbers or text, got cells of type List"),
        ("inf", {"task": "regression"}, "must hold finite numbers for a regression"),
        ("name", {"task": "regression"}, "must hold finite numbers for a regression"),
        ("nme", {}, r"must have the target column 'nme' \(did you mean 'name'\?\)"),
        ("a", {"drop": ["b"]}, "must have the column 'b'"),
        ("a", {"division": Division(test=0.999999)}, "must leave rows to learn from, got none of 300"),
        ("name", {"division": without_z}, "must hold all 3 classes, got 2; pass a smaller"),
    ):
        with pytest.raises(TableError, match=message):
            examine(stream, target, **options)


def test_a_target_of_many_values_with_text_at_its_end_is_no_regression(tmp_path, small_pieces):
    values = [f"{k}.5" for k in range(11_000)]
    for last in ("text", "inf"):
        table = pl.DataFrame({"a": np.arange(11_001) % 7, "y": [*values, last]})
        stream = TableStream.of(str(write(table, tmp_path / f"{last}.csv")))
        with pytest.raises(TableError, match="must hold finite numbers for a regression"):
            examine(stream, "y", task="regression")
    with pytest.raises(TableError, match="must hold at most 10,000 classes when streamed"):
        examine(TableStream.of(str(tmp_path / "text.csv")), "y")


@pytest.mark.parametrize(("rows", "task"), each_once([300, 12_000], ["auto", "regression"]))
def test_a_target_must_be_clear_about_its_commas(rows, task, tmp_path, small_pieces):
    cells = [f"{k // 900 + 1},{k % 900 + 100}" for k in range(rows)]
    path = tmp_path / "t.csv"
    path.write_text("a;y\n" + "".join(f"{k % 7};{cell}\n" for k, cell in enumerate(cells)))
    with pytest.raises(TableError, match="column 'y' must be clear about its commas, got '1,100'"):
        examine(TableStream.of(str(path)), "y", task=task)
    path.write_text(path.read_text() + "1;0,5\n")
    assert examine(TableStream.of(str(path)), "y", task=task).target.least == 0.5


@pytest.mark.parametrize("target", ["n", "text"])
def test_columns_may_have_any_name(target, tmp_path):
    table = pl.DataFrame({name: ["x", "y", "y"] * 40 for name in ("n", "text", "label", "learned")})
    path = write(table, tmp_path / "t.parquet")
    assert_as_in_memory(path, read_table(str(path)), target)


def test_pieces_without_rows(tmp_path, small_pieces):
    rows = [f"{k},{k % 2}\n" for k in range(900)]
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(rows[:500]) + "\n" * 20_000 + "".join(rows[500:]))
    found = assert_as_in_memory(path, read_table(str(path)))
    assert 0 in found.sizes.sum(1)[:-1]
    assert found.sizes.sum() == 900


def test_parts_of_blank_lines_are_passed_over(tmp_path):
    for number, rows in enumerate(["1,0\n2,1\n" * 50, "\n" * 30_000, "3,1\n4,0\n" * 50]):
        (tmp_path / f"{number}.csv").write_text("a,y\n" + rows)
    assert_as_in_memory(tmp_path, read_table(str(tmp_path)))


def test_columns_that_look_like_ids(tmp_path, monkeypatch):
    """In any order while they are few; beyond that where they rise or fall, over pieces and rows that are held out."""
    rng = np.random.default_rng(0)
    for n, shuffled in ((500, True), (9_000, False)):
        monkeypatch.setattr(reading, "PART_BYTES", 10 * n)
        number = np.arange(n) * 3 - 700
        table = pl.DataFrame(
            {
                "rises": number,
                "falls": -number,
                "shuffled": rng.permutation(number),
                "halves": number / 2,
                "once twice": np.where(np.arange(n) == n // 2, number - 3, number),
                "gap": [None if k == 77 else int(value) for k, value in enumerate(number)],
                "restarts": np.arange(n) % (n // 2),
                "text": [f"s{k}" for k in range(n)],
                "y": np.arange(n) % 2,
            }
        )
        for ending in ("csv", "parquet"):
            stream = TableStream.of(str(write(table, tmp_path / f"{n}.{ending}")), piece_rows=n // 4)
            assert len(stream.pieces) > 3
            expected = ["rises", "falls", "shuffled"] if shuffled else ["rises", "falls"]
            assert examine(stream, "y").ids == expected
            assert set(expected) <= set(examine(stream, "y", division=Division(test=0.3, seed=1)).ids)
