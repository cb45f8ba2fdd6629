"""Tables as people write them, to compare encodings with recorded ones: see `test_recorded_encodings`."""

from datetime import date, datetime, time, timedelta

import numpy as np
import polars as pl

N = 40
START = date(2023, 11, 20)


def cycle(*cells):
    return [cells[k % len(cells)] for k in range(N)]


def plain():
    k = np.arange(N)
    return {"a": (k * 37 % 23) / 4 - 2.0, "b": (k * 11 % 17).tolist(), "flag": (k % 3 == 0).tolist()}


def gaps():
    values = cycle(1.5, None, 2.5, 4.0, -1.0)
    texts = cycle("3.5", "NA", " 7 ", "", "n/a", "1e2", "?", "4")
    words = cycle("red", "green", None, " red", "<NA>", "blue", "null")
    return {"value": values, "text": texts, "word": words, "truth": cycle("true", "false", None, "True")}


def money():
    return {
        "dollars": cycle("$1,017", "-$12", "$3.50", "($1,017.5)", "$ 12"),
        "euros": cycle("1,017 €", "2,50 €", "3 €", "1.234,50 €"),
        "pounds": cycle("£1,234", "£999", "£20"),
        "percent": cycle("12 %", "3,5 %", "7 %", "-1 %"),
        "weight": cycle("12 kg", "13.5kg", "14", "−5 kg"),
        "accounts": cycle("(89.06)", "134.02", "12", "1'234.50", "1 234"),
    }


def decimal_commas():
    return {
        "comma": cycle("1,5", "2,25", "1.234,5", "-3", "1e3"),
        "point": cycle("1.5", "2.25", "1,234.5", "-.5", "0.500"),
        "mixed": cycle("1,5", "2.5", "1e3"),
        "thousands": cycle("1,234,567", "1,234", "5"),
    }


def unclear_commas():
    return {"unclear": cycle("1,234", "500", "2,345"), "b": list(range(0, 2 * N, 2))}


def dates():
    days = [START + timedelta((7 * k) % 90) for k in range(N)]
    return {
        "iso": [str(day) if k % 9 else None for k, day in enumerate(days)],
        "german": [f"{day:%d.%m.%Y}" for day in days],
        "american": [f"{day:%m/%d/%Y} 5:45 PM" for day in days],
        "clock": cycle("14:30", "06:00:00", "NA", "5:45:30 PM"),
        "typed": pl.Series(days),
        "moment": pl.Series([datetime(2024, 3, 30, 13) + timedelta(hours=7 * k) for k in range(N)]),
        "time": pl.Series(cycle(time(14, 30), time(6), None)),
        "zoned": [f"2024-05-{k % 28 + 1:02d}T17:45:30.5+02:00" for k in range(N)],
        "unclear": cycle("03/04/2024", "05/06/2024", "07/08/2024"),
        "strays": [*map(str, days[:-1]), "soon"],
    }


def words():
    return {
        "zip": cycle("05453", "12345", "00100"),
        "place": cycle("1st", "2nd", "3rd"),
        "many": [f"w{k}" for k in range(N - 1)] + ["w0"],
        "note": [f"note {k}" for k in range(N)],
        "strays": [*cycle(*(f"{k}.5" for k in range(30)))[:-2], "<0.5", "n.d."],
        "mostly": cycle("1.5", "2.5", "<3"),
        "units": cycle("12 kg", "300 g", "1 kg"),
        "answer": cycle("yes", "Yes", "no", "NO"),
        "empty": [None] * N,
        "constant": [7] * N,
    }


def ids():
    return {
        "PassengerId": [1000 + 3 * k for k in range(N)],
        "row": list(range(1, N + 1)),
        "customer_id": [f"c{(k * 7) % N:03d}" for k in range(N)],
        "": [k * 2 for k in range(N)],
        "day of study": list(range(N)),
        "dose": [k % 5 for k in range(N)],
    }


def hundreds():
    """Text of 122 values, of which the most frequent have an input each, and numbers of 400 different values."""
    places = [k % 122 for k in range(244)] + [(k * k) % 30 for k in range(156)]
    return {"place": [f"p{k:03d}" for k in places], "x": [np.sin(k) for k in range(400)]}


# By name: how the table is made, and the options of `Encoder.fit`.
TABLES = {
    "plain": (plain, {}),
    "gaps": (gaps, {}),
    "money": (money, {}),
    "decimal commas": (decimal_commas, {}),
    "unclear commas": (unclear_commas, {"decimal": ","}),
    "unclear points": (unclear_commas, {"decimal": "."}),
    "dates": (dates, {}),
    "words": (words, {}),
    "ids": (ids, {"leave_out_ids": True}),
    "kept ids": (ids, {"leave_out_ids": True, "keep": ("row", "customer_id")}),
    "hundreds": (hundreds, {}),
}


def frame_of(name):
    return pl.DataFrame(TABLES[name][0](), strict=False)


def weights_of(name):
    """None, and weights with zeros, of which the last rows are only checked."""
    n = frame_of(name).height
    return {"all rows": None, "weighted rows": np.where(np.arange(n) < n - 6, np.arange(n) % 3 + 1.0, 0.0)}


def new_rows(name):
    """Rows of the table in another order, a row of missing cells, and for text one that no training has seen."""
    frame = frame_of(name)
    order = [(k * 13 + 5) % frame.height for k in range(12)]
    nothing = pl.DataFrame({column: [None] for column in frame.columns}, schema=frame.schema)
    return pl.concat([frame[order], nothing])
