"""Model files and checkpoints with random damage: each is taken as it was, or refused with one clear message."""

import pytest

from tests.campaign.budget import cases, say_tried, seed_of
from tests.campaign.shards import tried

SHARDS = cases(1, 20)
EACH = cases(10, 5_000)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_damaged_files_are_refused_in_words_or_work(shard, tmp_path):
    findings = tried("tests.campaign.mutated_files", shard * EACH, EACH, seed_of("files"), tmp_path)
    say_tried(f"files, shard {shard}", EACH)
    assert not findings, "\n\n".join(findings)
