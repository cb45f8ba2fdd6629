"""Depth memory in a small transformer: train all streams, and make docs/transformers.md of the results.

    python -m examples.gpt train --out docs/results --batch 32 --steps 1100 380 --resume
    python -m examples.gpt page

Results are written after each run. Ctrl-C keeps those that are done; `--resume` goes on.
"""

import argparse
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch

from examples.gpt.check import check_runs
from examples.gpt.comparison import identity
from examples.gpt.page import make_page
from examples.gpt.streams import STREAMS
from examples.gpt.text import LIMIT, python_text
from examples.gpt.training import FIELDS, NAME, Data, Job, Record, Settings, reason, run
from records.keeping import Records, made_with

FULL, QUICK = Settings(), Settings(width=32, batch=4, context=32, steps=6, evaluations=3, windows=8)
DEPTHS, QUICK_DEPTHS = [12, 48], [2]


def main(argv: list[str] | None = None) -> int:
    told = _arguments().parse_args(argv)
    if told.command == "page":
        print(make_page(*([told.folder] if told.folder else [])))
        return 0
    if told.command == "check":
        return 1 - check_runs()
    path = told.out / NAME
    if path.exists() and not told.resume:
        return _refused(f"{path} is there; pass --resume to go on with it, or another folder as --out")
    depths = told.depth or (QUICK_DEPTHS if told.quick else DEPTHS)
    if told.steps and len(told.steps) not in (1, len(depths)):
        return _refused(f"--steps must be one number or one for each depth, got {len(told.steps)} for {len(depths)}")
    settings = dict(zip(depths, _settings(told, len(depths)), strict=True))
    arms = [arm for arm in STREAMS if not told.arms or arm in told.arms]
    # Whole seeds first, so that what an end leaves can be compared.
    jobs = [Job(arm, depth, seed) for seed in range(told.seeds) for depth in depths for arm in arms]
    try:
        train(jobs, settings, path, quick=told.quick, minutes=told.minutes)
    except KeyboardInterrupt:
        print("\ninterrupted; what is done is kept, --resume goes on", file=sys.stderr)
        return 130
    print(path)
    return 0


def train(
    jobs: list[Job], settings: dict[int, Settings], path: Path, *, quick: bool = False, minutes: float | None = None
) -> None:
    """Run jobs one after the other into a file, without those it has; none is begun once the minutes are over."""
    begun = time.perf_counter()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    text = python_text(10**6 if quick else LIMIT)
    made: Record = {"quick": quick, "text": text.described(), "made_with": made_with(("numba",))}
    for name, part in made["text"].items():
        _say(begun, f"{name}: {part['files']:,} files, {part['bytes']:,} bytes, sha256 {part['sha256']}")
    records = Records(path, FIELDS)
    data = {depth: Data(text, each, device) for depth, each in settings.items()}
    for number, job in enumerate(jobs, 1):
        place = f"{number}/{len(jobs)}, {job}"
        made["settings"] = asdict(settings[job.depth])
        known = records.get(asdict(job))
        if known is not None and "failed" not in known and identity(known) == identity({**known, **made}):
            _say(begun, f"{place}: done before")
            continue
        if minutes is not None and time.perf_counter() - begun >= 60 * minutes:
            _say(begun, f"{place}: not begun, {minutes:g} minutes are over; --resume goes on")
            return
        found = outcome(job, settings[job.depth], data[job.depth])
        _say(begun, f"{place}: {_told(found)}")
        records.add({**found, **made})


def outcome(job: Job, settings: Settings, data: Data) -> Record:
    try:
        return run(job, settings, data)
    except Exception as error:  # no memory left, say: the other runs go on, and the record says why
        return {**asdict(job), "failed": reason(error)}


def _told(found: Record) -> str:
    if "failed" in found:
        return f"failed: {found['failed']}"
    losses, step = found["losses"], found["step_seconds"]["median"]
    last = "diverged" if losses[-1] is None else f"{losses[-1]:.4f} nats a byte"
    how = "captured" if found["captured"] else f"not captured: {found['why_not_captured']}"
    return f"{last}, {1e3 * step:.2f} ms a step ({how})"


def _say(begun: float, text: str) -> None:
    print(f"[{time.perf_counter() - begun:.0f} s] {text}", file=sys.stderr, flush=True)


def _refused(why: str) -> int:
    print(why, file=sys.stderr)
    return 2


def _settings(told: argparse.Namespace, count: int) -> list[Settings]:
    """One for each depth."""
    base = QUICK if told.quick else FULL
    given = {name: value for name in ("width", "batch", "context") if (value := getattr(told, name)) is not None}
    steps = told.steps or [base.steps]
    return [replace(base, **given, steps=each) for each in (steps * count if len(steps) == 1 else steps)]


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m examples.gpt", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="train all streams, into FOLDER/gpt.json")
    training.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a folder for the results")
    training.add_argument("--depth", type=_count, nargs="+", metavar="N", help="numbers of blocks (12 48)")
    training.add_argument("--seeds", type=_count, default=3, metavar="N", help="how many (3)")
    training.add_argument(
        "--steps", type=_count, nargs="+", metavar="N", help="one number, or one for each depth (500)"
    )
    training.add_argument("--width", type=_count, help="of the state, a multiple of 32 (128)")
    training.add_argument("--batch", type=_count, help="windows of a step (64)")
    training.add_argument("--context", type=_count, help="bytes of a window (256)")
    training.add_argument("--arms", nargs="+", choices=list(STREAMS), metavar="ARM", help=f"of {', '.join(STREAMS)}")
    training.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    training.add_argument("--minutes", type=float, metavar="M", help="begin no run later than this")
    training.add_argument("--resume", action="store_true", help="skip runs that the results already hold")
    commands.add_parser("check", help="train the published residual streams again, where text and GPU are the same")
    page = commands.add_parser("page", help="make the page from FOLDER/results/gpt.json")
    page.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", help="with results and page (docs)")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


if __name__ == "__main__":
    sys.exit(main())
