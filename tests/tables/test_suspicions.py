"""What `fracdnn train` warns of before anybody believes a score."""

import numpy as np
import polars as pl
import pytest

from fracdnn.tables.encoder import Encoded, Encoder
from fracdnn.tables.suspicions import missing_codes, repeated_rows, telling_columns

RANDOM = np.random.default_rng(0)
N = 200
NOISE = RANDOM.normal(size=N)
CLASSES = RANDOM.choice(["no", "yes"], size=N)


def encoded(**columns):
    table = pl.DataFrame(columns)
    encoder = Encoder.fit(table)
    return Encoded(encoder.transform(table), encoder)


def test_rows_on_both_sides_of_the_split():
    (text,) = repeated_rows(60, 60)
    assert text.startswith("60 of 60 held-out rows have the same values in all columns as training rows; if ")
    assert repeated_rows(12, 60)
    assert repeated_rows(11, 60) == repeated_rows(0, 0) == []


@pytest.mark.parametrize("copy", [CLASSES, np.where(CLASSES == "yes", "P", "N"), np.where(CLASSES == "yes", 2.0, -5.0)])
def test_a_column_that_is_the_class(copy):
    (text,) = telling_columns(encoded(noise=NOISE, copy=copy), CLASSES, are_classes=True)
    known = "if it is not known before the target is, leave it out: --drop 'copy'"
    assert text == f"'copy' tells the target exactly; {known}"


def test_one_of_three_classes_is_enough():
    classes = RANDOM.integers(0, 3, size=N)
    found = telling_columns(encoded(noise=NOISE, is_2=(classes == 2).astype(float)), classes, are_classes=True)
    assert "'is_2' tells the target exactly" in found[0]


@pytest.mark.parametrize("scale", [1.0, -1e-6, 0.92])
def test_columns_that_are_the_number_in_another_unit(scale):
    y = 1e6 + RANDOM.normal(size=N)
    X = encoded(noise=NOISE, price=scale * y + 3.0, again=y)
    (text,) = telling_columns(X, y, are_classes=False)
    assert text.startswith("'price', 'again' each tell the target exactly; if they are not known before")


def test_a_good_column_is_no_copy():
    y = NOISE + 0.01 * RANDOM.normal(size=N)
    assert telling_columns(encoded(x=NOISE), y, are_classes=False) == []
    nearly = np.where(np.arange(N) < 2, CLASSES[::-1], CLASSES)
    assert (nearly != CLASSES).any()
    assert telling_columns(encoded(x=nearly, sign=np.sign(NOISE)), CLASSES, are_classes=True) == []


def test_few_rows_may_agree_by_chance():
    y = np.arange(19.0)
    assert telling_columns(encoded(x=y), y, are_classes=False) == []
    classes = np.arange(N) < 9
    assert telling_columns(encoded(x=classes.astype(float)), classes, are_classes=True) == []


def test_constants_tell_nothing():
    assert telling_columns(encoded(x=np.ones(N), noise=NOISE), np.ones(N), are_classes=False) == []


@pytest.mark.parametrize("code", [-999.0, 9999.0, -99.0])
def test_codes_for_missing_values(code):
    values = np.where(np.arange(N) % 10 == 0, code, 5.0 + NOISE)
    (text,) = missing_codes(encoded(temperature=values, noise=NOISE))
    far = "far from all other values; if it stands for a missing value, leave these cells empty"
    assert text == f"column 'temperature': {code:g} recurs in 20 of 200 rows, {far}"


@pytest.mark.parametrize(
    "values",
    [
        np.where(np.arange(N) < 2, -999.0, NOISE),  # too few
        np.where(np.arange(N) < 20, -998.0, NOISE),  # no nines
        np.where(np.arange(N) < 20, 999.0, 500.0 * (1 + NOISE)),  # among the others
        np.full(N, 99.0),
    ],
)
def test_other_numbers_are_no_codes(values):
    assert missing_codes(encoded(x=values)) == []
