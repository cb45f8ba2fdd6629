"""How much Python a training runs, in counts that are the same on every machine."""

import sys
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

import fracdnn
from fracdnn.cli import main
from fracdnn.estimators import FractionalClassifier

PACKAGE = str(Path(fracdnn.__file__).parent)


@contextmanager
def counted_calls():
    """Calls of the package's functions, by file."""
    calls = Counter()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls[frame.f_code.co_filename] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def train(monkeypatch, out):
    monkeypatch.setattr(sys, "argv", ["fracdnn", "train", "table.csv", "--target", "y", "--out", out, "--quiet"])
    with suppress(SystemExit):
        main()


def test_training_on_a_small_table_takes_few_calls(tmp_path, monkeypatch):
    """60 rows of 3 columns, and a target that is learned until the last of 100 epochs."""
    X = np.random.default_rng(0).normal(size=(60, 3)).round(4)
    lines = [f"{a},{b},{c},{round(a + 0.3 * b, 4)}" for a, b, c in X.tolist()]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,c,y", *lines]))
    monkeypatch.chdir(tmp_path)
    train(monkeypatch, "first")
    with counted_calls() as calls:
        train(monkeypatch, "warm")
    assert (tmp_path / "warm").exists()
    assert 1_000 < calls.total() <= 20_000


def test_a_mini_batch_of_the_default_fit_passes_few_files():
    X = np.random.default_rng(0).normal(size=(400, 4))
    estimator, found = FractionalClassifier(max_iter=2, early_stopping=False, random_state=0), []
    estimator.fit(X, X[:, 0] > X[:, 1])
    for batch_size in (50, 10):
        with counted_calls() as calls:
            estimator.set_params(batch_size=batch_size).fit(X, X[:, 0] > X[:, 1])
        found.append(calls)
    few, many = found
    files = [file for file in many if many[file] > few[file]]
    assert 1 <= len(files) <= 9
