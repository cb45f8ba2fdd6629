"""`fracdnn predict`, `evaluate`, `info` and `report`: what a model file is good for."""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from queue import Full, Queue
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from fracdnn.cli.messages import fail, say, written
from fracdnn.cli.metrics import (
    ClassScores,
    ValueScores,
    by_class,
    class_table,
    confusion_table,
    new_scores,
    plain,
    shown,
)
from fracdnn.cli.options import check_encoding
from fracdnn.cli.outputs import check_output
from fracdnn.cli.ranks import check_ranks, process_group
from fracdnn.columns.column import Categories, Column, Dates, Numbers
from fracdnn.columns.words import check_columns, listed
from fracdnn.exceptions import FileContentError, TableError
from fracdnn.files import os_error, write_whole
from fracdnn.nn.architecture import Architecture
from fracdnn.tabular import TableModel, load
from fracdnn.tabular.encodings import UTF_8
from fracdnn.tabular.model import check_target_name, split_target, target_column, target_values
from fracdnn.tabular.reading import ENDINGS, read_table
from fracdnn.tabular.rounds import in_order, parts_here
from fracdnn.training.together import Ranks

if TYPE_CHECKING:
    import polars as pl

OUT_ENDINGS = (".csv", ".tsv", ".parquet")


def table_model(path: Path) -> TableModel:
    if path.is_dir():
        fail(f"{path} must be a model file, got a folder; pass the model in it, such as {path / 'model.fracdnn'}")
    try:
        found = load(path)
    except FileContentError:
        if not str(path).lower().endswith(ENDINGS):
            raise
        fail(
            f"{path} must be a model file, got a table; make a model of it first: fracdnn train {path} "
            f"--target COLUMN --out model.fracdnn"
        )
    if not isinstance(found, TableModel):
        fail(
            f"{path} must be a model of a table, got one that Python code has saved; use it from Python, or train again"
        )
    return found


def predict(
    path: Path,
    source: str,
    out: str,
    *,
    keep: list[str],
    new_categories: str,
    encoding: str,
    timeout: float | None,
    quiet: bool,
) -> None:
    """One process, or those that torchrun started: each reads its share of the table, the first one writes."""
    check_encoding(encoding)
    with process_group(timeout) as ranks, ranks.interrupts_noted():
        model = _model_of_all(ranks, path, source)
        with ranks.together("looking at the options"):
            if out != "-" and Path(out).suffix not in OUT_ENDINGS:
                fail(f"--out must end in one of {', '.join(OUT_ENDINGS)}, or be - for standard output, got {out}")
            check_output("--out", out, path, source)
        ranks.check_same(options=repr((out, keep, new_categories, encoding)))
        made = in_order(ranks, _predictions(ranks, model, source, keep, new_categories, encoding))
        with ranks.together("writing predictions"), closing(made) as parts:
            if not ranks.is_first:
                for _ in parts:
                    pass  # the first rank has them
            elif out == "-":
                _print(parts)
            else:
                with written(Path(out)):
                    rows = _write(Path(out), parts)
                say(f"{rows:,} predictions: {out}", quiet)


def _model_of_all(ranks: Ranks, path: Path, source: str) -> TableModel:
    """The model, for a table that all ranks can read."""
    with ranks.together("loading the model"):
        model = table_model(path)
        check_ranks(source, ranks)
        content = path.read_bytes()
    ranks.check_same(model=content)
    return model


def _print(parts: "Iterator[pl.DataFrame]") -> None:
    for text in _texts(parts, ","):
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


def _texts(parts: "Iterator[pl.DataFrame]", separator: str) -> Iterator[bytes]:
    """The parts as text, for Python to write: Polars tells of a closed pipe in its own way, and loses Ctrl-C."""
    for number, part in enumerate(parts):
        yield part.write_csv(include_header=number == 0, separator=separator).encode()


def _predictions(
    ranks: Ranks, model: TableModel, source: str, keep: list[str], new_categories: str, encoding: str
) -> "Iterator[pl.DataFrame | None]":
    """For each round the predictions of what is here."""
    import polars as pl

    made = ["prediction", *(f"probability_{name}" for name in getattr(model.estimator, "classes_", ()))]
    for name in keep:
        if name in made:
            raise TableError(f"--id must be none of the columns that predictions have, got {name!r}; rename it")
    numbers = [name for name in model.encoding.number_names if name not in keep]
    for parts in parts_here(ranks, source, numbers, lambda frame: frame, encoding):
        with ranks.together("predicting"):
            found = [_predicted(model, part, keep, new_categories, first_row) for part, first_row in parts]
            frame = pl.concat(found) if found else None
        yield frame


def _predicted(
    model: TableModel, part: "pl.DataFrame", keep: list[str], new_categories: str, first_row: int
) -> "pl.DataFrame":
    """Kept columns, the prediction, and the probability of each class."""
    import polars as pl

    check_columns(keep, part.columns)
    X = model.features(part, new_categories=new_categories, first_row=first_row)
    columns: dict[str, Any] = {name: part[name] for name in keep}
    if not model.is_classifier:
        return pl.DataFrame(columns | {"prediction": model.estimator.predict(X)})
    probabilities, classes = model.estimator.predict_proba(X), model.estimator.classes_
    columns["prediction"] = classes[probabilities.argmax(1)]
    return pl.DataFrame(columns | {f"probability_{name}": probabilities[:, k] for k, name in enumerate(classes)})


def _write(path: Path, parts: "Iterator[pl.DataFrame]") -> int:
    """Write the parts one by one; how many rows they had."""
    rows = 0

    def counted() -> "Iterator[pl.DataFrame]":
        nonlocal rows
        for part in parts:
            rows += part.height
            yield part

    def as_text(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.writelines(_texts(counted(), "\t" if path.suffix == ".tsv" else ","))

    write_whole(path, (lambda place: _sink(place, counted())) if path.suffix == ".parquet" else as_text)
    return rows


def _sink(path: Path, parts: "Iterator[pl.DataFrame]") -> None:
    """Write Parquet in a thread of its own, so that this one, which makes the parts, gets signals at once."""
    from polars.exceptions import PolarsError
    from polars.io.plugins import register_io_source

    first = next(parts)
    handed: Queue[pl.DataFrame | None] = Queue(1)
    # Nothing is asked of the source but all of its rows.
    source = register_io_source(lambda *asked: _taken(handed), schema=first.schema)
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(source.sink_parquet, path, maintain_order=True)
        try:
            for part in chain([first], parts):
                _hand(part, handed, written)
        finally:
            _hand(None, handed, written)  # the end, of the file or of the thread
        try:
            written.result()
        except PolarsError as error:
            raise os_error(error, path) or error from None


def _taken(handed: "Queue[pl.DataFrame | None]") -> "Iterator[pl.DataFrame]":
    while (part := handed.get()) is not None:
        yield part


def _hand(part: "pl.DataFrame | None", to: "Queue[pl.DataFrame | None]", taker: Future) -> None:
    """Wait until it is taken, unless the taker has failed."""
    while not taker.done():
        with suppress(Full):
            to.put(part, timeout=0.1)
            return


def evaluate(
    path: Path, source: str, *, new_categories: str, encoding: str, timeout: float | None, as_json: bool, quiet: bool
) -> None:
    """One process, or those that torchrun started, each with its share of the table; the first one talks."""
    check_encoding(encoding)
    with process_group(timeout) as ranks, ranks.interrupts_noted():
        model = _model_of_all(ranks, path, source)
        ranks.check_same(options=repr((new_categories, encoding)))
        scores = _scored(ranks, model, source, new_categories, encoding, quiet)
        if ranks.is_first:
            _tell_scores(model, scores, as_json)


def _scored(
    ranks: Ranks, model: TableModel, source: str, new_categories: str, encoding: str, quiet: bool
) -> ClassScores | ValueScores:
    scores, n_missing = new_scores(model), 0

    def with_target(part: "pl.DataFrame") -> "pl.DataFrame":
        nonlocal n_missing
        check_target_name(model.target, part.columns)
        known = target_column(part, model.target).is_not_null()
        n_missing += part.height - int(known.sum())
        return part.filter(known)

    for parts in parts_here(ranks, source, [], with_target, encoding):
        with ranks.together("predicting"):
            for part, first_row in parts:
                if part.height:
                    values = target_column(part, model.target)
                    y = _labels(model, values) if model.is_classifier else target_values(values, "regression")
                    scores.add(model.features(part, new_categories=new_categories, first_row=first_row), y)
    scores.add_up(ranks)
    n_missing = int(ranks.sum(torch.tensor(n_missing), "the number of rows"))
    if not scores.rows:
        raise TableError(f"the target column {model.target!r} must hold values, got none; check the table")
    if n_missing:
        say(f"{n_missing:,} rows are left out: their target is missing", quiet)
    return scores


def _tell_scores(model: TableModel, scores: ClassScores | ValueScores, as_json: bool) -> None:
    document: dict[str, Any] = {"rows": scores.rows, **scores.found()}
    if isinstance(scores, ClassScores):
        document["classes"] = plain(model.estimator.classes_)
        document["by_class"] = {name: plain(column) for name, column in by_class(scores.counts).items()}
        document["confusion"] = plain(scores.counts)
        words = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "log_loss": "log-loss"}
        words["ECE"] = "expected calibration error (ECE)"
        lines = [f"{shown_as}: {document[name]:.4f}" for name, shown_as in words.items()]
    else:
        lines = [f"{name}: {shown(value)}" for name, value in scores.found().items()]
    if as_json:
        typer.echo(json.dumps(document))
        return
    typer.echo("\n".join([f"rows: {scores.rows:,}", *lines]))
    if isinstance(scores, ClassScores):
        console, names = Console(markup=False), [str(name) for name in model.estimator.classes_]
        console.print(class_table(names, scores.counts))
        console.print(confusion_table(names, scores.counts))


def _labels(model: TableModel, values: "pl.Series") -> np.ndarray:
    """The true classes as the model has them; a class it has never seen is an error."""
    classes = model.estimator.classes_
    if classes.dtype.kind == "U" and values.dtype == str and values.is_in(classes.tolist()).all():
        return values.to_numpy().astype(str)  # as they are, also where all of this part look like numbers
    labels = target_values(values, "classification")
    if classes.dtype.kind == "U":
        labels = labels.astype(str)
    unknown = sorted({str(label) for label in labels} - {str(name) for name in classes})
    if unknown:
        raise TableError(
            f"the target column {model.target!r} must hold classes of the training table, got {listed(unknown)}; "
            f"it knows {listed([str(name) for name in classes])}"
        )
    return labels


def info(path: Path, *, as_json: bool) -> None:
    model = table_model(path)
    estimator = model.estimator
    document = {
        "estimator": type(estimator).__name__,
        "target": model.target,
        "classes": plain(estimator.classes_) if model.is_classifier else None,
        "columns": model.encoding.to_document(),
        "network": {**estimator.network_.options, "order": estimator.order_},
        "members": len(estimator.members_),
        "temperature": estimator.temperature_,
        "training": {"iterations": estimator.n_iter_, "loss": estimator.loss_, "status": estimator.history_.status},
        "details": model.details,
    }
    if as_json:
        typer.echo(json.dumps(document))
        return
    shape, learned = estimator.network_.architecture, estimator.network_.options["learn_order"]
    lines = {
        "model": f"{document['estimator']} for {model.target!r}",
        "network": f"{shape.n_layers} layers of width {shape.width}, {shape.activation}{_on_grid(shape)}",
        "members": str(len(estimator.members_)),
        "order": f"{estimator.order_:g}" + (" (learned)" if learned else ""),
        "training": f"{estimator.n_iter_} iterations, {estimator.history_.status}, loss {estimator.loss_:.4g}",
    }
    if estimator.temperature_ is not None:
        lines["temperature"] = f"{estimator.temperature_:.4g}"
    if model.is_classifier:
        lines["classes"] = listed([str(name) for name in estimator.classes_])
    for part in ("training", "test"):
        found = (model.details.get("summary") or {}).get(part)
        if found:
            lines[f"{part} rows"] = ", ".join(f"{name} {shown(value)}" for name, value in found.items())
    lines["versions"] = ", ".join(f"{name} {number}" for name, number in model.details.get("versions", {}).items())
    for name, text in lines.items():
        typer.echo(f"{name}: {text}")
    table = Table(title="columns it expects, in any order")
    for heading in ("column", "kind", "values"):
        table.add_column(heading)
    for column in model.encoding.columns:
        table.add_row(column.name, column.kind, _column_values(column))
    Console(markup=False).print(table)


def _on_grid(shape: Architecture) -> str:
    if shape.grid_shape is None:
        return ""
    return f", {shape.stencil} stencils on a grid of {shape.grid_shape[0]} x {shape.grid_shape[1]}"


def _column_values(column: Column) -> str:
    if isinstance(column, Categories):
        return listed(column.categories, most=8) + (", others" if column.others else "")
    if isinstance(column, Dates):
        return f"since {column.first}: {', '.join(column.parts)}"
    return f"median {column.median:g}" if isinstance(column, Numbers) else column.why


def report(run: Path, out: Path, *, data: str | None, encoding: str, quiet: bool) -> None:
    from fracdnn.report.html import write_report

    check_encoding(encoding)
    path = run / "model.fracdnn" if run.is_dir() else run
    model = table_model(path)
    source = data if data is not None else str(run / "held-out.csv") if run.is_dir() else None
    if source is None:
        fail(f"--data must name a table for a model file, got {run} alone; or pass the folder that train --run wrote")
    check_output("--out", out, path, source)
    features, values, _ = split_target(read_table(source, encoding if data else UTF_8), model.target)
    y = _labels(model, values) if model.is_classifier else target_values(values, "regression")
    X = model.features(features, new_categories="ignore")
    details = {"target": model.target, "rows shown": source, "trained on": str(model.details.get("source", "-"))}
    n_columns = len(model.encoding.columns)
    with written(out):
        write_report(
            out,
            model.estimator,
            X,
            y,
            title=f"{model.target} from {n_columns} column{'' if n_columns == 1 else 's'}",
            details=details,
            left_out=model.details.get("left_out", {}),
            trained_with=model.details.get("versions"),
        )
    say(f"report: {out}", quiet)
