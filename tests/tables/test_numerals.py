"""Numbers, dates and codes as people write them: read as they are meant, or refused in words."""

import polars as pl
import pytest

from fracdnn.exceptions import TableError
from fracdnn.tables.column import Categories, Dates, Numbers
from fracdnn.tables.words import alike
from tests.tables.learning import inputs_of, learned_from

NUMBERS = [
    (["$1,017", "-$12", "$3.50"], "$", [1017, -12, 3.5]),
    (["1.234,50", "1.234", "12"], "", [1234.5, 1234, 12]),
    (["12 %", "3,5 %", "7 %"], "%", [12, 3.5, 7]),
    (["1,234,567", "1,234", "5"], "", [1234567, 1234, 5]),
    (["1,234.5", "1,234", "5"], "", [1234.5, 1234, 5]),
    (["1'234.50", "\u22125", "1 234"], "", [1234.5, -5, 1234]),
    (["12 kg", "13.5kg", "14"], "kg", [12, 13.5, 14]),
    (["1,5", "2.5", "1e3"], "", [1.5, 2.5, 1000]),
    (["1,017 €", "2,50 €", "3 €"], "€", [1.017, 2.5, 3]),
    (["0.500", "1.234", ".5"], "", [0.5, 1.234, 0.5]),
    (["(89.06)", "134.02", "($1,017.5)"], "$", [-89.06, 134.02, -1017.5]),
]


@pytest.mark.parametrize(("cells", "unit", "values"), NUMBERS, ids=[case[0][0] for case in NUMBERS])
def test_numbers_as_people_write_them(cells, unit, values):
    learned, notes = learned_from(pl.DataFrame({"a": cells}))
    (column,) = learned.columns
    assert isinstance(column, Numbers)
    assert (column.unit, notes) == (unit, [])
    assert inputs_of(learned, pl.DataFrame({"a": cells}))[:, 0].tolist() == values
    # Each cell alone is the same number again, though it may not tell how it is written.
    for cell, value in zip(cells, values, strict=True):
        assert inputs_of(learned, pl.DataFrame({"a": [cell]})).tolist() == [[value]]


def test_what_may_be_two_numbers_or_of_two_kinds_is_not_guessed():
    with pytest.raises(TableError, match="column 'a' must be clear about its commas, got '1,234', which may"):
        learned_from(pl.DataFrame({"a": ["1,234", "500"]}))
    for cells, units in ((["12%", "0.5", "3%"], "'%', none"), (["12 kg", "300 g", "1 kg"], "'g', 'kg'")):
        _, notes = learned_from(pl.DataFrame({"a": cells, "b": [1, 2, 3]}))
        assert notes == [
            f"column 'a' is left out: its numbers have different units, {units}; write all of them in one to use it"
        ]


def test_few_words_that_begin_with_numbers_are_categories():
    cells = ["1st", "2nd", "3rd"] * 5
    (column,) = learned_from(pl.DataFrame({"place": cells}))[0].columns
    assert column == Categories("place", ("1st", "2nd", "3rd"))


def test_codes_with_leading_zeros_are_categories():
    learned, _ = learned_from(pl.DataFrame({"zip": ["05453", "12345", "12345"]}))
    assert learned.columns == (Categories("zip", ("05453", "12345")),)


@pytest.mark.parametrize(
    ("cells", "order", "first"),
    [
        (["31.01.2024", "1.2.2024 7:30", "03.04.24"], "dmy", "2024-01-31"),
        (["01/31/2024", "2/1/2024 5:45 PM", "03/04/2024"], "mdy", "2024-01-31"),
        (["31/01/2024", "01/02/2024", "2024-04-03"], "dmy", "2024-01-31"),
        (["2024/1/31", "2024-02-01", "2024-04-03"], "ymd", "2024-01-31"),
    ],
)
def test_dates_as_people_write_them(cells, order, first):
    learned, notes = learned_from(pl.DataFrame({"day": cells}))
    (column,) = learned.columns
    assert isinstance(column, Dates)
    assert (column.order, column.first, notes) == (order, first, [])


def test_dates_that_may_be_read_in_two_ways_are_told():
    _, notes = learned_from(pl.DataFrame({"day": ["03/04/2024", "05/06/2024", "05/06/2024"]}))
    assert notes == [
        "warning: column 'day': 03/04/2024 may be read in two ways and is taken as month/day/year; "
        "write 2024-01-31 to be sure"
    ]


def test_names_that_look_alike():
    assert alike(["Ja", "jA", "Yes", "Nein", "maybe"]) == [["Ja", "jA", "Yes"]]
    assert alike(["versicolor", "versicolour", "setosa"]) == [["versicolor", "versicolour"]]
    assert alike(["class 1", "class 2", "red", "bed", "0.5", "<0.5"]) == []


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
def test_a_few_cells_among_numbers_that_are_none(numbers, strays, kind, comma):
    """Missing cells do not count."""
    cells = [f"{k % 30}{',' if comma else '.'}5" for k in range(numbers)] + strays + ["NA", ""] * 40
    learned, notes = learned_from(pl.DataFrame({"a": cells, "b": [k % 9 for k in range(len(cells))]}))
    column = learned.columns[0]
    assert (column.kind, getattr(column, "skips_text", False)) == (kind, kind == "number")
    if kind == "number":
        few = "a cell that is no number is" if len(strays) == 1 else f"{len(strays)} cells that are no numbers are"
        assert notes[0].startswith(f"warning: column 'a': {few} taken as missing, such as ")
    elif numbers > 20:
        assert f"{numbers} of {numbers + len(strays):,} cells are numbers, but not" in notes[0]


def test_a_cell_that_is_no_number_only_in_rows_that_are_tested():
    learned = pl.DataFrame({"a": [str(k) for k in range(30)]})
    encoder, notes = learned_from(learned, tested=pl.DataFrame({"a": ["n.d."]}))
    assert encoder.columns[0].skips_text
    assert "a cell that is no number is taken as missing, such as 'n.d.'" in notes[0]
    assert inputs_of(encoder, pl.DataFrame({"a": ["n.d."]})).tolist() == [[14.5]]


def test_decimal_commas_that_only_other_cells_explain():
    cells = [f"{k},{k % 10}" for k in range(90)] + [f"{k % 9 + 1},{k + 100}" for k in range(90)]
    learned, _ = learned_from(pl.DataFrame({"a": cells}))
    assert learned.columns[0].decimal == ","
    assert inputs_of(learned, pl.DataFrame({"a": ["1,100"]})).tolist() == [[1.1]]
