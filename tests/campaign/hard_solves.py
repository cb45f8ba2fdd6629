"""`python -m tests.campaign.hard_solves --count 2000 --seed 7 --workers 16 --output hard.json`: none wrong silently.

Adversarial equations are given to `fdeint` and held to solutions that share nothing with the library, component by
component. Allowed are an accurate answer, an exception of the library's in words where the problem may be refused, and
a warning of noise with an answer as good as the noise. Wrong are other numbers, raw errors, refusals of problems that
can be solved, and more evaluations than the problem's budget. Exit code 1 where any case failed.
"""

import argparse
import json
import math
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import torch

from tests.campaign.hard.draws import DRAWS
from tests.campaign.hard.verdict import check, outcome
from tests.campaign.trying import script

VERDICTS = ("accurate", "refused", "warned", "skipped", "wrong", "refused wrongly", "over budget")


def drawn(seed, number):
    """Case `number` of a seed: the kinds take turns."""
    return DRAWS[number % len(DRAWS)](random.Random(f"{seed} {number}"))


def name_of(number):
    return DRAWS[number % len(DRAWS)].__name__.removeprefix("draw_").replace("_", " ")


def tried(seed, number):
    """What came of one case, as plain values."""
    case, begin = drawn(seed, number), time.perf_counter()
    found = outcome(case)
    seconds = round(time.perf_counter() - begin, 2)
    repeat = script(check, case) if found.failed else ""
    return {"number": number, "name": name_of(number), "seconds": seconds, **asdict(found), "repeat": repeat}


def all_tried(seed, numbers, workers):
    """One after the other here, or each in one of several processes."""
    if workers == 1:
        yield from (tried(seed, number) for number in numbers)
        return
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        yield from pool.map(tried, [seed] * len(numbers), numbers)


def table(rows):
    """Kinds by verdicts, with the worst error that was let pass, in tolerances, and the most evaluations."""
    head = f"{'kind':<18}{'cases':>7}" + "".join(f"{verdict:>17}" for verdict in VERDICTS)
    lines = [head + f"{'worst passed':>14}{'evaluations':>13}"]
    for name in [*sorted({row["name"] for row in rows}), "all"]:
        some = [row for row in rows if name in (row["name"], "all")]
        counts = Counter(row["verdict"] for row in some)
        passed = [row["error"] for row in some if row["verdict"] in ("accurate", "warned")]
        lines.append(
            f"{name:<18}{len(some):>7}"
            + "".join(f"{counts[verdict] or '':>17}" for verdict in VERDICTS)
            + f"{max(passed, default=0.0):>14.2g}{max(row['evaluations'] for row in some):>13}"
        )
    return "\n".join(lines)


def failures(rows):
    """What is wrong with which case, and how to see it again."""
    kept = [row for row in rows if row["repeat"]]
    return [f"case {row['number']}, {row['name']}: {row['verdict']}: {row['text']}\n{row['repeat']}" for row in kept]


def main(arguments=None):
    """Try, tell, and note."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--kind", help="only draws of this name, such as 'decay'")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    numbers = [n for n in range(given.first, given.first + given.count) if given.kind in (None, name_of(n))]
    rows = []
    for row in all_tried(given.seed, numbers, given.workers):
        rows.append(row)
        if row["repeat"]:
            print(failures([row])[0], flush=True)
    print(table(rows))
    if given.output:
        told = [{**row, "error": row["error"] if math.isfinite(row["error"]) else None} for row in rows]
        text = json.dumps({"seed": given.seed, "cases": told}, indent=1)
        given.output.write_text(text + "\n", encoding="utf-8")
    return 1 if failures(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
