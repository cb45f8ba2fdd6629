"""What is said of each column, and the medians that fill in missing cells."""

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from fracdnn.tables import Encoder
from fracdnn.tables.encoder import HEADINGS, as_lines
from fracdnn.tables.learning import median_of


def row(**cells):
    return dict.fromkeys(HEADINGS, "") | {"kind": "category", "what became of it": "3 categories"} | cells


def test_a_column_is_one_line_whatever_its_cells_hold():
    lines = as_lines([row(column="no\nte", examples="one\ntwo, \x1b[31mred"), row(column="b", examples="c")])
    assert [line.split() for line in lines] == [
        ["no", "te", "category", "one", "two,", "[31mred", "3", "categories"],
        ["b", "category", "c", "3", "categories"],
    ]
    assert all(line.isprintable() for line in lines)
    assert lines[0].index("3 categories") == lines[1].index("3 categories")


COLUMNS = {
    "day": ["31.01.2024", "01.02.2024", "05.03.2024"],
    "when": ["01/31/2024", "02/01/2024", "03/05/2024"],
    "price": ["$1,017", "$12", None],
    "code": ["007", "008", "007"],
    "same": [7, 7, 7],
    "empty": [None, None, None],
}


def test_the_overview_says_what_was_understood():
    overview = Encoder.fit(pl.DataFrame(COLUMNS)).overview()
    assert {row["column"]: row["what became of it"] for row in overview} == {
        "day": "days since 2024-01-31, month, weekday, written day first, as 31.01.2024",
        "when": "days since 2024-01-31, month, weekday, written month first, as 01/31/2024",
        "price": "a number, in $, commas separate thousands, missing ones become 514.5, the median",
        "code": "2 categories, codes with leading zeros",
        "same": "the same number in every row",
        "empty": "it is empty",
    }
    assert [row["missing"] for row in overview] == ["", "", "33.3%", "", "", "100.0%"]
    assert overview[0]["examples"] == "31.01.2024, 01.02.2024, 05.03.2024"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 4)), min_size=1))
def test_weighted_medians_are_those_of_repeated_numbers(pairs):
    values, counts = (np.array(part, dtype=float) for part in zip(*pairs, strict=True))
    expected = np.median(values.repeat(counts.astype(int)))
    assert median_of(values, counts) == expected
    assert median_of(values, counts * 2.0) == expected


def test_the_median_of_huge_numbers_is_finite():
    for numbers in ([1e308, 1.7e308], [-1.7e308, 1.7e308], [1.7e308, 1.7e308]):
        values = np.array(numbers)
        assert median_of(values, np.ones(2)) == values[0] / 2 + values[1] / 2
