"""Numbers in words: grouped, rounded, without exponents of programmers."""

import pytest

from fracdnn.report.texts import is_number, number, share
from fracdnn.tables.words import count


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.73941, "0.7394"),
        (0.08284, "0.08284"),
        (-142_863.0, "−142,900"),
        (999_999.0, "1,000,000"),
        (1.056e6, "1,056,000"),
        (9_999_999.0, "1×10⁷"),
        (1.056e7, "1.056×10⁷"),
        (-2.5e-7, "−2.5×10⁻⁷"),
        (3.0, "3"),
        (float("nan"), "–"),
        (None, "–"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


def test_digits():
    assert [number(1234.5678, digits) for digits in (2, 3, 5)] == ["1,200", "1,230", "1,234.6"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "100.0%"),
        (0.0, "0.0%"),
        (0.7775, "77.8%"),
        (0.9999, "99.990%"),
        (0.0001, "0.010%"),
        (1 - 1e-7, "over 99.99%"),
        (1e-7, "under 0.01%"),
    ],
)
def test_all_and_nothing_are_told_of_nothing_else(value, text):
    assert share(value) == text


def test_counts():
    assert [count(n, "sample") for n in (0, 1, 2500)] == ["0 samples", "1 sample", "2,500 samples"]


def test_what_is_a_number():
    for value in (0.0, -142_863.0, 1.056e7, -2.5e-7):
        assert is_number(number(value))
    assert is_number(share(0.5))
    assert not any(map(is_number, ("", "–", "3 of width 64", "2021-01-01", "runs/3", "yes (32)")))
