"""What classes are taken for, counted by hand."""

import numpy as np
import pytest

from fracdnn.report.classes import _DARK_BLUES, _LIGHT_BLUES, _ink, confusion_plot, confusions, luminance
from fracdnn.report.plots import channels
from tests.report.samples import classified


def test_each_class_with_what_it_is_taken_for():
    subject = classified("aaaaabbbbcc", "aaabcbbbacc")
    assert confusions(subject).tolist() == [[3, 1, 1], [1, 3, 0], [0, 0, 2]]
    assert confusion_plot(subject).table.rows == [
        ["a", "5", "0.75", "0.6", "b (1), c (1)"],
        ["b", "4", "0.75", "0.75", "a (1)"],
        ["c", "2", "0.667", "1", "–"],
    ]


def test_most_frequent_mistakes_come_first_and_others_are_counted():
    plot = confusion_plot(classified("a" * 11 + "bcde", "a" + "bccdddeeee" + "bcde"))
    assert plot.table.rows[0][-1] == "e (4), d (3), c (2), 1 more"


def test_classes_without_a_mistake_are_not_listed():
    plot = confusion_plot(classified("aabbcc", "abbbcc"))
    assert [row[0] for row in plot.table.rows] == ["a", "b"]
    assert plot.caption.endswith("The other one is always right.")
    without = confusion_plot(classified("aabb", "aabb"))
    assert without.table is None
    assert without.caption.endswith("No class is confused with another.")


@pytest.mark.parametrize("scale", [_LIGHT_BLUES, _DARK_BLUES])
def test_counts_can_be_read_on_every_color(scale):
    stops, colors = [stop for stop, _ in scale], np.array([channels(color) for _, color in scale])
    for value in np.linspace(0, 1, 41):
        cell = luminance(np.array([np.interp(value, stops, channel) for channel in colors.T]))
        ink = luminance(np.array(channels(_ink(value, scale))))
        low, high = sorted([cell, ink])
        assert (high + 0.05) / (low + 0.05) >= 4.5
    assert luminance(np.array([255, 255, 255])) == pytest.approx(1)
