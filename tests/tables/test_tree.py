"""Parts are merged in the same order by any number of readers, and summaries can be sent without loss."""

import math
import pickle
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fracdnn.tables.ids import Numbering
from fracdnn.tables.summaries import Tree
from fracdnn.tables.summary import ColumnSummary
from fracdnn.tables.targets import TargetSummary


@dataclass(frozen=True)
class Told:
    """Which merges there were, in which order."""

    merges: str
    depth: int = 0

    def merged(self, other):
        return Told(f"({self.merges} {other.merges})", 1 + max(self.depth, other.depth))


def tree_of(parts):
    tree = Tree()
    for number in parts:
        tree.add_part(number, Told(str(number)))
        assert len(tree.nodes) <= max(1, 2 * math.ceil(math.log2(len(parts))))
    return tree


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7, 8, 9, 21, 32, 33, 47])
def test_the_order_of_merges_is_that_of_one_reader(n):
    alone = tree_of(range(n)).root()
    assert alone.depth == math.ceil(math.log2(n))
    assert alone.merges.replace("(", "").replace(")", "").split() == [str(k) for k in range(n)]
    for count in (2, 3, 5, 8, n, n + 2):
        whole = Tree()
        for rank in range(count):
            for level, place, summary in tree_of(range(rank * n // count, (rank + 1) * n // count)).nodes:
                whole.add_part(place, summary, level)
        assert whole.root() == alone


def test_missing_parts_on_the_right_are_nothing():
    assert tree_of(range(7)).root().merges == "(((0 1) (2 3)) ((4 5) 6))"


def sent(summary):
    """As torch sends it to other processes."""
    return pickle.loads(pickle.dumps(summary))


DAYS = ["2024-05-31", "soon", "2024-06-01 12:30", None]
LABELS = {
    "text": pl.Series(["a", "é\n,", "tensor at", "a"]),
    "numbers": pl.Series([0.1, 5e-324, -math.inf, 0.1]),
    "whole": pl.Series([2**62 + 1, -1, 0, 0]),
    "truth": pl.Series([True, False, True, True]),
    "days": pl.Series([date(2020, 1, 1), date(1, 1, 1)] * 2),
    "times": pl.Series([time(1, 2, 3, 4), time(0)] * 2),
    "decimals": pl.Series([Decimal("0.10"), Decimal("3.00")] * 2),
    "named": pl.Series(["b", "a", "a", "b"], dtype=pl.Enum(["b", "a", "c"])),
    "categories": pl.Series(["b", "a", "a", "b"], dtype=pl.Categorical),
}


@pytest.mark.parametrize("kind", LABELS)
def test_a_target_can_be_sent(kind):
    labels, learned = LABELS[kind], np.array([True, True, True, False])
    found = TargetSummary.of(labels, learned)
    arrived = sent(found)
    assert isinstance(arrived, TargetSummary)
    assert_frame_equal(arrived.labels, found.labels)
    assert arrived.labels["learned"].sum() == 3
    assert repr(arrived.numbers) == repr(found.numbers)
    assert_frame_equal(arrived.merged(found).labels, found.merged(arrived).labels)


@pytest.mark.parametrize(
    "cells",
    [["1,5", "bad", "inf", None], ["a", "tensor at", None, "a"], [f"s{k}" for k in range(300)], [None, None], [], DAYS],
)
def test_a_column_can_be_sent(cells):
    column, n = pl.Series("a", cells, dtype=pl.String), len(cells)
    learned = np.arange(n) != 1
    found = ColumnSummary.of(column, learned.astype(float))
    arrived = sent(found)
    assert isinstance(arrived, ColumnSummary)
    assert repr(arrived) == repr(found)
    assert repr(arrived.merged(arrived)) == repr(found.merged(found))


@pytest.mark.parametrize("cells", [[1, 2**60, None], ["p1", "p2", "p2"]])
def test_a_numbering_can_be_sent(cells):
    """With its hashes, which are unsigned."""
    found = Numbering.of(pl.Series("sample id", cells))
    arrived = sent(found)
    assert repr(arrived) == repr(found)
    assert arrived.hashes.dtype == found.hashes.dtype == np.uint64
