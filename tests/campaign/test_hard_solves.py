"""Hard equations against solutions of other origin: right for each component, or refused in words, and in time."""

import pytest

from tests.campaign import budget, hard_solves
from tests.campaign.hard.known import CASES
from tests.campaign.hard.verdict import check

PARTS = budget.cases(38, 20)
LARGEST_SHARE_SKIPPED = 0.05


@pytest.mark.parametrize("name", CASES)
def test_known_cases(name):
    check(CASES[name])


@pytest.mark.parametrize("part", range(PARTS))
def test_drawn_cases(part):
    """One case in each part, or many."""
    seed, count = budget.seed(), budget.cases(1, 120)
    rows = [hard_solves.tried(seed, part * count + k) for k in range(count)]
    budget.say_tried(f"hard solves {part}", len(rows))
    if budget.full():
        print(hard_solves.table(rows))
    skipped = sum(row["verdict"] == "skipped" for row in rows)
    assert skipped <= max(LARGEST_SHARE_SKIPPED * len(rows), 3 if budget.full() else 0)
    failed = hard_solves.failures(rows)
    assert not failed, "\n".join(failed)
