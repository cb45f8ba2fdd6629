"""What `fracdnn train` leaves behind: a model file, a summary, in the folder of a run the rows held out."""

import hashlib
import json
from typing import Any

import typer

from fracdnn.cli.messages import tell_facts, written
from fracdnn.cli.places import HELD_OUT, Places, place_for
from fracdnn.columns.cells import has_no_text
from fracdnn.columns.late import pl
from fracdnn.columns.words import listed
from fracdnn.files import write_whole
from fracdnn.report.texts import SCORES, number
from fracdnn.tabular.model import TableModel


def write_results(model: TableModel, held_out: "pl.DataFrame", places: Places, remedy: str) -> dict[str, str]:
    """The paths by what is there; an interrupted training replaces no model, which is `kept` (see `place_for`).

    The model comes last: where it is, all is there. `remedy` is what to do where the disk is full.
    """
    paths, run, interrupted = {}, places.run, model.details["summary"]["status"] == "interrupted"
    if run is not None and not (interrupted and (run / HELD_OUT).exists()):  # those of the model that is kept
        with written(run, remedy):
            kept = held_out.select(column for column in held_out if not has_no_text(column.dtype))  # as text can be
            rows = kept.write_csv().encode()
            model.details["held_out"] = hashlib.sha256(rows).hexdigest()
            write_whole(run / HELD_OUT, lambda path: path.write_bytes(rows))
    for path in places.models:
        place = place_for(path, interrupted)
        with written(path, remedy):
            paths["model"] = str(model.save(place))
        if place != path:
            paths["kept"] = str(path)
    if run is not None:
        paths["run"] = str(run)
    return paths


def tell(summary: dict[str, Any], paths: dict[str, str], as_json: bool) -> None:
    """Print what a model reached and where it is."""
    if as_json:
        typer.echo(json.dumps({**summary, **paths}))
        return
    if summary.get("verdict"):
        typer.echo(summary["verdict"])
    baseline, part = summary["baseline"], "test" if summary["test"] else "training"
    if part == "test":
        name, value = next(iter(summary["training"].items()))
        typer.echo(f"{SCORES[name]} on the training rows ({summary['rows']['training']:,}): {number(value)}")
    constants = {"accuracy": f"always {baseline.get('class')!r}", "log_loss": "class frequencies"}
    constants["RMSE"] = f"always the mean, {number(baseline.get('mean'))}"
    for place, (name, value) in enumerate(summary[part].items()):
        rows = f" ({summary['rows'][part]:,})" if place == 0 else ""
        compared = f"; baseline ({constants[name]}): {number(baseline[name])}" if name in baseline else ""
        typer.echo(f"{SCORES[name]} on the {part} rows{rows}: {number(value)}{compared}")
    typer.echo(f"order: {number(summary['order'])} ({'learned' if summary['order_learned'] else 'fixed'})")
    if summary["left_out"]:
        typer.echo(f"columns left out: {listed(summary['left_out'])}")
    tell_facts(paths)
