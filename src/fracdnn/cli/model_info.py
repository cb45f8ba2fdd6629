"""`fracdnn info`: what a model file says of itself, without torch and scikit-learn, which take seconds to import."""

import json
from pathlib import Path
from typing import Any

import typer

from fracdnn.cli.messages import fail, show_table, tell_facts
from fracdnn.container import checked, read_document
from fracdnn.exceptions import FileContentError
from fracdnn.extras import require
from fracdnn.tables.column import Categories, Column, Dates, Numbers, from_document
from fracdnn.tables.reading import ENDINGS
from fracdnn.tables.words import listed


def read_model(path: Path) -> dict[str, Any]:
    """What the file of a table's model holds, or what is wrong with it: a table, or an estimator saved in Python."""
    try:
        file = read_document(path, "model", plain=True)
    except FileContentError:
        if not str(path).lower().endswith(ENDINGS):
            raise
        fail(
            f"{path} must be a model file, got a table; train a model first: fracdnn train {path} "
            f"--target COLUMN --out model.fracdnn"
        )
    if "table" not in file:
        fail(f"{path} must be a model of a table, got an estimator saved in Python; use it there, or run fracdnn train")
    return file


def info(path: Path, *, as_json: bool) -> None:
    require("sklearn")  # as everything else that takes a model does
    file = read_model(path)
    with checked(path, "model"):
        details, history, network = file["table"]["details"], file["history"], file["network"]["options"]
        order = network["order"]
        if network["learn_order"]:  # the mean of all members, which the training told
            order = (details.get("summary") or {}).get("order")
        if order is None:
            from fracdnn.estimators.table_model import load

            order = load(path).estimator.order_
        document = {
            "estimator": file["estimator"],
            "target": file["table"]["target"],
            "classes": file["classes"]["values"] if "classes" in file else None,
            "columns": file["encoding"],
            "network": {**network, "order": order},
            "members": 1 + len(file["members"]),
            "temperature": file["temperature"],
            "training": {"iterations": len(history["records"]), "loss": file["loss"], "status": history["status"]},
            "details": {name: value for name, value in details.items() if name != "rows_learned"},
        }
        columns, lines = [from_document(column) for column in file["encoding"]], _lines(document)
    if as_json:
        typer.echo(json.dumps(document))
        return
    tell_facts(lines)
    rows = ([column.name, column.kind, _column_values(column)] for column in columns)
    show_table("columns it expects, in any order", ("column", "kind", "values"), rows, justify="left")


def _lines(document: dict[str, Any]) -> dict[str, str]:
    from fracdnn.report.texts import SCORES, number

    network, training, details = document["network"], document["training"], document["details"]
    scores = details.get("summary") or {}
    width, learned = network["width"] or network["n_features"], " (learned)" if network["learn_order"] else ""
    lines = {
        "model": f"{document['estimator']} for {document['target']!r}",
        "network": f"{network['n_layers']} layers of width {width}, {network['activation']}",
        "members": str(document["members"]),
        "order": f"{network['order']:g}{learned}",
        "training": f"{training['iterations']} iterations, loss {number(training['loss'])}; {training['status']}",
        "temperature": "" if document["temperature"] is None else number(document["temperature"]),
        "classes": listed([str(name) for name in document["classes"] or ()]),
    }
    for part in ("training", "test"):
        found = (scores.get(part) or {}).items()
        lines[f"{part} rows"] = ", ".join(f"{SCORES[name]} {number(value)}" for name, value in found)
    lines["versions"] = ", ".join(f"{name} {version}" for name, version in details.get("versions", {}).items())
    return {name: text for name, text in lines.items() if text}


def _column_values(column: Column) -> str:
    if isinstance(column, Categories):
        return listed(column.categories, most=8) + (", others" if column.others else "")
    if isinstance(column, Dates):
        return "times of day" if column.order == "clock" else f"since {column.first}: {', '.join(column.parts)}"
    return f"median {column.median:g}" if isinstance(column, Numbers) else column.why
