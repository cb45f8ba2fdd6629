"""Predictions for a large table: `fracdnn predict`, CSV to CSV, against its own forward pass and its own start.

The model is a default classifier of 20 columns. "start" predicts ten rows: what Python and the imports take.
"""

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import fracdnn
from benchmarks.case import Case, Group, Options, Rival

# The command in a process that tells its own peak memory in the end.
COMMAND = """
import sys
from fracdnn.cli import main
try:
    main()
finally:
    status = open("/proc/self/status").read()
    print(status.partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""


def table(n: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 20)).round(4)
    label = np.array(["low", "middle", "high"])[np.digitize(X[:, 0] + X[:, 1] * X[:, 2], [-0.5, 0.5])]
    return pl.DataFrame({f"x{k}": X[:, k] for k in range(20)}).with_columns(pl.Series("label", label))


class Prediction:
    """A trained model and tables in a temporary folder."""

    def __init__(self, rows: int, training_rows: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        table(training_rows, 0).write_csv(self.folder / "train.csv")
        table(rows, 1).drop("label").write_csv(self.folder / "new.csv")
        table(10, 2).drop("label").write_csv(self.folder / "ten.csv")
        self.model = str(self.folder / "model.fracdnn")
        self.command("train", str(self.folder / "train.csv"), "--target", "label", "--out", self.model)
        self.loaded = fracdnn.load(self.model)
        self.X = {name: self.loaded.features(pl.read_csv(self.folder / f"{name}.csv")) for name in ("new", "ten")}
        self.peak: dict[str, float] = {}

    def command(self, *arguments: str) -> float:
        """Run `fracdnn`; its peak memory in MiB."""
        run = [sys.executable, "-c", COMMAND, *arguments, "--quiet"]
        return float(subprocess.run(run, check=True, capture_output=True, text=True).stderr.split()[-1]) / 1024

    def predict(self, name: str) -> None:
        out = str(self.folder / f"{name}-out.csv")
        self.peak[name] = self.command("predict", self.model, str(self.folder / f"{name}.csv"), "--out", out)

    def error(self, name: str) -> float:
        """The share of rows for which the command says other than the model."""
        self.predict(name)
        found = pl.read_csv(self.folder / f"{name}-out.csv")["prediction"].to_numpy()
        return float((found != self.loaded.estimator.predict(self.X[name])).mean())

    def pass_error(self) -> float:
        """How far the probabilities of a row are from adding up to one."""
        return float(np.abs(self.loaded.estimator.predict_proba(self.X["new"]).sum(1) - 1).max())

    def close(self) -> None:
        self._folder.cleanup()


def by_command(name: str, problem: Prediction) -> Rival:
    return Rival(
        partial(problem.predict, name),
        partial(problem.error, name),
        tolerance=0.0,
        notes=lambda: {"peak_mib": problem.peak[name]},
    )


def by_pass(problem: Prediction) -> Rival:
    return Rival(lambda: problem.loaded.estimator.predict_proba(problem.X["new"]), problem.pass_error, tolerance=1e-6)


def cases(options: Options) -> list[Case]:
    rows, training_rows = (1000, 50) if options.quick else (1_000_000, 2000)
    rivals: dict[str, Any] = {
        "command": partial(by_command, "new"),
        "start": partial(by_command, "ten"),
        "forward pass": by_pass,
    }
    return [
        Case(
            name=f"{rows} rows",
            settings={"rows": rows},
            build=partial(Prediction, rows, training_rows),
            rivals=rivals,
            turns=1 if options.quick else 3,
            warm_turns=0,
        )
    ]


GROUP = Group("predict", "fracdnn predict on a table of 10^6 rows and 20 columns, CSV to CSV", cases)
