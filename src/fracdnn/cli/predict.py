"""`fracdnn predict`, `evaluate` and `report`: what a model file is good for."""

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import typer

from fracdnn.cli.messages import fail, say, show_table, tell_facts, written
from fracdnn.cli.metrics import ClassScores, Scores, by_class, over_ranks, rows_seen, scores_of
from fracdnn.cli.model_info import read_model
from fracdnn.cli.options import ENCODING, check_encoding
from fracdnn.cli.places import HELD_OUT, MODEL, check_output
from fracdnn.cli.ranks import process_group
from fracdnn.columns.cells import Strays
from fracdnn.columns.encoding import Encoded
from fracdnn.columns.late import pl
from fracdnn.columns.words import check_columns, check_target_name, count
from fracdnn.exceptions import TableError
from fracdnn.files import os_error, write_whole
from fracdnn.report.texts import SCORES, number
from fracdnn.tabular import TableModel, load
from fracdnn.tabular.model import no_values, split_target, target_column, true_answers
from fracdnn.tabular.reading import read_table
from fracdnn.tabular.streaming import in_order, parts_here
from fracdnn.tabular.suspicions import LEAST_SEEN
from fracdnn.training import together


@dataclass(frozen=True)
class Reading:
    """A model's file, and a table to be read by one process or by those that torchrun started, each its share."""

    path: Path
    source: str
    encoding: str
    sheet: str | None
    timeout: float
    unseen: dict[str, Strays] = field(default_factory=dict)

    @contextmanager
    def opened(self) -> Iterator[TableModel]:
        check_encoding(self.encoding)
        with process_group(self.timeout, self.source), together.interrupts_noted():
            with together.joint("loading the model"):
                read_model(self.path)
                model = load(self.path)
                content = self.path.read_bytes()
            together.check_same(model=content)
            yield model

    def features(self, model: TableModel, part: "pl.DataFrame", first_row: int) -> Encoded:
        found = model.features(part, first_row=first_row)
        for name, cells in found.unseen.items():
            self.unseen[name] = self.unseen.get(name, Strays()).merged(cells)
        return replace(found, unseen={})

    def tell_unseen(self, model: TableModel) -> None:
        """Of all processes: how many cells held a category that training has not seen."""
        mine = json.dumps({name: astuple(cells) for name, cells in self.unseen.items()})
        whole: dict[str, Strays] = {}
        for text in together.from_each(mine, "the new categories"):
            for name, (n, examples) in json.loads(text).items():
                whole[name] = whole.get(name, Strays()).merged(Strays(n, tuple(examples)))
        for note in model.encoding.unseen_notes(whole):
            say(f"warning: {note}")


def predict(reading: Reading, out: str, keep: list[str], interval: float | None) -> None:
    """The first process writes."""
    with reading.opened() as model:
        if interval is not None:
            shortage = model.estimator._held_out_scores(interval, "interval").shortage(interval)
            if shortage and not model.is_classifier and together.is_first():
                say(f"warning: {shortage}")
        together.check_same(options=repr((out, keep, interval, reading.encoding, reading.sheet)))
        made = in_order(_predictions(reading, model, keep, interval))
        with together.joint("writing predictions"), closing(made) as parts:
            if not together.is_first():
                for _ in parts:
                    pass  # the first rank has them
            elif out == "-":
                for text in _texts(parts, ","):
                    sys.stdout.buffer.write(text)
                    sys.stdout.buffer.flush()
            else:
                with written(Path(out)):
                    rows = _write(Path(out), parts)
                say(f"{count(rows, 'prediction')}: {out}")
        reading.tell_unseen(model)


def _texts(parts: "Iterator[pl.DataFrame]", separator: str) -> Iterator[bytes]:
    """As text, for Python to write: Polars tells of a closed pipe in its own way, and loses Ctrl-C."""
    for place, part in enumerate(parts):
        yield part.write_csv(include_header=place == 0, separator=separator).encode()


def _predictions(
    reading: Reading, model: TableModel, keep: list[str], interval: float | None
) -> "Iterator[pl.DataFrame | None]":
    """For each round the predictions of what is here: kept columns, the prediction, the probability of each class; with
    an interval, its ends, or the classes that are plausible.
    """
    classes = model.estimator.classes_ if model.is_classifier else ()
    ends = [] if interval is None else ["plausible"] if model.is_classifier else ["lower", "upper"]
    made = ["prediction", *ends, *(f"probability_{name}" for name in classes)]
    for name in keep:
        if name in made:
            raise TableError(f"--id must not name a column of the predictions, got {name!r}; rename it in the table")

    def predicted(part: "pl.DataFrame", first_row: int) -> "pl.DataFrame":
        check_columns(keep, part.columns)
        X = reading.features(model, part, first_row)
        if not model.is_classifier:
            shares = [] if interval is None else [0.5 - interval / 2, 0.5 + interval / 2]
            answers = [model.estimator.predict(X), *(model.estimator.predict_quantiles(X, shares).T if shares else ())]
        else:
            probabilities = model.estimator.predict_proba(X)
            answers = [classes[probabilities.argmax(1)], *probabilities.T]
            if interval is not None:
                sets = model.estimator.predict_sets(X, interval)
                answers.insert(1, [" | ".join(map(str, classes[each])) for each in sets])
        return pl.DataFrame({name: part[name] for name in keep} | dict(zip(made, answers, strict=True)))

    numbers = [name for name in model.encoding.number_names if name not in keep]
    for parts in parts_here(reading.source, numbers, reading.encoding, reading.sheet):
        with together.joint("predicting"):
            found = [predicted(*each) for each in parts]
            frame = pl.concat(found) if found else None
        yield frame


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


def evaluate(reading: Reading, *, as_json: bool) -> None:
    """The first process talks."""
    with reading.opened() as model:
        together.check_same(options=repr((reading.encoding, reading.sheet)))
        scores = _scored(reading, model)
        reading.tell_unseen(model)
        if not together.is_first():
            return
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


def _scored(reading: Reading, model: TableModel) -> Scores:
    scores, n_missing, learned = scores_of(model), 0, np.zeros(2, dtype=np.int64)
    known = model.details.get("rows_learned")
    for parts in parts_here(reading.source, [], reading.encoding, reading.sheet):
        with together.joint("predicting"):
            for part, first_row in parts:
                check_target_name(model.target, part.columns)
                target = target_column(part, model.target)
                n_missing += target.null_count()
                if target.count():
                    y = true_answers(model, target.drop_nulls())
                    X = reading.features(model, part.filter(target.is_not_null()), first_row)
                    scores = scores.merged(scores.of(model.estimator, X, y))
                    learned += rows_seen(known, X.inputs) if known else 0
    scores = over_ranks(scores)
    n_missing = int(together.total(torch.tensor(n_missing), "the number of rows"))
    if not scores.rows:
        raise no_values(model.target)
    n_seen, n_known = together.total(torch.from_numpy(learned), "the number of rows").tolist()
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

    check_encoding(encoding)
    path = run / MODEL if run.is_dir() else run
    read_model(path)
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
    features, values, _ = split_target(read_table(source, encoding if data else ENCODING, sheet), model.target)
    X, y = replace(model.features(features), unseen={}), true_answers(model, values)
    details = {"target": model.target, "rows shown": source, "trained on": str(model.details.get("source", "-"))}
    title = f"{model.target} from {count(len(model.encoding.columns), 'column')}"
    columns, versions = model.details.get("columns", []), model.details.get("versions")
    left = [features[name] for name in model.details.get("left_out", ()) if name in features.columns]
    ids = next((column.to_list() for column in left if column.n_unique() == len(column)), None)
    about: dict[str, Any] = {"title": title, "details": details, "columns": columns, "trained_with": versions}
    about["suspicions"] = model.details.get("suspicions", [])
    with written(out):
        write_report(out, model.estimator, X, y, ids=ids, **about)
    say(f"report: {out}")
