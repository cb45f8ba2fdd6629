"""The groups of the GPU by themselves: `python -m benchmarks.gpu [--quick] [--out FOLDER] [--only GROUP ...] …`.

For machines with a GPU that have torch but not what the other groups need. Prints a table as it goes, adds each case
to FOLDER/gpu.json (build/gpu). With --profile N it shows where the N largest cases spend the GPU's time.
"""

import argparse
import gc
import sys
from pathlib import Path

import torch

from benchmarks.case import Case, Options
from benchmarks.cases.gpu import GROUP, WAYS, Network
from benchmarks.cases.gpu_dense import DENSE
from benchmarks.measures import Record, median, number, ratio
from benchmarks.peers import PACKAGES
from benchmarks.runner import FIELDS, run_case
from records.keeping import Records, made_with

ROOT = Path(__file__).parents[1]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small size, to see that it runs")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", help="a folder for the results")
    parser.add_argument("--only", nargs="+", metavar="GROUP", choices=[each.name for each in (GROUP, DENSE)])
    parser.add_argument("--case", nargs="+", metavar="WORD", default=[], help="cases whose names hold all these words")
    parser.add_argument(
        "--profile", type=int, default=0, metavar="N", help="kernels of the N largest cases of the group gpu"
    )
    told = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("skipped: the groups of the GPU need a CUDA device, and there is none", file=sys.stderr)
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    groups = [group for group in (GROUP, DENSE) if not told.only or group.name in told.only]
    every = [(group.name, case) for group in groups for case in group.cases(Options(told.quick))]
    chosen = [(group, case) for group, case in every if all(word in case.name for word in told.case)]
    records, made = Records(told.out / "gpu.json", FIELDS), made_with(PACKAGES)
    for group, case in chosen:
        print(f"\n{group}: {case.name}", flush=True)
        try:
            record = run_case(group, case, Options(told.quick))
        except RuntimeError as error:  # no memory left, say: the other cases go on
            print(f"  failed: {error}", flush=True)
            _give_back()
            continue
        records.add({**record, "quick": told.quick, "made_with": made})
        print("\n".join(lines(record)), flush=True)
        _give_back()
    plain = sorted((case for _, case in chosen if case.settings.get("precision") == "float32"), key=_numbers)
    for case in plain[-told.profile :] if told.profile else []:
        show_profile(case)
        _give_back()
    return 0


def lines(record: Record) -> list[str]:
    """A line for each rival: its time, its ratio to the residual network, its memory, or why there is none."""
    found = []
    for name, outcome in record["rivals"].items():
        if outcome["status"] != "timed":
            found.append(f"  {name:18} {outcome['status']}: {outcome['why']}")
            continue
        seconds, base = median(record, name), "residual, " + name.partition(", ")[2]
        if base not in record["rivals"]:
            found.append(f"  {name:18} {number(1e3 * (seconds or 0.0)):>8} ms, error {outcome['error']:.1e}")
            continue
        memory, least = (record["rivals"][each].get("notes", {}).get("peak MiB") for each in (name, base))
        text = f"  {name:18} {number(1e3 * (seconds or 0.0)):>8} ms, {number(ratio(record, name, base)):>6} x residual"
        if memory and least:
            text += f", {number(memory):>8} MiB, {number(memory / least):>6} x residual"
        found.append(f"{text}, error {outcome['error']:.1e}")
    return found


def show_profile(case: Case) -> None:
    """The GPU's time by kernel, of one pass of each way."""
    from torch.profiler import ProfilerActivity, profile

    problem: Network = case.build()
    torch.set_float32_matmul_precision("high")
    for way in WAYS:
        for _ in range(2):
            problem.clear()
            problem.run(way)
        torch.cuda.synchronize()
        problem.clear()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            problem.run(way)
            torch.cuda.synchronize()
        kernels = sorted(seen.key_averages(), key=lambda each: -each.self_device_time_total)
        total = sum(each.self_device_time_total for each in kernels)
        print(f"\n{case.name}: {way}, {total / 1e3:.1f} ms on the GPU, {total / problem.n_layers:.1f} µs a layer")
        for each in kernels[:12]:
            time = each.self_device_time_total
            print(f"  {time / total:6.1%} {each.count:6} x {time / each.count:8.1f} µs  {each.key[:90]}", flush=True)
    problem.close()


def _numbers(case: Case) -> int:
    problem: Network = case.build()
    return problem.n_layers * problem.width * problem.batch


def _give_back() -> None:
    gc.collect()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
