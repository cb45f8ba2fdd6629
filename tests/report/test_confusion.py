"""What classes are taken for, counted by hand."""

import numpy as np
import pytest

from fracdnn.report.answers import _THEMES, confusion_plot, confusions
from tests.report.samples import classified


def test_each_class_with_what_it_is_taken_for():
    subject = classified("aaaaabbbbcc", "aaabcbbbacc")
    assert confusions(subject).tolist() == [[3, 1, 1], [1, 3, 0], [0, 0, 2]]
    assert confusion_plot(subject).table[1:] == [
        ["a", "5", "0.75", "0.6", "b (1), c (1)"],
        ["b", "4", "0.75", "0.75", "a (1)"],
        ["c", "2", "0.667", "1", "–"],
    ]


def test_most_frequent_mistakes_come_first_and_others_are_counted():
    plot = confusion_plot(classified("a" * 11 + "bcde", "a" + "bccdddeeee" + "bcde"))
    assert plot.table[1][-1] == "e (4), d (3), c (2), 1 more"


def test_classes_without_a_mistake_are_not_listed():
    plot = confusion_plot(classified("aabbcc", "abbbcc"))
    assert [row[0] for row in plot.table[1:]] == ["a", "b"]
    assert plot.caption.endswith("1 class without a mistake is not listed.")
    without = confusion_plot(classified("aabb", "aabb"))
    assert without.table is None
    assert without.caption.endswith("No class is confused with another.")


def channels(color):
    return list(bytes.fromhex(color[1:]))


def luminance(rgb):
    """Of red, green and blue from 0 to 255, as the Web Content Accessibility Guidelines define it."""
    parts = np.asarray(rgb) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("theme", _THEMES)
def test_counts_can_be_read_on_every_color(theme):
    scale, turn, inks = _THEMES[theme]
    stops, colors = [stop for stop, _ in scale], np.array([channels(color) for _, color in scale])
    for value in np.linspace(0, 1, 41):
        cell = luminance([np.interp(value, stops, channel) for channel in colors.T])
        low, high = sorted([cell, luminance(channels(inks[int(value >= turn)]))])
        assert (high + 0.05) / (low + 0.05) >= 4.5
    assert luminance([255, 255, 255]) == pytest.approx(1)


def test_each_count_has_the_ink_of_its_cell():
    plot = confusion_plot(classified("aaaaabbbbcc", "aaabcbbbacc"))
    assert plot.themes["light"][1]["textfont.color"][0][-1] == "#ffffff"
    assert plot.themes["dark"][1]["textfont.color"][0][:2] == ["#000000", "#ffffff"]
