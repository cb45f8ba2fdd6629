"""What classes are taken for, counted by hand."""

import re
from importlib import resources

import numpy as np
import pytest

from fracdnn.report.answers import CELLS, confusion_plot, confusions
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


def test_of_many_classes_those_with_the_most_misses_are_listed(monkeypatch):
    monkeypatch.setattr("fracdnn.report.answers.MOST_LISTED", 2)
    plot = confusion_plot(classified("aabbcc", "abbbba"))
    assert [row[0] for row in plot.table[1:]] == ["a", "c"]
    assert plot.caption.endswith("Listed are the 2 classes with the most missed samples.")
    assert [row[-1] for row in confusion_plot(classified("aabb", "aabb")).table[1:]] == ["–", "–"]


def channels(color):
    return list(bytes.fromhex(color[1:]))


def luminance(rgb):
    """Of red, green and blue from 0 to 255, as the Web Content Accessibility Guidelines define it."""
    parts = np.asarray(rgb) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("theme", [0, 1])
def test_counts_can_be_read_on_every_color(theme):
    """The page's panel shines through the cells."""
    css = resources.files("fracdnn.report").joinpath("report.css").read_text(encoding="utf-8")
    panel, ink = (channels(re.findall(rf"--{name}: (#\w+);", css)[theme]) for name in ("panel", "text"))
    scale = [[float(part) for part in re.findall(r"[\d.]+", color)] for _, color in CELLS]
    assert [color[:3] for color in scale] == [scale[0][:3]] * 2
    for alpha in np.linspace(scale[0][3], scale[1][3], 41):
        cell = luminance(alpha * np.array(scale[0][:3]) + (1 - alpha) * np.array(panel))
        low, high = sorted([cell, luminance(ink)])
        assert (high + 0.05) / (low + 0.05) >= 4.5
    assert luminance([255, 255, 255]) == pytest.approx(1)
