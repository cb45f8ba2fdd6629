"""`fracdnn train`: from a table to a model file."""

import hashlib
import json
import math
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import typer
from rich.console import Console

from fracdnn.cli.messages import fail, say, written
from fracdnn.cli.metrics import scores
from fracdnn.cli.ranks import process_group
from fracdnn.estimators import FractionalClassifier, FractionalRegressor
from fracdnn.estimators.base import interrupts_raised
from fracdnn.exceptions import TableError
from fracdnn.tabular.model import TableModel, split_target, target_values, task_of
from fracdnn.tabular.preparation import Preparation, check_columns, numbers_in
from fracdnn.tabular.reading import read_table
from fracdnn.training.together import Ranks
from fracdnn.version import versions

if TYPE_CHECKING:
    import polars as pl

TASKS = ("auto", "classification", "regression")
SEARCH: dict[str, list[Any]] = {"order": [0.1, 0.3, 0.5, 0.7, 0.9, 1.0], "n_layers": [2, 4, 8]}
FOLDS = 5


@dataclass
class Settings:
    """What `train` does beside the estimator's own parameters, which are in `parameters`."""

    target: str
    task: str = "auto"
    test_fraction: float = 0.2
    drop: list[str] = field(default_factory=list)
    categorical: list[str] = field(default_factory=list)
    search: bool = False
    jobs: int = 1
    timeout: float = 1800.0
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Prepared:
    """The rows of a table, to learn from and to test with, as features."""

    task: str
    preparation: Preparation
    features: "pl.DataFrame"
    X: np.ndarray
    y: np.ndarray
    train_rows: list[int]
    test_rows: list[int]


def train(source: str, settings: Settings, *, out: Path | None, run: Path | None, quiet: bool, as_json: bool) -> None:
    """One process, or those that torchrun started: all read the table, each trains on its part of the rows."""
    _check_settings(settings)
    checkpoint = _default_checkpoint(settings, out, run)
    with process_group(settings.timeout) as ranks:
        with ranks.together("reading and preparing the table"):
            _check_ranks(source, settings, ranks)
            table = _prepared(source, settings, quiet)
            estimator = _estimator(table.task, settings, quiet)
        ranks.check_same(options=repr((settings, out, run)), table=_digest(table))
        X, y = table.X[table.train_rows], table.y[table.train_rows]
        if settings.search:
            estimator = _searched(estimator, X, y, settings, quiet)
        here = slice(ranks.rank * len(y) // ranks.count, (ranks.rank + 1) * len(y) // ranks.count)
        among = f", shared among {ranks.count} processes" if ranks.count > 1 else ""
        say(f"{len(y):,} rows, {len(table.preparation.columns)} columns, {X.shape[1]} features{among}", quiet)
        interrupted = _fit(estimator, X[here], y[here])
        with ranks.together("writing the model"):
            if ranks.is_first:
                _finish(estimator, table, settings, source, out, run, as_json)
        if checkpoint is not None and not interrupted and ranks.is_first:
            checkpoint.unlink(missing_ok=True)
    if interrupted:
        say("training was interrupted; the model is the best so far, and --resume goes on where it can", quiet)
        raise typer.Exit(130)


def _prepared(source: str, settings: Settings, quiet: bool) -> _Prepared:
    features, y, task = _examined(read_table(source), settings, quiet)
    train_rows, test_rows = _split(y, task, settings)
    preparation, notes = Preparation.of(features[train_rows], categorical=settings.categorical)
    for note in notes:
        say(note, quiet)
    # All rows at once, so that a message names the row of the table.
    X = preparation.transform(features, new_categories="ignore")
    return _Prepared(task, preparation, features, X, y, train_rows, test_rows)


def _finish(
    estimator: Any,
    table: _Prepared,
    settings: Settings,
    source: str,
    out: Path | None,
    run: Path | None,
    as_json: bool,
) -> None:
    """Test the model, write it and tell of it."""
    model = TableModel(estimator, table.preparation, settings.target, {})
    X, y, train_rows, test_rows = table.X, table.y, table.train_rows, table.test_rows
    summary = {
        "task": table.task,
        "rows": {"training": len(train_rows), "test": len(test_rows)},
        "training": scores(model, X[train_rows], y[train_rows]),
        "test": scores(model, X[test_rows], y[test_rows]) if test_rows else None,
        "order": estimator.order_,
        "iterations": estimator.n_iter_,
        "status": estimator.history_.status,
    }
    model.details.update(source=source, summary=summary, versions=versions())
    paths = _write(model, out, run, table.features[test_rows], y[test_rows])
    _tell(summary, paths, as_json)


def _check_ranks(source: str, settings: Settings, ranks: Ranks) -> None:
    """Refuse what several processes cannot do together."""
    if ranks.count > 1 and settings.search:
        fail("--search must run in one process, got several; search first, then pass its --order and --n-layers")
    if ranks.count > 1 and source == "-":
        fail("DATA must be a file on several processes, got -: all of them read it; save the table first")


def _digest(table: _Prepared) -> bytes:
    parts = (np.ascontiguousarray(table.X), table.y, np.array(table.train_rows))
    return b"".join(hashlib.sha256(part.tobytes()).digest() for part in parts)


def _check_settings(settings: Settings) -> None:
    if settings.task not in TASKS:
        raise typer.BadParameter(f"must be one of {', '.join(TASKS)}, got {settings.task!r}", param_hint="--task")
    if not 0 <= settings.test_fraction < 1:
        raise typer.BadParameter(f"must lie in [0, 1), got {settings.test_fraction}", param_hint="--test-fraction")
    if settings.jobs == 0:
        raise typer.BadParameter("must be a number of processes or -1, got 0", param_hint="--jobs")
    if not (math.isfinite(settings.timeout) and settings.timeout > 0):
        raise typer.BadParameter(f"must be seconds above 0, got {settings.timeout}", param_hint="--timeout")
    device = str(settings.parameters.get("device", "auto"))
    if device != "auto":
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise typer.BadParameter(str(error).splitlines()[0], param_hint="--device") from None
    try:
        FractionalClassifier(**settings.parameters)._validate_params()
    except ValueError as error:
        raise typer.BadParameter(str(error).replace(" of FractionalClassifier", "")) from None


def _default_checkpoint(settings: Settings, out: Path | None, run: Path | None) -> Path | None:
    """Beside the model, where checkpoints are asked for without a path; returns it if it is ours to remove."""
    parameters = settings.parameters
    if "checkpoint" in parameters or not ("checkpoint_every" in parameters or parameters.get("resume")):
        return None
    path = run / "model.ckpt" if run is not None else out.with_suffix(".ckpt") if out is not None else None
    if path is not None:
        parameters["checkpoint"] = str(path)
    return path


def _examined(table: "pl.DataFrame", settings: Settings, quiet: bool) -> tuple[Any, np.ndarray, str]:
    """The columns to learn from, the target, and the task."""
    check_columns((*settings.drop, *settings.categorical), table.columns)
    features, values, n_missing = split_target(table.drop(settings.drop), settings.target)
    if n_missing:
        say(f"{n_missing:,} rows are left out: their target is missing", quiet)
    task = task_of(values) if settings.task == "auto" else settings.task
    y = target_values(values, task)
    kinds = len(np.unique(y))
    if task == "classification" and kinds < 2:
        raise TableError(
            f"the target column {settings.target!r} must hold two classes at least, got only {str(y[0])!r}"
        )
    found = f"{kinds} classes" if task == "classification" else f"values from {y.min():g} to {y.max():g}"
    why = "" if settings.task != "auto" else " (--task overrides)"
    say(f"{task}: {settings.target!r} holds {found}{why}", quiet)
    return features, y, task


def _split(y: np.ndarray, task: str, settings: Settings) -> tuple[list[int], list[int]]:
    from sklearn.model_selection import train_test_split

    n_test = int(settings.test_fraction * len(y))
    rows, alone = np.arange(len(y)), np.zeros(len(y), dtype=bool)
    if task == "classification":
        # A class of one row is for learning; others are held out in proportion.
        labels, which, counts = np.unique(y, return_inverse=True, return_counts=True)
        alone = counts[which] < 2
    common = rows[~alone]
    n_test = min(n_test, len(common) - 1)
    if n_test <= 0:
        return rows.tolist(), []
    n_classes = len(np.unique(y[common])) if task == "classification" else 0
    stratified = task == "classification" and min(n_test, len(common) - n_test) >= n_classes
    seed = settings.parameters.get("random_state", 0)
    kept, held_out = train_test_split(
        common, test_size=n_test, random_state=seed, stratify=y[common] if stratified else None
    )
    kept = np.concatenate([kept, rows[alone]])
    if task == "classification" and len(np.unique(y[kept])) < len(labels):
        raise TableError(
            f"the rows to learn from must hold all {len(labels)} classes, got {len(np.unique(y[kept]))}; "
            f"pass a smaller --test-fraction"
        )
    return sorted(kept.tolist()), sorted(held_out.tolist())


def _estimator(task: str, settings: Settings, quiet: bool) -> Any:
    kind = FractionalClassifier if task == "classification" else FractionalRegressor
    parameters = {"random_state": 0, **settings.parameters}
    for name in ("class_weight", "label_smoothing"):
        if task == "regression" and parameters.pop(name, None) is not None:
            fail(f"{name} must go with classification, got a regression; leave it out")
    return kind(**parameters, verbose=not quiet)


def _searched(estimator: Any, X: np.ndarray, y: np.ndarray, settings: Settings, quiet: bool) -> Any:
    """The estimator with the order and depth that cross-validation finds best, not fitted yet."""
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV

    n_settings = len(SEARCH["order"]) * len(SEARCH["n_layers"])
    candidate = clone(estimator).set_params(verbose=False, checkpoint=None, resume=False)
    token = interrupts_raised.set(True)
    try:
        with Console(stderr=True, quiet=quiet).status(f"trying {n_settings} settings, {FOLDS} folds each"):
            search = GridSearchCV(candidate, SEARCH, cv=FOLDS, n_jobs=settings.jobs, refit=False).fit(X, y)
    except ValueError as error:
        fail(f"--search needs more rows, got {len(y)} ({error}); leave it out")
    finally:
        interrupts_raised.reset(token)
    best = search.best_params_
    say(
        f"best of {n_settings}: order {best['order']:g}, {best['n_layers']} layers, score {search.best_score_:.4f}",
        quiet,
    )
    return estimator.set_params(**best)


def _fit(estimator: Any, X: np.ndarray, y: np.ndarray) -> bool:
    """Fit; whether the user interrupted it. Other warnings are told in one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X, y)
    interrupted = estimator.history_.status == "interrupted"
    for warning in caught:
        if not interrupted:
            say(f"warning: {warning.message}", False)
    return interrupted


def _write(
    model: TableModel, out: Path | None, run: Path | None, test_table: "pl.DataFrame", y_test: np.ndarray
) -> dict[str, str]:
    import polars as pl

    from fracdnn.files import write_whole

    paths = {}
    if out is not None:
        with written(out):
            paths["model"] = str(model.save(out))
    if run is not None:
        with written(run):
            paths["model"] = str(model.save(run / "model.fracdnn"))
            numbers = [numbers_in(test_table[name]) for name in model.preparation.number_names]
            columns = test_table.select(model.preparation.names).with_columns(*[n for n in numbers if n is not None])
            held_out = columns.with_columns(pl.Series(model.target, y_test))
            write_whole(run / "held-out.csv", held_out.write_csv)
            paths["run"] = str(run)
    return paths


def _tell(summary: dict[str, Any], paths: dict[str, str], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**summary, **paths}))
        return
    name = "accuracy" if summary["task"] == "classification" else "R2"
    for part in ("training", "test"):
        if summary[part]:
            value = summary[part][name]
            text = "-" if value is None else f"{value:.4f}"
            typer.echo(f"{name} on the {part} rows ({summary['rows'][part]:,}): {text}")
    for what, path in paths.items():
        typer.echo(f"{what}: {path}")
