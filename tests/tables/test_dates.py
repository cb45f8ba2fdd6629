"""Dates become numbers: how they are read, what is learned of them, and the same from streams and model files."""

import json
from datetime import date, datetime, time, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fracdnn.exceptions import TableError
from fracdnn.tables.column import Categories, Dates
from fracdnn.tables.dates import parts_of, seconds_in
from fracdnn.tables.encoder import Encoder
from fracdnn.tables.frames import as_polars
from fracdnn.tables.learning import learn_column
from fracdnn.tables.targets import target_values, task_of
from tests.tables.learning import inputs_of, learned_from

READ = {
    "2024-05-31": datetime(2024, 5, 31),
    " 2024-05-31 ": datetime(2024, 5, 31),
    "2024-05-31 17:45": datetime(2024, 5, 31, 17, 45),
    "2024-05-31T17:45:30": datetime(2024, 5, 31, 17, 45, 30),
    "2024-05-31T17:45:30.123456": datetime(2024, 5, 31, 17, 45, 30),
    "2024-05-31 17:45:30Z": datetime(2024, 5, 31, 17, 45, 30),
    "2024-05-31T17:45:30.5+02:00": datetime(2024, 5, 31, 17, 45, 30),
    "2024-05-31T17:45-0930": datetime(2024, 5, 31, 17, 45),
    "0001-01-01": datetime(1, 1, 1),
    "9999-12-31": datetime(9999, 12, 31),
    "1969-12-31 23:59:59": datetime(1969, 12, 31, 23, 59, 59),
}
NO_DATES = [
    "2024-02-30", "2024-13-01", "0000-01-01", "0000-00-00", "24-05-31", "2024", "20240531", "31.05.2024",
    "2024-05-31 25:00", "2024-05-31x", "x2024-05-31", "soon",
]  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_text_is_read_by_the_clock_that_it_shows(text):
    seconds = seconds_in(pl.Series([text]))
    assert seconds.to_list() == [round((READ[text] - datetime(1970, 1, 1)).total_seconds())]
    assert parts_of(seconds)[0, 1:].tolist() == [READ[text].month, READ[text].isoweekday(), READ[text].hour]


@pytest.mark.parametrize("text", NO_DATES)
def test_other_text_is_no_date(text):
    assert seconds_in(pl.Series([text])).to_list() == [None]
    column = pl.Series([text, "2024-05-31", "NA", None])
    learned = learn_column(column, np.ones(4)).column
    assert (learned.kind, learned.name) == ("category", "") or learned.order == "dmy"


def test_types_and_text_give_the_same():
    """Also where a zone is a type's, and in a CSV file that Polars writes."""
    moments = [datetime(2024, 3, 30, 13) + timedelta(hours=7 * k) for k in range(30)]
    plain = pl.Series(moments)
    for column in (
        plain.cast(pl.Datetime("ms")),
        plain.cast(pl.Datetime("ns")),
        plain.dt.replace_time_zone("Europe/Berlin"),
        pl.read_csv(pl.DataFrame({"a": plain}).write_csv().encode(), infer_schema=False)["a"],
        as_polars(pd.DataFrame({"a": pd.to_datetime(moments)}))["a"],
    ):
        assert seconds_in(column).to_list() == seconds_in(plain).to_list()
    assert seconds_in(plain.cast(pl.Date)).to_list() == seconds_in(plain.cast(pl.Date).cast(pl.String)).to_list()
    assert seconds_in(pl.Series([None, None])).to_list() == [None, None]


def table(n=60, first=date(2023, 12, 30), **columns):
    """Days in a row, so that month and weekday vary."""
    return pl.DataFrame({"a": np.arange(float(n)), "day": [first + timedelta(k) for k in range(n)], **columns})


def test_what_varies_is_learned():
    encoding, notes = learned_from(table())
    assert notes == []
    assert encoding.feature_names == ["a", "day (days)", "day (month)", "day (weekday)"]
    assert encoding.places == {"a": [0], "day": [1, 2, 3]}
    features = inputs_of(encoding, table())
    assert features[:4].tolist() == [[0, 0, 12, 6], [1, 1, 12, 7], [2, 2, 1, 1], [3, 3, 1, 2]]
    later = inputs_of(encoding, table(first=date(2023, 12, 23)))
    assert later[:2].tolist() == [[0, -7, 12, 6], [1, -6, 12, 7]]  # before the first one, too
    times = pl.DataFrame({"t": ["2024-05-31 06:00", "2024-05-31 18:00"]})
    encoding, _ = learned_from(times)
    assert encoding.columns == (Dates("t", "2024-05-31", 0.5, ("days", "hour")),)
    assert inputs_of(encoding, times).tolist() == [[0.25, 6], [0.75, 18]]
    same, notes = learned_from(pl.DataFrame({"t": ["2024-05-31"] * 3}))
    assert notes == []
    assert same.feature_names == ["t (days)"]


def test_a_cell_that_is_no_date_is_the_median_date():
    days = [str(day) for day in table()["day"]]
    learned, notes = learned_from(pl.DataFrame({"day": ["soon", *days, "never", None]}))
    assert notes == [
        "warning: column 'day': 2 cells that are no dates are taken as missing, such as 'never', 'soon'; "
        "--categorical (in Python, the dtype category) takes all as categories"
    ]
    (column,) = learned.columns
    assert (column.first, column.median) == ("2023-12-30", 29.5)
    features = inputs_of(learned, pl.DataFrame({"day": ["2024-01-29", "later", None, ""]}))
    assert features[:, 0].tolist() == [30, 29.5, 29.5, 29.5]
    assert features[1].tolist() == [29.5, 1, 7, 1]  # Sunday, 28 January 2024, noon; missing
    assert features[0].tolist() == [30, 1, 1, 0]
    with pytest.raises(TableError, match="column 'day' must hold dates such as 2024-05-31, got cells of type Int64"):
        inputs_of(learned, pl.DataFrame({"day": [20240129]}))


@pytest.mark.parametrize("kind", [pl.String, pl.Date, pl.Datetime])
def test_dates_are_no_target_but_may_be_classes(kind):
    values = table()["day"].cast(kind)
    for refused in (lambda: task_of(values), lambda: target_values(values, "regression")):
        with pytest.raises(
            TableError, match=r"'day' must hold classes or numbers, got dates; .* --drop 'day'; --task cl"
        ):
            refused()
    assert len(np.unique(target_values(values, "classification"))) == len(values)
    assert task_of(pl.Series("day", ["2024-05-31", "never"] * 20)) == "classification"


def test_columns_with_few_dates_are_what_they_were():
    few = pl.DataFrame({"a": ["2024-05-31", "x"] * 20, "b": ["12", "13"] * 20})
    assert [column.kind for column in learned_from(few)[0].columns] == ["category", "number"]
    dates = pl.DataFrame({"a": ["2024-05-31", "2024-06-01"] * 20})
    for each in (dates, dates.with_columns(pl.col("a").str.to_date())):
        encoding, notes = learned_from(each, categorical=["a"])
        assert encoding.columns == (Categories("a", ("2024-05-31", "2024-06-01")),)
        assert notes == []
    lists = pl.DataFrame({"a": [1, 2], "b": [[1], [2]]})
    assert learned_from(lists)[1] == ["column 'b' is left out: its type List(Int64) is neither a number nor a category"]


CLOCKS = {
    "text": pl.Series(["14:30", " 06:00:00", "NA", "18:00:05.5"]),
    "half days": pl.Series(["2:30 PM", "6:00 am", None, "06:00:05 pm"]),
    "type": pl.Series([time(14, 30), time(6), None, time(18, 0, 5)]),
    "objects": as_polars(pd.DataFrame({"at": [time(14, 30), time(6), None, time(18, 0, 5)]}))["at"],
}


@pytest.mark.parametrize("kind", CLOCKS)
def test_times_of_day_are_parts_of_a_day(kind):
    cells = CLOCKS[kind].alias("at")
    encoding, notes = learned_from(pl.DataFrame({"at": cells}))
    assert notes == []
    assert encoding.feature_names == ["at (time of day)", "at is missing"]
    expected = [14.5 / 24, 0.25, 14.5 / 24, 18 / 24 + 5 / 86400]
    assert inputs_of(encoding, pl.DataFrame({"at": cells}))[:, 0] == pytest.approx(expected)
    again = Encoder.from_state(json.loads(json.dumps(encoding.state())))
    assert inputs_of(again, pl.DataFrame({"at": ["12:00", "24:10", None]}))[:, 0] == pytest.approx(
        [0.5, 0.604, 0.604], abs=1e-3
    )
    with pytest.raises(TableError, match="column 'at' must hold times such as 17:45, got cells of type Int64"):
        inputs_of(encoding, pl.DataFrame({"at": [3]}))
    with pytest.raises(TableError, match="got times of day; to predict them, add a column with the hours since midn"):
        task_of(cells.drop_nulls().filter(cells.drop_nulls() != "NA") if kind == "text" else cells.drop_nulls())


def test_times_among_dates_and_scores_are_no_times():
    for cells in (["14:30", "2024-05-31"], ["25:20", "16:9"], ["14:30", "late"]):
        (column,) = learned_from(pl.DataFrame({"a": cells * 20}))[0].columns
        assert column.kind == "category"


def test_files_keep_how():
    learned, _ = learned_from(table())
    again = Encoder.from_state(json.loads(json.dumps(learned.state())))
    assert again == learned
    np.testing.assert_array_equal(inputs_of(again, table()), inputs_of(learned, table()))


GOOD = {"name": "a", "kind": "date", "median": 1.5, "first": "2024-01-01", "parts": ["days", "month"], "gaps": False}


@pytest.mark.parametrize(
    "change",
    [
        {"median": None},
        {"median": float("nan")},
        {"median": -1.0},
        {"median": 1e9},
        {"first": ""},
        {"first": "soon"},
        {"parts": []},
        {"parts": ["month", "days"]},
        {"parts": ["days", "days"]},
        {"parts": ["years"]},
        {"gaps": 1},
    ],
    ids=str,
)
def test_dates_that_no_table_has(change):
    assert Encoder.from_state([GOOD]).feature_names == ["a (days)", "a (month)"]
    with pytest.raises(ValueError, match=r"invalid column 'a'|Invalid isoformat"):
        Encoder.from_state([GOOD | change])
