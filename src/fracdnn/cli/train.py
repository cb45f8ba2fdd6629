"""`fracdnn train`: from a table to a model file."""

import hashlib
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer

from fracdnn.cli import runs, streamed_table
from fracdnn.cli.messages import fail, is_quiet, say
from fracdnn.cli.metrics import hashes_text, new_scores
from fracdnn.cli.options import Settings
from fracdnn.cli.places import METRICS, Places
from fracdnn.cli.ranks import check_ranks, process_group
from fracdnn.cli.remarks import on_outliers, on_table, on_target
from fracdnn.cli.runs import UNFINISHED, files_of, tell_results, write_results
from fracdnn.cli.settings_search import search
from fracdnn.cli.termination import exit_code
from fracdnn.columns.column import Unused
from fracdnn.columns.encoding import Encoded, Encoding, summary_of, with_inputs
from fracdnn.columns.frames import with_categories
from fracdnn.columns.late import pl
from fracdnn.columns.understood import HEADINGS, as_lines, describe_columns
from fracdnn.columns.words import check_columns, check_target_name, count, listed, quoted
from fracdnn.estimators import FractionalClassifier, FractionalRegressor
from fracdnn.estimators.recipe import resolve_recipe
from fracdnn.report.headline import headline
from fracdnn.report.subject import subject_of
from fracdnn.tabular.ids import Numbering, like_ids, without_ids
from fracdnn.tabular.model import TableModel, no_values, target_column, true_answers
from fracdnn.tabular.reading import read_table, sheets_of
from fracdnn.tabular.targets import Target, TargetSummary, check_every_class
from fracdnn.training import together
from fracdnn.training.progress import metrics_to
from fracdnn.version import versions

# A warning of scikit-learn's, which `on_rows` gives before the training.
_TOLD_BEFORE = "The number of unique classes is greater than"
# At most this many iterations are lost, and a training writes some twenty checkpoints.
MOST_BETWEEN, SHARE = 50, 20


@dataclass
class Learned:
    """A model, what it reached, and rows that were held out, as they are in the table."""

    model: TableModel
    summary: dict[str, Any]
    held_out: "pl.DataFrame"
    search_cut_short: bool = False


@dataclass
class _Prepared:
    """The rows of a table, to learn from and to test with, as they are and as features."""

    target: Target
    left_out: dict[str, str]
    columns: list[dict[str, str]]
    table: "pl.DataFrame"
    X: Encoded
    y: np.ndarray
    train_rows: list[int]
    test_rows: list[int]


def train(source: str, settings: Settings, places: Places, *, as_json: bool) -> None:
    """One process, or those that torchrun started: all read the table, each trains on its part of the rows."""
    own = places.own_checkpoint
    with process_group(settings.timeout), ExitStack() as held:
        record, model = {}, None
        with together.joint("looking at the places"):
            if together.is_first():
                places.check(source, settings.parameters.get("checkpoint_path"))
                if places.run is not None:
                    held.enter_context(runs.locked(places.run))
                record = runs.training_record(source, settings.document())
                if settings.parameters.get("resume") and not (own and files_of(own)):
                    model = runs.finished(places.models[-1], record)
        if together.largest(torch.tensor(int(model is not None)), "whether there is something to do"):
            if model is not None:
                say(f"this training is finished: {places.models[-1]}; to train again, pass --start-over, not --resume")
                paths = {"model": str(places.models[-1])} | ({"run": str(places.run)} if places.run else {})
                tell_results(model.details["summary"], paths, as_json)
            return
        learned = _learn(source, settings, places)
        paths = {}
        with together.joint("writing the model"):
            if together.is_first():
                left_out = dict.fromkeys(settings.drop, "it was dropped (--drop)") | learned.model.details["left_out"]
                learned.model.details.update(left_out=left_out, training=record, source=source)
                paths = _finish(learned, places, as_json)
        estimator = learned.model.estimator
        status = estimator.history_.status
        if own is not None and status not in UNFINISHED and together.is_first():
            runs.remove(files_of(own))  # which are ours, and done with
        if status == "no improvement":
            first = f" (the first of {len(estimator.members_)} members)" if len(estimator.members_) > 1 else ""
            done = count(estimator.n_iter_, "iteration")
            say(f"stopped early after {done}{first}: the validation loss stopped improving")
        if status == "time limit":
            say(f"time limit reached; {_then(estimator)}")
        if status == "interrupted":
            members = f", {len(estimator.members_)} members" if len(estimator.members_) > 1 else ""
            kept = f"; {paths['kept']} is unchanged" if "kept" in paths else ""
            best = f"the best model so far (iteration {estimator.n_iter_}{members}) is {paths.get('model', '')}{kept}"
            say(f"training was interrupted; {best}; {_then(estimator)}")
        if status == "interrupted" or learned.search_cut_short:
            raise typer.Exit(exit_code())


def _learn(source: str, settings: Settings, places: Places) -> Learned:
    checkpoint, resumes = settings.parameters.get("checkpoint_path"), bool(settings.parameters.get("resume"))
    with together.joint("looking at the table"):
        if together.is_first():
            runs.check_checkpoint(checkpoint, resume=resumes, start_over=settings.start_over)
        is_too_large = streamed_table.is_too_large(source, settings.memory_limit)
        if not together.is_alone() and settings.search:
            fail("--search must run in one process, got several; search first, then pass the settings that it found")
        check_ranks(source)
    together.check_same(options=repr((vars(settings), places)))
    is_streamed = bool(together.largest(torch.tensor(int(is_too_large)), "who has memory for the table"))
    return (_learned_streamed if is_streamed else _learned)(source, settings, places.run)


def _finish(learned: Learned, places: Places, as_json: bool) -> dict[str, str]:
    """Write the model and tell of it; where it is."""
    model, summary, rows = learned.model, learned.summary, learned.held_out
    if len(rows):
        X, y = replace(model.features(rows), unseen={}), true_answers(model, target_column(rows, model.target))
        summary["verdict"] = headline(subject_of(model.estimator, X, y))
    model.details.update(summary=summary, versions=versions())
    paths = write_results(model, rows, places, f"free some space; then {_then(model.estimator)}")
    tell_results(summary, paths, as_json)
    return paths


def _then(estimator: Any) -> str:
    path = estimator.checkpoint_path
    return f"--resume continues from {path}" if path and files_of(path) else "no checkpoint to --resume from exists"


def _prepared(source: str, settings: Settings) -> _Prepared:
    whole, asked = read_table(source, settings.encoding, settings.sheet), (*settings.keep, *settings.categorical)
    if settings.sheet is None and source.lower().endswith(".xlsx") and len(sheets := sheets_of(source)) > 1:
        say(f"reading the sheet {quoted(sheets[0])} of {listed(sheets)}; --sheet NAME reads another")
    check_columns((*settings.drop, *asked), whole.columns)
    check_target_name(settings.target, [name for name in whole.columns if name not in settings.drop])
    values = target_column(whole, settings.target)
    table, n_missing = whole.filter(values.is_not_null()), values.null_count()
    if not len(table):
        raise no_values(settings.target)
    values = values.drop_nulls()
    about = TargetSummary.of(values, np.ones(len(values), dtype=bool), most_labels=len(values))
    target = about.target(settings.target, settings.task, settings.decimal)
    _say_target(target, n_missing, settings)
    y, task = target.values(values), target.task
    features = with_categories(table.drop(settings.target, *settings.drop), settings.categorical)
    numberings = {name: Numbering.of(whole[name]) for name in features.columns if name not in asked}
    train_rows, test_rows = _split(y, task, settings)
    rows = target_column(whole, settings.target).is_not_null().arg_true().to_numpy() + 1
    summary = summary_of(features, np.isin(np.arange(len(y)), train_rows).astype(float))
    encoding = with_inputs(without_ids(summary.encoding(features.schema, settings.decimal), numberings))
    used = encoding.used()
    X = Encoded(used(features.select(used.names), lambda row: f"row {rows[row]}"), used)
    learned, ids = y[train_rows], like_ids(encoding, numberings)
    classes = np.unique(learned, return_counts=True) if task == "classification" else None
    remarks = on_table(ids, len(learned), len(test_rows), settings.test_fraction, classes)
    remarks += on_target(settings.target, learned) if classes is None else []
    columns = _say_columns(describe_columns(summary, encoding), [*summary.notes(encoding), *remarks], settings)
    return _Prepared(target, encoding.left_out, columns, table, X, y, train_rows, test_rows)


def _learned(source: str, settings: Settings, run: Path | None) -> Learned:
    with together.joint("reading and preparing the table"):
        table = _prepared(source, settings)
        estimator = _estimator(table.target.task, settings, run, len(table.train_rows), table.X.shape[1])
    if not together.is_alone():
        parts = (np.ascontiguousarray(table.X.inputs), table.y, np.array(table.train_rows))
        together.check_same(table=b"".join(hashlib.sha256(part.tobytes()).digest() for part in parts))
    X, y, y_test = table.X[table.train_rows], table.y[table.train_rows], table.y[table.test_rows]
    summary: dict[str, Any] = {}
    trials, search_cut_short = None, False
    if settings.search:
        trials, search_cut_short = search(estimator, X, y, fixed=list(settings.parameters), jobs=settings.jobs)
        estimator.set_params(**trials[0].setting)
    here = slice(together.rank() * len(y) // together.count(), (together.rank() + 1) * len(y) // together.count())
    with metrics_to(run and run / METRICS):
        _fit(estimator, lambda: estimator.fit(X[here], y[here]), len(y), X.encoding)
    for remark in on_outliers(settings.target, y, estimator):
        say(remark)
    model = _model(estimator, table.target, table.left_out, table.columns)
    model.details["rows_learned"] = hashes_text(X.inputs)
    if together.is_first():  # which alone tells of it
        tested = new_scores(model).add(table.X[table.test_rows], y_test) if len(y_test) else None
        summary = _summary(model, new_scores(model).add(X, y), tested)
    if trials is not None:
        summary["search"] = [trial.to_dict() for trial in trials]
    return Learned(model, summary, table.table[table.test_rows], search_cut_short)


def _learned_streamed(source: str, settings: Settings, run: Path | None) -> Learned:
    table = streamed_table.examined(source, settings)
    target = table.target
    _say_target(target, table.n_without_target, settings)
    n_learned, n_test = table.n_rows("training") + table.n_rows("validation"), table.n_rows("test")
    classes = None if target.classes is None else (target.classes, target.counts)
    remarks = on_table(table.ids, n_learned, n_test, settings.test_fraction, classes)
    columns = _say_columns(table.columns, [*table.notes, *remarks], settings)
    with together.joint("looking at the settings"):
        estimator = _estimator(target.task, settings, run, n_learned, len(table.encoding.feature_names))
        streamed_table.say_unused(settings.parameters)
    with metrics_to(run and run / METRICS):
        _fit(estimator, lambda: streamed_table.fit(estimator, table), n_learned, table.encoding)
    model = _model(estimator, target, table.left_out, columns)
    found = streamed_table.scores_of(model, table, "training", "validation")
    tested = streamed_table.scores_of(model, table, "test") if n_test else None
    with together.joint("reading the rows held out"):
        held_out = streamed_table.held_out(table, streamed_table.MOST_HELD_OUT if together.is_first() else 0)
    return Learned(model, _summary(model, found, tested), held_out)


def _summary(model: TableModel, found: Any, tested: Any) -> dict[str, Any]:
    """What is told of a model: its scores on the rows learned from and tested, and what they compare with."""
    estimator = model.estimator
    return {
        "task": "classification" if model.is_classifier else "regression",
        "rows": {"training": found.rows, "test": tested.rows if tested else 0},
        "training": found.results(),
        "test": tested.results() if tested else None,
        "baseline": (tested or found).baseline(),
        "left_out": list(model.details["left_out"]),
        "order": estimator.order_,
        "order_learned": bool(estimator.learn_order),
        "iterations": estimator.n_iter_,
        "status": estimator.history_.status,
    }


def _model(estimator: Any, target: Target, left_out: dict[str, str], columns: list[dict[str, str]]) -> TableModel:
    details = {"left_out": left_out, "columns": columns, "decimal": target.decimal}
    return TableModel(estimator, target.name, details)


def _say_columns(columns: list[dict[str, str]], notes: list[str], settings: Settings) -> list[dict[str, str]]:
    """What was understood of the table, with the columns that the user leaves out, and notes on it."""
    dropped = ((name, Unused.kind, "", "", "it was dropped (--drop)") for name in settings.drop)
    columns = columns + [dict(zip(HEADINGS, cells, strict=True)) for cells in dropped]
    for text in ("\n".join(["how each column is used:", *as_lines(columns)]), *notes):
        say(text)
    return columns


def _say_target(target: Target, n_missing: int, settings: Settings) -> None:
    if n_missing:
        say(f"{count(n_missing, 'row')} left out: the target is missing")
    values = f"values from {target.least:g} to {target.most:g}"
    found = values if target.classes is None else count(len(target.classes), "class")
    why = "" if settings.task != "auto" else " (--task overrides)"
    say(f"{target.task}: {settings.target!r} holds {found}{why}")


def _split(y: np.ndarray, task: str, settings: Settings) -> tuple[list[int], list[int]]:
    from sklearn.model_selection import train_test_split

    classifies = task == "classification"
    _, which, counts = np.unique(y if classifies else np.zeros(len(y)), return_inverse=True, return_counts=True)
    # A class of one row is for learning; others are held out in proportion.
    common, alone = np.flatnonzero(counts[which] > 1), np.flatnonzero(counts[which] == 1)
    n_test = min(int(settings.test_fraction * len(y)), len(common) - 1)
    if n_test <= 0:
        return list(range(len(y))), []
    stratified = classifies and min(n_test, len(common) - n_test) >= (counts > 1).sum()
    seed, labels = settings.parameters.get("random_state", 0), y[common] if stratified else None
    kept, held_out = train_test_split(common, test_size=n_test, random_state=seed, stratify=labels)
    kept = np.concatenate([kept, alone])
    check_every_class(np.bincount(which[kept], minlength=len(counts)))
    return sorted(kept.tolist()), sorted(held_out.tolist())


def _estimator(task: str, settings: Settings, run: Path | None, n_rows: int, n_features: int) -> Any:
    kind = FractionalClassifier if task == "classification" else FractionalRegressor
    parameters = {"random_state": 0, **settings.parameters}
    for name in set(parameters) - set(kind._parameter_rules):
        if parameters.pop(name) is not None:
            other = "classification" if task == "regression" else "regression"
            fail(f"{name} applies to a {other} only, got a {task}; leave it out")
    estimator = kind(**parameters, verbose=not is_quiet())
    if run is not None and "checkpoint_every" not in parameters:
        iterations = resolve_recipe(estimator, n_rows, n_features).max_iter
        estimator.checkpoint_every = min(MOST_BETWEEN, max(1, iterations // SHARE))
    return estimator


def _fit(estimator: Any, fit: Callable[[], object], n_rows: int, encoding: Encoding) -> None:
    """Fit, and tell of it; warnings in one line each, but for that of the user's own interrupt."""
    shared = "" if together.is_alone() else f", shared among {together.count()} processes"
    columns, features = count(len(encoding.columns), "column"), count(len(encoding.feature_names), "feature")
    say(f"training on {count(n_rows, 'row')}, {columns}, {features}{shared}")
    if estimator.resume:
        runs.say_resumed(estimator.checkpoint_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    for warning in caught if estimator.history_.status != "interrupted" else ():
        if not str(warning.message).startswith(_TOLD_BEFORE):
            say(f"warning: {warning.message}", always=True)
