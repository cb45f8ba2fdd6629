"""What several processes cost: two with one thread each against one with two threads, the same training and rows.

    python -m benchmarks.distribution [--rows 200000] [--turns 5] [--out FILE]

Each turn starts both ways anew, one after the other, and times the training alone, after a short one that compiles.
Prints a line a turn, then medians and what an evaluation sends as JSON, which --out writes, too.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.peers import PACKAGES
from records.keeping import made_with

WAYS = {"1 process, 2 threads": (1, 2), "2 processes, 1 thread": (2, 1)}
# Solver, iterations, and the mini-batch of Adam.
TRAININGS = {
    "adam, batches of 200": ("adam", 2, 200),
    "adam, batches of 2000": ("adam", 4, 2000),
    "adam, batches of 8000": ("adam", 4, 8000),
    "lbfgs": ("lbfgs", 15, None),
}


def table(rows: int):
    import numpy as np

    rng = np.random.default_rng(3)
    X = rng.standard_normal((rows, 30))
    return X, (X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.standard_normal(rows) > 0).astype(int)


def work(rows: int) -> None:
    """In a process: its rows, every training, and the seconds of each."""
    import warnings

    import torch
    from torch import distributed

    from fracdnn import FractionalClassifier
    from fracdnn.training import run

    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if count > 1:
        distributed.init_process_group("gloo")
    warnings.simplefilter("ignore")
    X, y = table(rows)
    X, y = X[rank::count], y[rank::count]
    # From the first record to the last, without what prepares the samples.
    ends, note = [], run.Run.note

    def noted(self, *given, **options):
        note(self, *given, **options)
        ends.append(time.perf_counter())

    run.Run.note = noted
    found = {}
    for name, (solver, iterations, batch) in TRAININGS.items():
        options = {"solver": solver, "random_state": 0, **({"batch_size": batch} if batch else {})}
        FractionalClassifier(max_iter=1, **options).fit(X, y)
        ends.clear()
        model = FractionalClassifier(max_iter=iterations + 1, **options).fit(X, y)
        sent = 8 * (sum(p.numel() for p in model.network_.parameters()) + 4)
        each = (ends[-1] - ends[0]) / (len(ends) - 1)
        found[name] = {"seconds": each, "bytes": sent, "loss": float(model.loss_)}
    if rank == 0:
        print(json.dumps({"threads": torch.get_num_threads(), "found": found}))
    if count > 1:
        distributed.destroy_process_group()


def timed(count: int, threads: int, rows: int) -> dict:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {**os.environ, "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "benchmarks.distribution", "--work", "--rows", str(rows)]
    jobs = [
        subprocess.Popen(command, env={**shared, "RANK": str(rank)}, stdout=subprocess.PIPE) for rank in range(count)
    ]
    told = [job.communicate()[0] for job in jobs]
    if any(job.returncode for job in jobs):
        raise SystemExit("a process failed; what it said is above")
    return json.loads(told[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.rows)
        return
    turns = []
    for turn in range(given.turns):
        turns.append({way: timed(*sizes, given.rows) for way, sizes in WAYS.items()})
        for name in TRAININGS:
            one, two = (turns[-1][way]["found"][name] for way in WAYS)
            ratio = two["seconds"] / one["seconds"]
            print(
                f"turn {turn + 1}, {name}: {one['seconds']:.3f} s, {two['seconds']:.3f} s, ratio {ratio:.2f}",
                flush=True,
            )
    document = {"rows": given.rows, "turns": given.turns, "made_with": made_with(PACKAGES), "trainings": {}}
    for name in TRAININGS:
        seconds = {way: [turn[way]["found"][name]["seconds"] for turn in turns] for way in WAYS}
        one, two = seconds.values()
        document["trainings"][name] = {
            "seconds of an iteration": {way: statistics.median(values) for way, values in seconds.items()},
            "ratio": statistics.median(b / a for a, b in zip(one, two, strict=True)),
            "bytes of an evaluation": turns[0]["1 process, 2 threads"]["found"][name]["bytes"],
            "losses": [turns[0][way]["found"][name]["loss"] for way in WAYS],
        }
    text = json.dumps({"distribution": document}, indent=1)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
