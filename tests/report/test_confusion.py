"""What classes are taken for, counted by hand."""

from fracdnn.report.trust import class_table
from tests.report.samples import classified


def test_each_class_with_what_it_is_taken_for():
    subject = classified("aaaaabbbbcc", "aaabcbbbacc")
    assert subject.confusions.tolist() == [[3, 1, 1], [1, 3, 0], [0, 0, 2]]
    assert class_table(subject)[1:] == [
        ["a", "5", "0.75", "0.6", "b (1), c (1)"],
        ["b", "4", "0.75", "0.75", "a (1)"],
        ["c", "2", "0.667", "1", "–"],
    ]


def test_most_frequent_mistakes_come_first_and_others_are_counted():
    table = class_table(classified("a" * 11 + "bcde", "a" + "bccdddeeee" + "bcde"))
    assert table[1][-1] == "e (4), d (3), c (2), 1 more"


def test_of_many_classes_those_with_the_most_misses_are_listed(monkeypatch):
    monkeypatch.setattr("fracdnn.report.trust.MOST_LISTED", 2)
    assert [row[0] for row in class_table(classified("aabbcc", "abbbba"))[1:]] == ["a", "c"]
    assert [row[-1] for row in class_table(classified("aabb", "aabb"))[1:]] == ["–", "–"]
