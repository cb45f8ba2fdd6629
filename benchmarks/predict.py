"""`fracdnn predict` on a large table: its time against the network's forward pass alone, and its peak memory.

    python -m benchmarks.predict
    python -m benchmarks.predict --rows 100000

A classifier with default settings, 20 columns of numbers, three classes. The command runs as a process of its own, from
starting Python to the last byte of the predictions, in turn with the forward pass on features that lie in memory, and
with a prediction for ten rows, which is the time it takes to start.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import torch

import fracdnn


def table(n: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 20)).round(4)
    label = np.array(["low", "middle", "high"])[np.digitize(X[:, 0] + X[:, 1] * X[:, 2], [-0.5, 0.5])]
    return pl.DataFrame({f"x{k}": X[:, k] for k in range(20)}).with_columns(pl.Series("label", label))


COMMAND = """
import sys
from fracdnn.cli import main
try:
    main()
finally:
    status = open("/proc/self/status").read()
    print(status.partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""


def command(*arguments: str) -> tuple[float, float]:
    """Seconds that `fracdnn` takes with these arguments, and its peak memory in GB."""
    begun = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments, "--quiet"], check=True, capture_output=True, text=True
    )
    return time.perf_counter() - begun, float(run.stderr.split()[-1]) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table(2000, 0).write_csv(folder / "train.csv")
        table(arguments.rows, 1).drop("label").write_csv(folder / "new.csv")
        model = str(folder / "model.fracdnn")
        command("train", str(folder / "train.csv"), "--target", "label", "--out", model)
        loaded = fracdnn.load(model)
        X = loaded.features(pl.read_csv(folder / "new.csv"))
        table(10, 2).write_csv(folder / "ten.csv")
        whole, start, forward, memory = [], [], [], 0.0
        for _ in range(arguments.turns):
            start.append(command("predict", model, str(folder / "ten.csv"), "--out", str(folder / "ten-out.csv"))[0])
            seconds, peak = command("predict", model, str(folder / "new.csv"), "--out", str(folder / "out.csv"))
            whole.append(seconds)
            memory = max(memory, peak)
            begun = time.perf_counter()
            loaded.estimator.predict_proba(X)
            forward.append(time.perf_counter() - begun)
        found = pl.read_csv(folder / "out.csv")
        if not (found["prediction"].to_numpy() == loaded.estimator.predict(X)).all():
            raise SystemExit("the command's predictions are not the model's")
    seconds, alone, begin = (statistics.median(each) for each in (whole, forward, start))
    print(f"{arguments.rows:,} rows x 20 columns, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"predict {seconds:.1f} s, of which {begin:.1f} s to start; forward pass alone {alone:.1f} s")
    print(
        f"ratio {seconds / alone:.2f}, without the start {(seconds - begin) / alone:.2f}; peak memory {memory:.2f} GB"
    )


if __name__ == "__main__":
    main()
