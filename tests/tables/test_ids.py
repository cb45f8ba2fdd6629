"""Row numbers and ids are found by one rule; measurements stay."""

import numpy as np
import polars as pl
import pytest

from fracdnn.tables import ids
from fracdnn.tables.ids import different_whole_numbers, id_reasons, is_named_id

N = 300


def draw(seed=0):
    return np.random.default_rng(seed)


# Column name, cells, and whether it is left out.
COLUMNS = {
    "from zero": (np.arange(N), True),
    "from one, as floats": (np.arange(N) + 1.0, True),
    "shuffled": (draw().permutation(N), True),
    "falls": (np.arange(N)[::-1], True),
    "rownames": (draw(1).choice(50_000, N, replace=False), True),  # of a sample of a larger table
    "customer_id": (draw(2).choice(10**9, N, replace=False), True),
    "PassengerId": (np.arange(N) * 7 + 1000, True),
    "": (draw(3).choice(9000, N, replace=False), True),
    "patient id": ([f"p{k % (N - 5):04d}" for k in range(N)], True),  # text, nearly unique
    "id with gaps": ([None if k % 40 == 0 else k * 3 for k in range(N)], True),
    "shop_id": (np.arange(N) % 40, False),
    "acid index": (draw(4).random(N) * 9, False),
    "humid": (draw(4).choice(9000, N, replace=False), False),
    "atomic number": (draw(5).choice(9000, N, replace=False), False),
    "sorted measurement": (np.sort(draw(6).random(N)), False),
    "temperature": (np.arange(N) * 5, False),
    "wavelength": (np.arange(N) + 400, False),
    "x": (np.arange(N) - N // 2, False),
    "half steps": (np.arange(N) / 2, False),
    "year": (np.arange(N) + 1, False),
    "day of study": (np.arange(N), False),
    "count": (draw(7).integers(0, N, N), False),
    "flag": (np.arange(N) % 2 == 0, False),
}


def table(columns=COLUMNS):
    cells = {name: pl.Series(name, list(values), strict=False) for name, (values, _) in columns.items()}
    return pl.DataFrame({**cells, "y": draw(8).standard_normal(N)})


def expected(columns=COLUMNS):
    return [name for name, (_, is_id) in columns.items() if is_id]


def test_the_rule():
    found = id_reasons(table().drop("y"))
    assert list(found) == expected()
    assert found["from zero"] == "it numbers the rows, from 0 to 299; --keep 'from zero' uses it"
    assert found["rownames"] == "it is an id, by its name and its different values; --keep 'rownames' uses it"
    kept = id_reasons(table().drop("y"), keep=("from zero", "rownames"))
    assert list(kept) == [name for name in expected() if name not in ("from zero", "rownames")]


def test_row_numbers_stay_and_ids_go_where_no_other_column_is_left():
    numbers = pl.DataFrame({"n": range(N), "customer_id": [k * 3 for k in range(N)]})
    assert list(id_reasons(numbers)) == ["customer_id"]


def test_columns_with_a_different_whole_number_in_each_row():
    columns = {"a": [3, 1, 2], "b": [1, 1, 2], "c": [1.5, 2.0, 3.0], "d": [1, None, 2], "e": ["7", "8", "9"]}
    assert different_whole_numbers(pl.DataFrame(columns)) == ["a", "e"]


def left_out(values):
    """Whether a column of these values beside a measurement is left out."""
    return "n" in id_reasons(pl.DataFrame({"n": list(values), "x": [0.5] * len(values)}))


def test_row_numbers_after_rows_were_removed():
    """In order they may be half of their range, else nearly all of it."""
    kept = np.flatnonzero(draw().random(400) < 0.7)
    kept[0] = 0
    assert left_out(kept.tolist())
    assert not left_out(draw().permutation(kept).tolist())
    assert not left_out((kept * 2).tolist())


def test_sizes_that_decide():
    assert not left_out(range(1, ids.LEAST_ROWS))  # a design variable of a short table
    assert left_out(range(1, ids.LEAST_ROWS + 1))
    assert not left_out(range(400, 400 + ids.MANY_ROWS - 1))
    assert left_out(range(400, 400 + ids.MANY_ROWS))
    assert not left_out([*range(90), *range(10)])  # a tenth of them twice
    assert not left_out([*range(90), *[None] * 10])


@pytest.mark.parametrize(
    ("name", "is_id"),
    [
        *((name, True) for name in ("id", "ID", "Id", "row_id", "rowid", "row.names", "Row Number", "index", "uuid")),
        *((name, True) for name in ("", " ", "Unnamed: 0", "__UNNAMED__0", "CustomerID", "id_customer", "Patient No.")),
        *(
            (name, False)
            for name in ("width", "price index", "number", "covid", "idea", "X", "no smoking", "größe", "%")
        ),
    ],
)
def test_names(name, is_id):
    assert is_named_id(name) == is_id
