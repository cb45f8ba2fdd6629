"""Run the benchmark and make its page: `python -m benchmarks [--only GROUP ...] [--quick] [--list] …`.

Results are written after each case. Ctrl-C keeps those that are done, and makes the page of them; `--resume` goes on.
"""

import argparse
import sys
import time
from pathlib import Path

from benchmarks.case import Case, Group, Options
from benchmarks.check import check_group
from benchmarks.page import make_page
from benchmarks.peers import PACKAGES
from benchmarks.registry import GROUPS
from benchmarks.runner import FIELDS, run_case
from records.keeping import Record, Records, made_with, read_file

ROOT = Path(__file__).parents[1]
STUDIES = {
    "study": "default models on real tables (docs/study.md), hours: python -m benchmarks.study",
    "adaptive": "adaptive grids on six problems (docs/solver.md): python -m benchmarks.adaptive",
    "neural_fde": "fixed steps of a network: time, memory, error of the gradient: python -m benchmarks.neural_fde",
    "delays": "equations with delays (docs/solver.md): python -m benchmarks.delays",
    "versions": "everyday work in two checkouts, in turns: python -m benchmarks.versions BEFORE AFTER",
}


def main(argv: list[str] | None = None) -> int:
    told = _arguments().parse_args(argv)
    options = Options(told.quick, told.perfume)
    if told.list:
        _list(options)
        return 0
    unknown = set(told.only or ()) - GROUPS.keys()
    if unknown:
        print(f"no group is called {', '.join(sorted(unknown))}; choose from {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    # Small sizes are no results: they must not take the place of the real ones.
    out = told.out or ROOT / ("build/benchmarks" if told.quick else "docs")
    chosen = [(group, case) for group in GROUPS.values() for case in group.cases(options)]
    order = [{"group": group.name, "name": case.name} for group, case in chosen]
    chosen = [(group, case) for group, case in chosen if not told.only or group.name in told.only]
    if told.check:
        records = Records(out / "results" / "benchmarks.json", FIELDS)
        good = [check_group(group, records, options) for group in GROUPS.values()]
        return 0 if all(good) else 1
    if told.add:
        add_results(told.add, out / "results" / "benchmarks.json", order)
        print(make_page(out))
        return 0
    interrupted = False
    try:
        run_cases(chosen, out / "results" / "benchmarks.json", options, order, keep=bool(told.only), resume=told.resume)
    except KeyboardInterrupt:
        interrupted = True
        print("\ninterrupted; what is done is kept, --resume goes on", file=sys.stderr)
    print(make_page(out))
    return 130 if interrupted else 0


def run_cases(
    chosen: list[tuple[Group, Case]], path: Path, options: Options, order: list[Record], *, keep: bool, resume: bool
) -> None:
    """Run cases one after the other into a file; `resume` skips those it has, `keep` leaves the others in it."""
    records, made = Records(path, FIELDS), made_with(PACKAGES)
    kept = {records.key(run) for run in records.runs} if keep or resume else set()
    begun = time.perf_counter()
    for number, (group, case) in enumerate(chosen, 1):
        name = f"{group.name}/{case.name}"

        def say(text: str, place: str = f"{number}/{len(chosen)}] {name}") -> None:
            print(f"[{time.perf_counter() - begun:.0f} s, {place}: {text}", file=sys.stderr, flush=True)

        known = records.get({"group": group.name, "name": case.name})
        if resume and known is not None and {**known["made_with"], "commit": made["commit"]} == made:
            say("done before")
            continue
        record = {**run_case(group.name, case, options, say), "quick": options.quick, "made_with": made}
        records.add(record)
        kept.add(records.key(record))
        records.arrange(job for job in order if records.key(job) in kept)


def add_results(source: Path, path: Path, order: list[Record]) -> None:
    """Take in the cases of a file that another machine wrote, such as that of `benchmarks.gpu`."""
    records = Records(path, FIELDS)
    records.add(*read_file(source)[1])
    records.arrange(order)


def _list(options: Options) -> None:
    for group in GROUPS.values():
        print(f"{group.name}: {group.what}")
        for case in group.cases(options):
            print(f"    {case.name}: {', '.join(case.rivals)}")
    print("\nBy themselves, with results of their own:")
    for name, what in STUDIES.items():
        print(f"{name}: {what}")


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="GROUP", help="these groups alone; other results stay")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs; into build/benchmarks")
    parser.add_argument("--resume", action="store_true", help="skip cases that the results already hold")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    parser.add_argument("--check", action="store_true", help="time nothing; fail where rivals are not as published")
    parser.add_argument("--add", type=Path, metavar="FILE", help="run nothing, take in another machine's results")
    parser.add_argument("--out", type=Path, help="a folder for results, page and pictures (docs)")
    parser.add_argument(
        "--perfume", type=Path, metavar="FILE", help="the perfume table, if not the one kept or downloaded"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
