from datetime import timedelta

import polars as pl
import pytest

from fracdnn.exceptions import TableError
from fracdnn.tabular.model import split_target, target_values, task_of
from fracdnn.tabular.preparation import Column, Preparation
from fracdnn.tabular.words import nearest


@pytest.mark.parametrize("cell", [b"\xff", [1, 2], {"a": 1}, timedelta(1)], ids=lambda cell: type(cell).__name__)
def test_cells_that_cannot_be_text(cell):
    """Left out where they are to be learned from; refused as a target, and in place of known categories."""
    table = pl.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [cell] * 4})
    preparation, notes = Preparation.of(table)
    assert preparation.names == ["a"]
    assert len(notes) == 1
    assert "is neither a number nor a category" in notes[0]
    with pytest.raises(TableError, match="the target column 'b' must hold numbers or text, got cells of type"):
        target_values(table["b"], task_of(table["b"]))
    known = Preparation([Column("b", "category", categories=("x", "y"))])
    with pytest.raises(TableError, match="column 'b' must hold categories, got cells of type"):
        known.transform(table)


@pytest.mark.parametrize(
    "column",
    [
        {"name": "a", "kind": "number", "median": None, "categories": []},
        {"name": "a", "kind": "number", "median": float("nan"), "categories": []},
        {"name": "a", "kind": "category", "median": None, "categories": []},
        {"name": "a", "kind": "category", "median": None, "categories": ["y", "x"]},
        {"name": "a", "kind": "category", "median": None, "categories": [1, 2]},
        {"name": "a", "kind": "other", "median": 1.0, "categories": []},
        {"name": 1, "kind": "number", "median": 1.0, "categories": []},
        {"name": "a", "kind": "number", "median": 1.0, "categories": [], "skips_text": 1},
        {"name": "a", "kind": "category", "median": None, "categories": ["x"], "skips_text": True},
    ],
)
def test_columns_that_no_table_has(column):
    with pytest.raises(ValueError, match=r"a column .* that is none"):
        Preparation.from_document([column])


def test_medians_of_very_large_numbers():
    table = pl.DataFrame({"a": [1.7e308, 1.7e308, None]})
    preparation, _ = Preparation.of(table)
    assert preparation.transform(table).tolist() == [[1.7e308]] * 3


def test_messages_stay_short():
    long = "x" * 5000
    table = pl.DataFrame({long: ["1", "2", long], "y": [0, 1, 0]})
    for call in (
        lambda: split_target(table, "z"),
        lambda: Preparation([Column(long, "number", median=1.0)]).transform(table),
        lambda: Preparation([Column(long, "category", categories=("1", "2"))]).transform(table),
    ):
        with pytest.raises(TableError, match="must h") as refused:
            call()
        assert len(str(refused.value)) < 600


def test_documents_without_columns_or_with_one_twice():
    good = {"name": "a", "kind": "number", "median": 1.0, "categories": []}
    assert Preparation.from_document([good]).names == ["a"]
    for document in ([], [good, good]):
        with pytest.raises(ValueError, match="no columns, or two of one name"):
            Preparation.from_document(document)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("income", "Income >50k"),
        ("INCOME >50K", "Income >50k"),
        ("Sepallength", "sepal.length"),
        ("AGE", "Age"),
        ("age", "Age"),
        ("rate", "Heart rate at rest, beats per minute"),  # a part of it, and not near
        (" Age ", "Age"),
        ("zzz", None),
        ("e", None),
    ],
)
def test_the_nearest_column_is_named_as_it_is_written(name, meant):
    columns = ["Age", "ages", "sepal.length", "Income >50k", "Heart rate at rest, beats per minute"]
    hint = "" if meant is None else f" (did you mean {meant!r}?)"
    assert nearest(name, columns) == repr(name) + hint
    with pytest.raises(TableError) as refused:
        split_target(pl.DataFrame({column: [1] for column in columns}), name)
    assert f"must have the target column {name!r}{hint}; it has 'Age'" in str(refused.value)


def test_a_missing_column_is_not_taken_for_another_that_is_asked_for():
    learned, _ = Preparation.of(pl.DataFrame({name: [1.0, 2.0, 2.0] for name in ("x3", "x13", "dose")}))
    with pytest.raises(TableError, match=r"must have the column 'x3'; it has 'x13'"):
        learned.transform(pl.DataFrame({"x13": [1.0], "dose": [1.0]}))
    with pytest.raises(TableError, match=r"'x3' \(did you mean 'X3'\?\)"):
        learned.transform(pl.DataFrame({"x13": [1.0], "X3": [1.0], "dose": [1.0]}))


def test_cells_that_are_no_numbers_are_missing_where_some_were_before():
    table = pl.DataFrame({"a": [str(k) for k in range(40)] + ["<0.5"], "b": [str(k) for k in range(41)]})
    learned, notes = Preparation.of(table)
    assert notes == [
        "warning: column 'a': a cell that is no number is taken as missing, such as '<0.5'; "
        "--categorical makes it one of categories"
    ]
    assert [column.get("skips_text") for column in learned.to_document()] == [True, None]
    again = Preparation.from_document(learned.to_document())
    assert again.columns == learned.columns
    new = pl.DataFrame({"a": ["7", "n.d.", ""], "b": ["1", "2", "3"]})
    assert again.transform(new).tolist() == [[7, 1], [19.5, 2], [19.5, 3]]
    with pytest.raises(TableError, match=r"column 'b' must hold numbers, got 'n\.d\.' in row 2"):
        again.transform(new.rename({"a": "b", "b": "a"}))
    with pytest.raises(TableError, match="column 'a' must be clear about its commas, got '1,234'"):
        again.transform(pl.DataFrame({"a": ["1,234", "n.d., 5"], "b": ["1", "2"]}))
    assert Preparation.of(table, categorical=["a"])[1] == [
        "column 'a' is left out: it is text with 41 different values in 41 rows"
    ]
