"""The lines that say how each column is used."""

from fracdnn.tables.encoder import HEADINGS, as_lines


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
