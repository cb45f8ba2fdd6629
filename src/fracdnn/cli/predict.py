"""`fracdnn predict`, `evaluate` and `report`: what a model file is good for."""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import typer

from fracdnn.cli.messages import fail, say, show_table, tell_facts, written
from fracdnn.cli.metrics import ClassScores, Scores, by_class, rows_seen, scores_of
from fracdnn.cli.options import ENCODING
from fracdnn.cli.places import HELD_OUT, MODEL, check_output
from fracdnn.estimators.table_model import TableModel, load, true_answers
from fracdnn.exceptions import TableError
from fracdnn.files import os_error, write_whole
from fracdnn.report.texts import SCORES, number
from fracdnn.tables.cells import Strays
from fracdnn.tables.encoder import Encoded
from fracdnn.tables.late import pl
from fracdnn.tables.reading import read_parts, read_table
from fracdnn.tables.suspicions import LEAST_SEEN
from fracdnn.tables.targets import no_values, split_target, target_column
from fracdnn.tables.words import check_columns, check_target_name, count

# A table, its encoding and its sheet.
Source = tuple[str, str, str | None]


def _parts(model: TableModel, source: Source, target: str | None = None) -> "Iterator[tuple[pl.DataFrame, Encoded]]":
    """Parts of a table with their features, in the end a warning of cells of a kind that training has not seen.

    Only rows that have the `target` get features.
    """
    first_row, unseen, (table, encoding, sheet) = 0, dict[str, Strays](), source
    for part in read_parts(table, encoding, sheet):
        rows, places = part, np.arange(part.height)
        if target is not None:
            check_target_name(target, part.columns)
            places = target_column(part, target).is_not_null().arg_true().to_numpy()
            rows = part[places]
        features = model.features(rows, row_numbers=first_row + 1 + places)
        for name, cells in features.unseen.items():
            unseen[name] = unseen.get(name, Strays()).merged(cells)
        yield part, replace(features, unseen={})
        first_row += part.height
    for note in model.encoding.unseen_notes(unseen):
        say(f"warning: {note}")


def predict(path: Path, source: Source, out: str, keep: list[str], interval: float | None) -> None:
    model = load(path)
    if interval is not None:
        shortage = model.estimator._held_out_scores(interval, "interval").shortage(interval)
        if shortage and not model.is_classifier:
            say(f"warning: {shortage}")
    parts = _predictions(model, source, keep, interval)
    if out == "-":
        for text in _texts(parts, ","):
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
    else:
        with written(Path(out)):
            rows = _write(Path(out), parts)
        say(f"{count(rows, 'prediction')}: {out}")


def _texts(parts: "Iterator[pl.DataFrame]", separator: str) -> Iterator[bytes]:
    """As text, for Python to write: Polars tells of a closed pipe in its own way, and loses Ctrl-C."""
    for place, part in enumerate(parts):
        yield part.write_csv(include_header=place == 0, separator=separator).encode()


def _predictions(
    model: TableModel, source: Source, keep: list[str], interval: float | None
) -> "Iterator[pl.DataFrame]":
    """Of each part: kept columns, the prediction, the probability of each class; with an interval, its ends, or the
    classes that are plausible.
    """
    estimator, classes = model.estimator, model.estimator.classes_ if model.is_classifier else ()
    ends = [] if interval is None else ["plausible"] if model.is_classifier else ["lower", "upper"]
    made = ["prediction", *ends, *(f"probability_{name}" for name in classes)]
    for name in keep:
        if name in made:
            raise TableError(f"--id must not name a column of the predictions, got {name!r}; rename it in the table")
    for part, X in _parts(model, source):
        check_columns(keep, part.columns)
        if not model.is_classifier:
            shares = [] if interval is None else [0.5 - interval / 2, 0.5 + interval / 2]
            answers = [estimator.predict(X), *(estimator.predict_quantiles(X, shares).T if shares else ())]
        else:
            probabilities = estimator.predict_proba(X)
            answers = [classes[probabilities.argmax(1)], *probabilities.T]
            if interval is not None:
                sets = estimator.predict_sets(X, interval)
                answers.insert(1, [" | ".join(map(str, classes[each])) for each in sets])
        yield pl.DataFrame({name: part[name] for name in keep} | dict(zip(made, answers, strict=True)))


def _write(path: Path, parts: "Iterator[pl.DataFrame]") -> int:
    """Write the parts one by one; how many rows they had."""
    rows = 0

    def counted() -> "Iterator[pl.DataFrame]":
        nonlocal rows
        for part in parts:
            rows += part.height
            yield part

    def write(temporary: Path) -> None:
        if path.suffix == ".parquet":
            return _write_parquet(temporary, counted())
        with temporary.open("wb") as file:
            return file.writelines(_texts(counted(), "\t" if path.suffix == ".tsv" else ","))

    write_whole(path, write)
    return rows


def _write_parquet(path: Path, parts: "Iterator[pl.DataFrame]") -> None:
    """Polars adds no parts to a file of Parquet, so they lie beside it until all are there."""
    from polars.exceptions import PolarsError

    with TemporaryDirectory(prefix=f"{path.stem}-", dir=path.parent) as folder:
        try:
            for number, part in enumerate(parts):
                part.write_ipc(Path(folder) / f"{number:09}.arrow")
            pl.scan_ipc(Path(folder) / "*.arrow").sink_parquet(path, maintain_order=True)
        except PolarsError as error:
            raise os_error(error, path) or error from None


def evaluate(path: Path, source: Source, *, as_json: bool) -> None:
    model = load(path)
    scores = _scored(model, source)
    found = scores.results()
    if not as_json:
        tell_facts({"rows": f"{scores.rows:,}"} | {SCORES[name]: number(value) for name, value in found.items()})
    document: dict[str, Any] = {"rows": scores.rows, **found}
    if isinstance(scores, ClassScores):
        counts, classes = scores.counts.tolist(), model.estimator.classes_.tolist()
        shares = {name: column.tolist() for name, column in by_class(scores.counts).items()}
        document |= {"classes": classes, "by_class": shares, "confusion": counts}
        if not as_json:
            names = list(map(str, classes))
            each = zip(names, *shares.values(), strict=True)
            rows = ([name, *(number(x, 3) for x in xs), str(n)] for name, *xs, n in each)
            show_table("by class", ["class", *shares], rows)
            rows = ([name, *map(str, row)] for name, row in zip(names, counts, strict=True))
            show_table("confusion: rows are the true class, columns the predicted one", ["", *names], rows)
    if as_json:
        typer.echo(json.dumps(document))


def _scored(model: TableModel, source: Source) -> Scores:
    scores, n_missing, learned = scores_of(model), 0, np.zeros(2, dtype=np.int64)
    known = model.details.get("rows_learned")
    for part, X in _parts(model, source, model.target):
        target = target_column(part, model.target)
        n_missing += target.null_count()
        if len(X):
            scores = scores.merged(scores.of(model.estimator, X, true_answers(model, target.drop_nulls())))
            learned += rows_seen(known, X.inputs) if known else 0
    if not scores.rows:
        raise no_values(model.target)
    n_seen, n_known = learned.tolist()
    if n_seen >= LEAST_SEEN * max(n_known, 1):
        say(
            f"warning: the model was trained on {n_seen / n_known:.0%} of these rows, so new rows will score lower; "
            f"evaluate rows that it has not seen"
        )
    if n_missing:
        say(f"{count(n_missing, 'row')} left out: the target is missing")
    return scores


def report(run: Path, out: Path, *, data: str | None, encoding: str, sheet: str | None) -> None:
    from fracdnn.report.html import write_report

    path = run / MODEL if run.is_dir() else run
    model = load(path)
    source = data if data is not None else str(run / HELD_OUT) if run.is_dir() else None
    if source is None:
        fail(f"a model file needs --data TABLE, got {run} alone; or pass the folder that train --run wrote")
    check_output("--out", out, path, source)
    if data is None and hashlib.sha256(Path(source).read_bytes()).hexdigest() != model.details.get("held_out"):
        fail(
            f"{source} does not match {path}: one of them was changed, or a training stopped between writing them; "
            f"train again with --resume or --start-over, or pass --data"
        )
    features, values, places = split_target(read_table(source, encoding if data else ENCODING, sheet), model.target)
    X, y = replace(model.features(features, row_numbers=places + 1), unseen={}), true_answers(model, values)
    left = [features[name] for name in model.details.get("left_out", ()) if name in features.columns]
    about = {
        "title": f"{model.target} from {count(len(model.encoding.columns), 'column')}",
        "details": {"target": model.target, "rows shown": source, "trained on": model.details.get("source", "-")},
        "columns": model.details.get("columns", []),
        "trained_with": model.details.get("versions"),
        "suspicions": model.details.get("suspicions", []),
        "ids": next((column.to_list() for column in left if column.n_unique() == len(column)), None),
    }
    with written(out):
        write_report(out, model.estimator, X, y, **about)
    say(f"report: {out}")
