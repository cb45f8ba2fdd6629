"""Tables with random damage: each is read and prepared, or refused with one clear message."""

import pytest

from tests.campaign.budget import cases, say_tried, seed_of
from tests.campaign.shards import tried

SHARDS = cases(1, 20)
EACH = cases(600, 5_000)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_damaged_tables_are_refused_in_words_or_work(shard, tmp_path):
    findings = tried("tests.campaign.mutated_tables", shard * EACH, EACH, seed_of("tables"), tmp_path)
    say_tried(f"tables, shard {shard}", EACH)
    assert not findings, "\n\n".join(findings)
