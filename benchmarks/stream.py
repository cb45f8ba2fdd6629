"""Adam on a table in Parquet parts, streamed against in memory: rows a second of an epoch, and peak memory.

Rows a second are also told of CPU time, which other work on the machine changes less.

    python -m benchmarks.stream --rows 2000000
    python -m benchmarks.stream --rows 100000000 --streamed-only --folder /data/table --keep

makes a table of float64 in parts, trains on it in a process of its own for each way, prints the numbers as JSON, and
removes the table unless it is to be kept. A table that is there already is used as it is.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
from joblib import Parallel, delayed

from benchmarks.peers import PACKAGES
from records.keeping import made_with

PART_ROWS = 500_000
TARGET = "y"


def make(folder: Path, rows: int, columns: int) -> None:
    """Parts of `PART_ROWS` rows, each drawn and written by itself."""
    folder.mkdir(parents=True)
    sizes = [min(PART_ROWS, rows - begin) for begin in range(0, rows, PART_ROWS)]
    Parallel(n_jobs=-1)(delayed(make_part)(folder, number, size, columns) for number, size in enumerate(sizes))


def make_part(folder: Path, number: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng([7, number])
    x = rng.standard_normal((rows, columns))
    y = (x[:, 0] * x[:, 1] + x[:, 2] + 0.3 * rng.standard_normal(len(x)) > 0).astype(np.int64)
    table = {f"x{k}": x[:, k] for k in range(columns)} | {TARGET: y}
    pl.DataFrame(table).write_parquet(folder / f"part-{number:05d}.parquet", compression="uncompressed")


def now() -> np.ndarray:
    """The time, and that of the processor for this process."""
    return np.array([time.perf_counter(), time.process_time()])


def measure(way: str, folder: Path, epochs: int, batch_size: int) -> dict:
    """Train in this process; seconds of each epoch after the first, which compiles, and peak memory in MB."""
    from fracdnn import FractionalClassifier
    from fracdnn.estimators.streamed_fit import fit_streamed
    from fracdnn.tables.examination import examine
    from fracdnn.tables.reading import read_table
    from fracdnn.tables.streaming import TableStream
    from fracdnn.training import adam, run

    ends, note = [], run.Run.note

    def timed(self, *arguments, **options):
        ends.append(now())
        note(self, *arguments, **options)

    run.Run.note = timed
    estimator, start = FractionalClassifier(max_iter=epochs, batch_size=batch_size, random_state=0), now()
    if way == "streamed":
        table = examine(TableStream.of(str(folder)), TARGET)
        rows, ready = table.n_rows("training"), now()
        assert table.target.classes is not None
        given = {"classes": table.target.classes, "counts": table.target.counts}
        fit_streamed(estimator, table.samples("training"), table.standardization, table.encoding, **given)
    else:
        frame = read_table(str(folder))
        features, y = frame.drop(TARGET), frame[TARGET].to_numpy()
        rows = len(y)
        train, begun = adam.AdamTraining._train, []

        def begin(self, task):
            begun.append(now())
            return train(self, task)

        adam.AdamTraining._train = begin
        estimator.fit(features, y)
        ready = begun[0]
    wall, cpu = np.diff([ready, *ends], axis=0).T
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return {
        "way": way,
        "rows": rows,
        "seconds_before_training": round(float((ready - start)[0]), 2),
        "seconds_of_epochs": wall.round(2).tolist(),
        "rows_per_second": round(rows / float(np.median(wall[-max(1, epochs - 1) :]))),
        "rows_per_cpu_second": round(rows / float(np.median(cpu[-max(1, epochs - 1) :]))),
        "peak_MB": round(peak),
        "loss": estimator.loss_,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=25)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=Path("stream-table"))
    parser.add_argument("--keep", action="store_true", help="leave the table where it is")
    parser.add_argument("--streamed-only", action="store_true", help="not in memory, for tables that do not fit")
    parser.add_argument("--out", type=Path, help="a file for the numbers, for `benchmarks.scale --add`")
    parser.add_argument("--way", choices=("streamed", "memory"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(measure(given.way, given.folder, given.epochs, given.batch_size)))
        return
    if not given.folder.exists():
        make(given.folder, given.rows, given.columns)
    size = sum(file.stat().st_size for file in given.folder.iterdir())
    print(json.dumps({"parts": len(list(given.folder.iterdir())), "MB_in_files": round(size / 1e6)}), flush=True)
    options = ["--folder", given.folder, "--epochs", str(given.epochs), "--batch-size", str(given.batch_size)]
    try:
        found = []
        for way in ("streamed",) if given.streamed_only else ("streamed", "memory"):
            command = [sys.executable, "-m", "benchmarks.stream", *options, "--way", way]
            told = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
            print(told.decode(), end="", flush=True)
            found.append({**json.loads(told), "MB_in_files": round(size / 1e6), "made_with": made_with(PACKAGES)})
        if given.out is not None:
            given.out.write_text(json.dumps({"streams": found}, indent=1) + "\n")
    finally:
        if not given.keep:
            shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
