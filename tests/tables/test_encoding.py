from collections import Counter
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from fracdnn.exceptions import TableError
from fracdnn.tables.cells import MISSING
from fracdnn.tables.column import Categories, Numbers
from fracdnn.tables.encoder import Encoder
from fracdnn.tables.targets import split_target, target_values, task_of
from fracdnn.tables.words import check_columns, nearest
from tests.tables.learning import inputs_of, learned_from


@pytest.mark.parametrize("cell", [b"\xff", [1, 2], {"a": 1}, timedelta(1)], ids=lambda cell: type(cell).__name__)
def test_cells_that_cannot_be_text(cell):
    """Left out where they are to be learned from; refused as a target, and in place of known categories."""
    table = pl.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [cell] * 4})
    encoding, notes = learned_from(table)
    assert encoding.names == ["a"]
    assert len(notes) == 1
    assert "is neither a number nor a category" in notes[0]
    with pytest.raises(TableError, match="the target column 'b' must hold numbers or text, got cells of type"):
        target_values(table["b"], task_of(table["b"]))
    for known in (Categories("b", ("x", "y")), Numbers("b", 1.0)):
        with pytest.raises(TableError, match="column 'b' must hold numbers, text or dates, got cells of type"):
            inputs_of(Encoder((known,)), table)


NUMBERS = {"name": "a", "kind": "number", "median": 1.0, "gaps": False, "skips_text": False}
TEXT = {"name": "a", "kind": "category", "categories": ["x", "y"], "gaps": False, "others": False}


@pytest.mark.parametrize(
    ("good", "change"),
    [
        (NUMBERS, {"median": None}),
        (NUMBERS, {"median": float("nan")}),
        (NUMBERS, {"median": "1"}),
        (NUMBERS, {"name": 1}),
        (NUMBERS, {"skips_text": 1}),
        (NUMBERS, {"gaps": 1}),
        (TEXT, {"categories": []}),
        (TEXT, {"categories": ["y", "x"]}),
        (TEXT, {"categories": ["x", "x"]}),
        (TEXT, {"categories": [1, 2]}),
        (TEXT, {"others": True}),
        (TEXT, {"gaps": None}),
        ({"name": "a", "kind": "unused", "why": "it is empty"}, {"why": 1}),
    ],
    ids=str,
)
def test_columns_that_no_table_has(good, change):
    assert Encoder.from_state([good]).names == ["a"]
    with pytest.raises(ValueError, match="invalid column"):
        Encoder.from_state([good | change])


@pytest.mark.parametrize("change", [{"kind": "other"}, {"kind": "category"}, {"surprise": 1}], ids=str)
def test_documents_of_no_column(change):
    with pytest.raises((LookupError, TypeError)):
        Encoder.from_state([NUMBERS | change])


def test_medians_of_very_large_numbers():
    table = pl.DataFrame({"a": [1.7e308, 1.7e308, None]})
    encoding, _ = learned_from(table)
    assert inputs_of(encoding, table).tolist() == [[1.7e308, 0.0], [1.7e308, 0.0], [1.7e308, 1.0]]


def test_messages_stay_short():
    long = "x" * 5000
    table = pl.DataFrame({long: ["1", "2", long], "y": [0, 1, 0]})
    for call in (
        lambda: split_target(table, "z"),
        lambda: inputs_of(Encoder((Numbers(long, 1.0),)), table),
    ):
        with pytest.raises(TableError, match="must h") as refused:
            call()
        assert len(str(refused.value)) < 600


def test_documents_without_columns_or_with_one_twice():
    for document in ([], [NUMBERS, NUMBERS]):
        with pytest.raises(ValueError, match="no columns, or two of one name"):
            Encoder.from_state(document)


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
    columns = ["x3", "x13", "dose"]
    with pytest.raises(TableError, match=r"must have the column 'x3'; it has 'x13'"):
        check_columns(columns, ["x13", "dose"])
    with pytest.raises(TableError, match=r"'x3' \(did you mean 'X3'\?\)"):
        check_columns(columns, ["x13", "X3", "dose"])


def test_cells_that_are_no_numbers_are_missing_where_some_were_before():
    table = pl.DataFrame({"a": [str(k) for k in range(40)] + ["<0.5"], "b": [str(k) for k in range(41)]})
    learned, notes = learned_from(table)
    assert notes == [
        "warning: column 'a': a cell that is no number is taken as missing, such as '<0.5'; "
        "--categorical (in Python, the dtype category) takes all as categories"
    ]
    assert learned.columns == (Numbers("a", 19.5, gaps=True, skips_text=True), Numbers("b", 20.0))
    new = pl.DataFrame({"a": ["7", "n.d.", ""], "b": ["1", "2", "3"]})
    assert inputs_of(learned, new).tolist() == [[7, 0, 1], [19.5, 1, 2], [19.5, 1, 3]]
    with pytest.raises(TableError, match=r"column 'b' must hold numbers, got 'n\.d\.' in row 2; correct the cell"):
        inputs_of(learned, new.rename({"a": "b", "b": "a"}))
    with pytest.raises(TableError, match="column 'a' must be clear about its commas, got '1,234'"):
        inputs_of(learned, pl.DataFrame({"a": ["1,234", "n.d., 5"], "b": ["1", "2"]}))
    with pytest.raises(TableError, match="column 'b' must hold finite numbers, got -inf in row 1; correct the cell"):
        inputs_of(learned, pl.DataFrame({"a": ["1"], "b": ["-inf"]}))
    assert learned_from(table.with_columns(c=pl.col("b")), categorical=["a"])[1] == [
        "column 'a' is left out: it is text with 41 different values in 41 rows; group its values to use it"
    ]


def test_truth_values_are_numbers_as_text_too():
    for yes, no in ((True, False), ("True", "False"), ("true", "false"), ("TRUE", "FALSE"), ("1", "0"), (1.0, 0.0)):
        learned, _ = learned_from(pl.DataFrame({"a": [yes, no, yes, None]}))
        assert learned.columns == (Numbers("a", 1.0, gaps=True),)
        assert inputs_of(learned, pl.DataFrame({"a": [no, yes]})).tolist() == [[0, 0], [1, 0]]
    assert learned_from(pl.DataFrame({"a": ["yes", "no", "yes"]}))[0].columns == (Categories("a", ("no", "yes")),)


@pytest.mark.parametrize("word", MISSING)
def test_words_for_nothing_are_missing_in_any_column(word):
    table = pl.DataFrame({"a": ["1", word, "2", "3"], "b": ["x", f" {word} ", "y", "x"], "c": ["2024-01-01", word] * 2})
    columns = learned_from(table)[0].columns
    assert [column.kind for column in columns] == ["number", "category", "date"]
    assert all(column.gaps for column in columns)


def many(n_values, rows, seed=0):
    """Rows of so many different texts, of which some are more frequent."""
    values = np.random.default_rng(seed).permutation(n_values)
    cells = [*values, *(values[k % 45] for k in range(rows - n_values))]
    return [f"k{value:05d}" for value in cells]


@pytest.mark.parametrize(("n_values", "n_inputs"), [(100, 100), (101, 31), (122, 31), (9_999, 31), (10_000, 31)])
def test_of_many_values_the_most_frequent_have_an_input_each(n_values, n_inputs):
    cells = many(n_values, 20_000)
    learned, notes = learned_from(pl.DataFrame({"a": cells}))
    (column,) = learned.columns
    assert notes == []
    assert len(column.inputs) == n_inputs
    assert column.others == (n_values > 100)
    if column.others:
        counts = Counter(cells)
        assert list(column.categories) == sorted(sorted(counts, key=lambda text: (-counts[text], text))[:30])
        rare = next(text for text in counts if text not in column.categories)
        new = inputs_of(learned, pl.DataFrame({"a": [rare, "new", column.categories[3], None]}))
        assert new.argmax(1).tolist() == [30, 30, 3, 0]
        assert new.sum(1).tolist() == [1, 1, 1, 0]
        assert learned.unseen(pl.DataFrame({"a": ["new"]})) == {}


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            many(10_001, 20_000),
            "it is text with more than 10,000 different values in 20,000 rows; group its values to use it",
        ),
        (
            [f"k{k % 400}" for k in range(800)],
            "it is text with 400 different values in 800 rows; group its values to use it",
        ),
        (
            [f"name {k}" for k in range(150)],
            "it is text with 150 different values in 150 rows; group its values to use it",
        ),
        (["a", "b", "c"], "it is text with 3 different values in 3 rows; group its values to use it"),
        ([None, "", "NA"], "it is empty"),
        ([float("nan"), None], "it is empty"),
        ([float("inf"), float("-inf")], "it holds no finite number"),
    ],
    ids=["10,001 values", "400 values", "150 names", "3 names", "empty", "NaN", "infinite"],
)
def test_columns_that_nothing_is_learned_from(cells, reason):
    table = pl.DataFrame({"a": cells, "b": np.arange(len(cells)) / 2})
    learned, notes = learned_from(table)
    assert learned.names == ["b"]
    assert notes == [f"column 'a' is left out: {reason}"]
    with pytest.raises(TableError, match=f"the table must have a column to learn from, got none: {notes[0]}"):
        learned_from(table.select("a"))


def test_text_that_differs_in_each_row_of_two_or_with_missing_cells_stays():
    assert learned_from(pl.DataFrame({"a": ["x", "y"]}))[0].feature_names == ["a=x", "a=y"]
    assert learned_from(pl.DataFrame({"a": ["x", "y", "z", None]}))[0].feature_names[-1] == "a=(missing)"


def test_new_categories_are_counted_and_are_none_of_the_known_ones():
    learned, _ = learned_from(pl.DataFrame({"soil": ["clay", "sand", "sand"]}))
    unseen = learned.unseen(pl.DataFrame({"soil": [None, "Sand", "Sand", "lava", "clay"]}))
    assert learned.unseen_notes(unseen) == [
        "column 'soil': 3 cells with a category that training has not seen, such as 'Sand' (did you mean 'sand'?), "
        "'lava'; predicted as none of the known ones"
    ]
    assert inputs_of(learned, pl.DataFrame({"soil": [None, "Sand"]})).tolist() == [[0, 0], [0, 0]]


MIXED = {
    "28 of 40 cells are numbers, but not '<0.5', '<1.5', '<2.5'": [
        *(f"{k}.5" for k in range(28)),
        *(f"<{k % 3}.5" for k in range(12)),
    ],
    "25 of 41 cells are dates such as 31.01.2024, but not '01/13/2024', '01/14/2024'": [
        *(f"{k + 1:02d}.02.2023" for k in range(25)),
        *(f"01/{k % 8 + 13}/2024" for k in range(16)),
    ],
    "24 of 32 cells are times of day, but not 'night', 'noon'": [
        *(f"{k:02d}:{2 * k:02d}" for k in range(24)),
        *(["noon", "night"] * 4),
    ],
}


@pytest.mark.parametrize("mostly", MIXED)
def test_text_that_is_mostly_something_else_is_said(mostly):
    cells = MIXED[mostly]
    _, notes = learned_from(pl.DataFrame({"a": cells}))
    assert len(notes) == 1
    assert mostly in notes[0]
    assert "so that all are categories; write the others alike or leave them empty, or pass --categorical" in notes[0]
    few, notes = learned_from(pl.DataFrame({"a": ["1", "2", "3", "4+"] * 20}))
    assert (few.columns[0].kind, notes) == ("category", [])


@pytest.mark.parametrize("mostly", MIXED)
def test_text_that_differs_in_each_row_says_what_most_of_it_is(mostly):
    different = list(dict.fromkeys(MIXED[mostly]))
    named = pl.DataFrame({"a": different, "b": np.arange(len(different))})
    notes = learned_from(named)[1]
    assert f"column 'a' is left out: it is text with {len(different)} different values" in notes[0]
    assert " but not '" in notes[0]
    assert notes[0].endswith(": write all alike to use it")
    assert learned_from(named, categorical=["a"])[1][0].endswith("; group its values to use it")
