"""What `fracdnn train` leaves behind: a model file, and in the folder of a run also the rows that were held out."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fracdnn.cli.messages import written
from fracdnn.files import write_whole
from fracdnn.tabular.cells import has_no_text, parsed
from fracdnn.tabular.model import TableModel

if TYPE_CHECKING:
    import polars as pl


def write_results(
    model: TableModel,
    test_table: "pl.DataFrame",
    y_test: np.ndarray,
    *,
    out: Path | None,
    run: Path | None,
    interrupted: bool,
) -> dict[str, str]:
    """The paths by what is there; an interrupted training replaces no model, which is `kept` (see `place_for`)."""
    paths = {}
    for path in (out, None if run is None else run / "model.fracdnn"):
        if path is not None:
            place = place_for(path, interrupted)
            with written(path):
                paths["model"] = str(model.save(place))
            if place != path:
                paths["kept"] = str(path)
    if run is not None:
        held_out = run / "held-out.csv"
        if not (interrupted and held_out.exists()):  # those of the model that is kept
            with written(run):
                write_whole(held_out, _held_out(model, test_table, y_test).write_csv)
        paths["run"] = str(run)
    return paths


def place_for(path: Path, interrupted: bool) -> Path:
    """Where to write a model: beside one that is there, NAME.interrupted.fracdnn, unless the training was finished."""
    if interrupted and path.is_file():
        return path.with_name(f"{path.stem}.interrupted{path.suffix}")
    return path


def _held_out(model: TableModel, test_table: "pl.DataFrame", y_test: np.ndarray) -> "pl.DataFrame":
    """All columns that a text file can hold, with cells as they were, and the target as it was learned."""
    import polars as pl

    numbers = model.preparation.number_names
    columns = [
        _readable(column) if column.name in numbers else column
        for column in test_table
        if not has_no_text(column.dtype)
    ]
    target = pl.Series(model.target, y_test)
    if target.dtype.is_float() and bool(((target == target.round()) & (target.abs() < 2**53)).all()):
        target = target.cast(pl.Int64)
    return pl.DataFrame([*columns, target])


def _readable(column: "pl.Series") -> "pl.Series":
    """Numbers as they were, unless a part of the table would be read in another way: truth values, decimal commas."""
    import polars as pl

    if column.dtype == pl.Boolean:
        return column.cast(pl.Int8)
    has_comma = column.dtype == pl.String and column.str.contains(",", literal=True).any()
    return parsed(column) if has_comma else column
