"""What `fracdnn train` leaves behind: a model file, and in the folder of a run also the rows that were held out."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fracdnn.cli.messages import written
from fracdnn.files import write_whole
from fracdnn.tabular.model import TableModel
from fracdnn.tabular.preparation import numbers_in

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
    import polars as pl

    numbers = [numbers_in(test_table[name]) for name in model.preparation.number_names]
    columns = test_table.select(model.preparation.names).with_columns(*[n for n in numbers if n is not None])
    return columns.with_columns(pl.Series(model.target, y_test))
