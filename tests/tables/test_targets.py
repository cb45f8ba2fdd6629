"""Targets: which task they call for, and what is refused in words."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fracdnn import FractionalRegressor
from fracdnn.exceptions import InvalidArgumentError, TableError
from fracdnn.tables.targets import Target

X = np.arange(12.0)[:, None]


@pytest.mark.parametrize(
    ("y", "where"),
    [
        (["1"] * 3 + ["no"] * 9, "row 3 (the first is 0);"),
        (pd.Series([1, "no"] * 6, name="answer"), "row 1 (the first is 0) of column 'answer';"),
        (pl.Series("answer", ["no"] * 12), "row 0 (the first is 0) of column 'answer';"),
        (pd.DataFrame({"a": range(12), "b": ["no"] * 12}), "row 0 (the first is 0) of column 'b';"),
    ],
    ids=["list", "pandas", "polars", "outputs"],
)
def test_a_regressor_names_the_cell_that_is_no_number(y, where):
    with pytest.raises(InvalidArgumentError) as refused:
        FractionalRegressor(max_iter=1).fit(X, y)
    message = str(refused.value)
    assert message.startswith(f"y must hold numbers for a regression, got 'no' in {where}")
    assert message.endswith("correct the cell or leave out the row, or use FractionalClassifier for classes")


@pytest.mark.parametrize(
    ("cells", "classes", "y"),
    [
        (["b", "a", "b"], ["a", "b"], ["b", "a", "b"]),
        (["3", "1", "3"], [1, 3], [3, 1, 3]),
        ([True, False, True], ["false", "true"], ["true", "false", "true"]),
        (["1,5", "2,5", "3"], None, [1.5, 2.5, 3.0]),
        (["12 %", "3,5 %", "7 %"], None, [12.0, 3.5, 7.0]),
        ([*map(str, range(21))], None, list(range(21))),
    ],
    ids=["text", "whole numbers", "truth values", "decimal commas", "percent", "many whole numbers"],
)
def test_what_a_target_calls_for(cells, classes, y):
    target = Target.of(pl.Series("y", cells))
    assert target.y.tolist() == y
    assert (None if target.classes is None else target.classes.tolist()) == classes
    assert target.task == ("regression" if classes is None else "classification")
    if classes is None:
        assert (target.least, target.most) == (min(y), max(y))


def test_commas_that_do_not_tell_are_told():
    cells = pl.Series("y", ["1,234", "1,017"])
    with pytest.raises(TableError, match="column 'y' must be clear about its commas, got '1,234'"):
        Target.of(cells, "regression")
    assert Target.of(cells, "regression", ",").y.tolist() == [1.234, 1.017]
    assert Target.of(cells, "regression", ".").y.tolist() == [1234.0, 1017.0]
    assert Target.of(cells, "regression", ",").decimal == ","


@pytest.mark.parametrize(
    ("cells", "task", "message"),
    [
        (["a", "a"], "auto", "must hold two classes at least, got only 'a'; add rows of another class"),
        (["a", "b", "c"], "auto", "must hold classes of several rows, got 3 of one row each"),
        (
            ["1", "no", "n.d."],
            "regression",
            "must hold finite numbers for a regression, got 'no', 'n.d.'; correct such",
        ),
        ([1.0, np.inf], "regression", "must hold finite numbers for a regression, got other cells"),
        (
            ["2024-05-31", "2024-06-01"],
            "auto",
            "must hold classes or numbers, got dates; to predict them, add a column",
        ),
        (["14:30", "06:00"], "regression", "got times of day; .* with the hours since midnight"),
    ],
)
def test_targets_of_which_nothing_can_be_learned(cells, task, message):
    with pytest.raises(TableError, match=f"the target column 'y' {message}" if "must" in message else message):
        Target.of(pl.Series("y", cells), task)
