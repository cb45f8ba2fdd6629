"""Tables with random damage: each is read and prepared, or refused with one clear message; by the commands too."""

import random

import pytest

from tests.campaign import mutated_tables
from tests.campaign.budget import cases, full, say_tried, seed_of
from tests.campaign.shards import tried
from tests.cli.commands import run

SHARDS = cases(1, 20)
EACH = cases(10, 5_000)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_damaged_tables_are_refused_in_words_or_work(shard, tmp_path):
    findings = tried("tests.campaign.mutated_tables", shard * EACH, EACH, seed_of("tables"), tmp_path)
    say_tried(f"tables, shard {shard}", EACH)
    assert not findings, "\n\n".join(findings)


@pytest.mark.skipif(not full(), reason="each case is two processes: only in the full campaign")
@pytest.mark.parametrize("shard", range(4))
def test_commands_refuse_damaged_tables_in_one_line_or_work(shard, tmp_path):
    world, chosen, count = mutated_tables.ready(tmp_path), random.Random(seed_of(f"commands {shard}")), 60
    good = tmp_path / "good.parquet"
    train = ["--target", "y", "--max-iter", "2", "--width", "3", "--quiet", "--out"]
    assert run("train", good, *train, "good.fracdnn", cwd=tmp_path).returncode == 0
    for _ in range(count):
        ending, changes = mutated_tables.draw(world, chosen)
        path = tmp_path / f"changed{ending}"
        path.write_bytes(mutated_tables.changed(world, ending, changes))
        for done in (
            run("train", path, *train, "new.fracdnn", cwd=tmp_path),
            run("predict", "good.fracdnn", path, "--quiet", cwd=tmp_path),
        ):
            # Polars tells of some Parquet files in its own words, before we can tell in ours.
            lines = [line for line in done.stderr.splitlines() if line.startswith("fracdnn: ")]
            assert done.returncode == 0 or (done.returncode == 1 and len(lines) == 1), (ending, changes, done)
            assert "Traceback" not in done.stderr, (ending, changes, done.stderr)
    say_tried(f"tables by commands, shard {shard}", 2 * count)
