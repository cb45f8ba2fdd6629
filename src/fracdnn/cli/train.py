"""`fracdnn train`: from a table to a model file."""

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import typer

from fracdnn.cli import runs
from fracdnn.cli.messages import fail, is_quiet, say
from fracdnn.cli.metrics import Scores, hashes_text, rows_seen, scores_of
from fracdnn.cli.options import Settings
from fracdnn.cli.places import METRICS, Places
from fracdnn.cli.ranks import process_group
from fracdnn.cli.runs import UNFINISHED, files_of, tell_results, write_results
from fracdnn.cli.termination import exit_code
from fracdnn.estimators import FractionalClassifier, FractionalRegressor
from fracdnn.estimators.table_model import TableModel, true_answers
from fracdnn.report.subject import subject_of
from fracdnn.report.trust import headline
from fracdnn.tables import read
from fracdnn.tables.column import Unused
from fracdnn.tables.encoder import HEADINGS, Encoded, Encoder, as_lines
from fracdnn.tables.frames import with_categories
from fracdnn.tables.ids import different_whole_numbers
from fracdnn.tables.late import pl
from fracdnn.tables.suspicions import is_like_a_price, missing_codes, repeated_rows, telling_columns
from fracdnn.tables.targets import Target, check_every_class, split_target, target_column
from fracdnn.tables.words import alike, check_columns, count, listed, quoted
from fracdnn.training import processes
from fracdnn.training.progress import metrics_to
from fracdnn.version import versions

# A warning of scikit-learn's, which `on_rows` gives before the training.
_TOLD_BEFORE = "The number of unique classes is greater than"
# For remarks on few rows or classes.
FEW_ROWS, FEW_OF_CLASS = 20, 5
MOST_NAMED = 6


@dataclass(frozen=True, kw_only=True, eq=False)
class _Table:
    """A table in memory: what is to be learned, and what becomes of each column.

    `rows` are features and targets by what they are for.
    """

    target: Target
    every: Encoder
    ids: list[str]
    n_without_target: int
    rows: dict[str, tuple[Encoded, np.ndarray]]
    held_out: "pl.DataFrame"

    @cached_property
    def encoding(self) -> Encoder:
        """The columns in use."""
        return self.every.used()

    def n_rows(self, role: str) -> int:
        return len(self.rows[role][1])

    def fit(self, estimator: Any) -> None:
        """Fit to this rank's share of the rows: every n-th one."""
        X, y = self.rows["training"]
        mine = slice(processes.rank(), None, processes.count())
        estimator.fit(X[mine], y[mine])

    def scores(self, model: TableModel, role: str) -> Scores | None:
        return scores_of(model, [self.rows[role]]) if self.n_rows(role) else None


def train(source: str, settings: Settings, places: Places, *, as_json: bool) -> None:
    """One process, or those that torchrun started: all read the table, each trains on its part of the rows."""
    own = places.own_checkpoint
    with process_group(settings.timeout, source), ExitStack() as held:
        record, model = {}, None
        if processes.is_first():
            places.check(source, settings.parameters.get("checkpoint_path"))
            if places.run is not None:
                held.enter_context(runs.locked(places.run))
            record = runs.training_record(source, settings)
            if settings.parameters.get("resume") and not (own and files_of(own)):
                model = runs.finished(places.models[-1], record)
        if processes.from_first(model is not None):
            if model is not None:
                say(f"this training is finished: {places.models[-1]}; to train again, pass --start-over, not --resume")
                paths = {"model": str(places.models[-1])} | ({"run": str(places.run)} if places.run else {})
                tell_results(model.details["summary"], paths, as_json)
            return
        model, held_out = _learn(source, settings, places)
        paths = {}
        if processes.is_first():
            model.details.update(training=record, source=source)
            summary = model.details["summary"]
            if len(held_out):
                X, y = model.features(held_out), true_answers(model, target_column(held_out, model.target))
                summary["verdict"] = headline(subject_of(model.estimator, replace(X, unseen={}), y))
            remedy = f"free some space; then {_then(model.estimator)}"
            paths = write_results(model, held_out, places, remedy)
            tell_results(summary, paths, as_json)
        estimator, status = model.estimator, model.estimator.history_.status
        if own is not None and status not in UNFINISHED and processes.is_first():
            runs.remove(files_of(own))  # which are ours, and done with
        if status == "no improvement":
            first = f" (the first of {len(estimator.members_)} members)" if len(estimator.members_) > 1 else ""
            done = count(estimator.n_iter_, "iteration")
            kept = f"iteration {estimator.history_.kept_iteration} is kept"
            say(f"stopped early after {done}{first}: the validation loss stopped improving; {kept}")
        if status == "time limit":
            say(f"time limit reached; {_then(estimator)}")
        if status == "interrupted":
            members = f", {len(estimator.members_)} members" if len(estimator.members_) > 1 else ""
            kept = f"; {paths['kept']} is unchanged" if "kept" in paths else ""
            best = f"the best model so far (iteration {estimator.n_iter_}{members}) is {paths.get('model', '')}{kept}"
            say(f"training was interrupted; {best}; {_then(estimator)}")
            raise typer.Exit(exit_code())


def _learn(source: str, settings: Settings, places: Places) -> tuple[TableModel, "pl.DataFrame"]:
    """Return a trained model, with its scores in its details, and the rows held out."""
    checkpoint, resumes = settings.parameters.get("checkpoint_path"), bool(settings.parameters.get("resume"))
    if processes.is_first():
        runs.check_checkpoint(checkpoint, resume=resumes, start_over=settings.start_over)
    table = _whole_table(source, settings)
    target, run = table.target, places.run
    n_learned = table.n_rows("training")
    if table.n_without_target:
        say(f"{count(table.n_without_target, 'row')} left out: the target is missing")
    values = f"values from {target.least:g} to {target.most:g}"
    holds = values if target.classes is None else count(len(target.classes), "class")
    say(f"{target.task}: {target.name!r} holds {holds}{'' if settings.task != 'auto' else ' (--task overrides)'}")
    rows_learned = hashes_text(table.rows["training"][0].inputs)
    suspicions = _suspicions(table, rows_learned)
    remarks = [*on_table(table, n_learned, settings.test_fraction), *(f"warning: {each}" for each in suspicions)]
    columns = _say_columns(table, remarks, settings)
    estimator = _estimator(target.task, settings)
    with metrics_to(run and run / METRICS):
        _fit(estimator, lambda: table.fit(estimator), n_learned, table.encoding)
    dropped = dict.fromkeys(settings.drop, "it was dropped (--drop)")
    details = {"left_out": dropped | table.every.left_out, "columns": columns, "decimal": target.decimal}
    details["suspicions"] = suspicions
    model = TableModel(estimator, target.name, details)
    y = table.rows["training"][1]
    low, high = getattr(estimator, "target_limits_", np.zeros((2, 1)))[:, 0]  # a classifier has none
    if n_far := int(((y < low) | (y > high)).sum()) if target.classes is None else 0:
        far = f"{quoted(target.name)} is more than {estimator.outlier_limit:g} spreads from its median in {n_far:,}"
        clipped = f"clipped to {low:g} or {high:g}; --outlier-limit none keeps all values"
        say(f"{far} of {len(y):,} training rows, where it is {clipped}")
    details["rows_learned"] = rows_learned
    found, tested = (table.scores(model, role) for role in ("training", "test"))
    if found is not None:
        details |= {"summary": _summary(model, table, found, tested), "versions": versions()}
    return model, table.held_out


def _suspicions(table: _Table, rows_learned: str) -> list[str]:
    X, y = table.rows["training"]
    found = [*missing_codes(X), *telling_columns(X, y, are_classes=table.target.classes is not None)]
    return found + repeated_rows(*rows_seen(rows_learned, table.rows["test"][0].inputs).tolist())


def _then(estimator: Any) -> str:
    path = estimator.checkpoint_path
    return f"--resume continues from {path}" if path and files_of(path) else "no checkpoint to --resume from exists"


def _whole_table(source: str, settings: Settings) -> _Table:
    whole, file = read(source, encoding=settings.encoding, sheet=settings.sheet)
    for note in file.notes() if settings.sheet is None else ():
        say(note)
    asked = (*settings.keep, *settings.categorical)
    check_columns((*settings.drop, *asked), whole.columns)
    rest, values, places = split_target(whole.drop(settings.drop), settings.target)
    target = Target.of(values, settings.task, settings.decimal)
    y, features = target.y, with_categories(rest, settings.categorical)
    train_rows, test_rows = _split(y, target.task, settings)
    if target.classes is not None:
        target = replace(target, counts=np.unique(y[train_rows], return_counts=True)[1])
    is_learned = np.isin(np.arange(len(y)), train_rows).astype(float)
    every = Encoder.fit(features, is_learned, decimal=settings.decimal, leave_out_ids=True, keep=asked)
    used = every.used()
    X = Encoded(used.transform(features.select(used.names), lambda row: f"row {places[row] + 1}"), used)
    return _Table(
        target=target,
        every=every,
        ids=[name for name in different_whole_numbers(features.select(used.names)) if name not in asked],
        n_without_target=whole.height - len(places),
        rows={"training": (X[train_rows], y[train_rows]), "test": (X[test_rows], y[test_rows])},
        held_out=whole[places[test_rows]],
    )


def _summary(model: TableModel, table: _Table, found: Scores, tested: Scores | None) -> dict[str, Any]:
    """What is told of a model: its scores on the rows learned from and tested, and what they compare with."""
    estimator = model.estimator
    return {
        "task": "classification" if model.is_classifier else "regression",
        "rows": {"training": found.rows, "test": tested.rows if tested else 0},
        "training": found.results(),
        "test": tested.results() if tested else None,
        "baseline": (tested or found).baseline(estimator),
        "left_out": list(table.every.left_out),
        "order": estimator.order_,
        "order_learned": bool(estimator.learn_order),
        "iterations": estimator.n_iter_,
        "status": estimator.history_.status,
    }


def _say_columns(table: _Table, remarks: list[str], settings: Settings) -> list[dict[str, str]]:
    """What was understood of the table, with the columns that the user leaves out, and notes on it."""
    dropped = ((name, Unused.kind, "", "", "it was dropped (--drop)") for name in settings.drop)
    columns = table.every.overview()
    columns += [dict(zip(HEADINGS, cells, strict=True)) for cells in dropped]
    lines = "\n".join(["how each column is used:", *as_lines(columns)])
    for text in (lines, *table.every.warnings(), *remarks):
        say(text)
    return columns


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


def _estimator(task: str, settings: Settings) -> Any:
    kind = FractionalClassifier if task == "classification" else FractionalRegressor
    parameters = {"random_state": 0, **settings.parameters}
    for name in set(parameters) - set(kind._parameter_rules):
        if parameters.pop(name) is not None:
            other = "classification" if task == "regression" else "regression"
            fail(f"{name} applies to a {other} only, got a {task}; leave it out")
    return kind(**parameters, verbose=not is_quiet())


def _fit(estimator: Any, fit: Callable[[], object], n_rows: int, encoding: Encoder) -> None:
    """Fit, and tell of it; warnings in one line each, but for that of the user's own interrupt."""
    shared = "" if processes.count() == 1 else f", shared among {processes.count()} processes"
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


def on_table(table: Any, n_learned: int, test_fraction: float) -> list[str]:
    """On few rows, ids, the values of a target, and classes: many of them, rare ones, and names that look alike."""
    found, target = [], table.target
    names, counts = (np.empty(0, dtype=int), ()) if target.classes is None else (target.classes, target.counts)
    if n_learned < FEW_ROWS:
        found.append(f"warning: only {count(n_learned, 'training row')}: results will be unreliable")
    if test_fraction and not table.n_rows("test"):
        found.append("warning: no rows are held out to test the model, so its quality on new rows is unknown")
    y = table.rows["training"][1] if isinstance(table, _Table) else np.empty(0)
    if target.classes is None and len(y) > 1 and not np.ptp(y):
        found.append(f"warning: {quoted(target.name)} is {y[0]:g} in every training row: there is nothing to learn")
    if target.classes is None and is_like_a_price(y):
        found.append(
            f"{quoted(target.name)} spans orders of magnitude, so its largest values dominate the errors; if relative "
            f"errors matter, add a column with its logarithm, pass that as --target, and leave this one out: "
            f"--drop {quoted(target.name)}"
        )
    if len(names) > n_learned / 2:
        many = f"{len(names):,} classes in {n_learned:,} rows"
        found.append(f"warning: {many}; to predict a number, pass --task regression")
    if table.ids and n_learned >= FEW_ROWS:
        drop = " ".join(f"--drop {quoted(name)}" for name in table.ids[:3])
        why = "holds a different whole number in each row"
        found.append(f"{listed(table.ids)} {why}; if that is an id, leave it out: {drop}")
    rare = [f"{str(name)!r} ({n:.0f})" for name, n in zip(names, counts, strict=True) if n < FEW_OF_CLASS]
    if rare:
        more = f" and {len(rare) - MOST_NAMED} more" if len(rare) > MOST_NAMED else ""
        has, them = ("has", "it") if len(rare) == 1 else ("have", "them")
        which = f"{len(rare):,} of {len(names):,} classes {has} fewer than {FEW_OF_CLASS} training rows"
        found.append(f"warning: {which}: {', '.join(rare[:MOST_NAMED])}{more}; the model will rarely predict {them}")
    for group in alike(list(map(str, names))) if names.dtype.kind == "U" else ():
        found.append(f"warning: the classes {listed(group)} look alike; if they mean the same, give them one name")
    return found
