"""`fracdnn fit`: a table of times or frequencies and values in, parameters with intervals, plots and a verdict out."""

import io
import json
import math
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import typer

from fracdnn.cli.messages import say, written
from fracdnn.exceptions import InvalidArgumentError, TableError
from fracdnn.extras import require
from fracdnn.files import write_whole
from fracdnn.fitting import Body, Circuit, FitResult, fit
from fracdnn.fitting.named_models import MODELS
from fracdnn.tables.reading import read_table


def run_fit(
    data: str,
    given: dict[str, str | None],
    sigma: str | None,
    encoding: str,
    out: Path | None,
    save: Path | None,
    *,
    as_json: bool,
    **options: Any,
) -> None:
    """Fit the one that is `given` of circuit, body and model."""
    require("lmfit", "jinja2")
    given = {name: text for name, text in given.items() if text is not None}
    if len(given) != 1:
        raise typer.BadParameter(f"pass exactly one of --circuit, --body and --model, got {len(given)}")
    [(kind, text)] = given.items()
    names, columns = _numbers(data, encoding)
    model, start, t, values = _posed(kind, str(text), columns, has_sigma=sigma is not None)
    error: Any = ("modulus" if np.iscomplexobj(values) else None) if sigma is None else sigma
    if sigma in names:
        error = columns[names.index(sigma)]
    elif sigma not in (None, "modulus"):
        error = _number(sigma, comma=False)
        if math.isnan(error):
            raise InvalidArgumentError(
                f"--sigma must be a number, 'modulus' or one of the columns {', '.join(names)}, got {sigma!r}; "
                f"pass one of these"
            )
    result = fit(model, start, t, values, error, **options)
    if out is not None:
        with written(out):
            page = _page(f"{text}, {Path(data).name}", result)
            write_whole(out, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    if save is not None:
        with written(save):
            result.save(save)
    table = result.summary().partition("\nwarning:")[0]
    typer.echo(json.dumps(_document(result), allow_nan=False) if as_json else table)
    for warning in result.warnings:
        say(warning, always=True)
    if out is not None:
        say(f"report: {out}")


def _posed(kind: str, text: str, columns: list[np.ndarray], *, has_sigma: bool) -> tuple[Any, Any, np.ndarray, Any]:
    """Model, start values, times or angular frequencies, and data."""
    t, values, n = columns[0], columns[1], len(columns)
    if kind == "model":
        if text not in MODELS:
            raise InvalidArgumentError(
                f"--model must be one of {', '.join(MODELS)}, got {text!r}; for others call fracdnn.fit"
            )
        if n > 2 and not has_sigma:
            raise TableError(
                f"--model {text} must have two columns, times and values, got {n}; drop the "
                f"others, or name the one of standard deviations by --sigma"
            )
        if t.min() < 0:
            raise TableError(
                f"the first column must hold times from 0 on, got {t.min():g}; subtract the time of the start"
            )
        if text == "dose" and values.max() <= 0:
            raise TableError(f"--model dose must have a positive value, got at most {values.max():g}; change the sign")
        model, guess = MODELS[text]
        return model, guess(t, values), t, values
    if (t <= 0).any():
        row = int(np.argmax(t <= 0))
        raise TableError(
            f"the first column must hold positive frequencies or times, got {t[row]:g} in row {row + 1}; drop that row"
        )
    if kind == "circuit":
        if n < 3:
            raise TableError(f"a spectrum must have frequency, real and imaginary part, got {n} columns; add one")
        circuit, omega = Circuit(text), 2 * math.pi * t
        values = values + 1j * columns[2]
        return circuit.impedance, circuit.guess(omega, values), omega, values
    body = Body(text)
    if n >= 3 and not has_sigma:
        values = values + 1j * columns[2]
        return body.modulus, body.guess(t, values), t, values
    return body.relaxation, body.guess(1.0 / t, values), t, values


def _numbers(source: str, encoding: str) -> tuple[list[str], list[np.ndarray]]:
    """Names of columns and their numbers; a first row of numbers is no heading."""
    table = read_table(source, encoding)
    names, columns = table.columns, [column.to_list() for column in table.iter_columns()]
    texts = [cell for cells in columns for cell in cells if isinstance(cell, str)]
    # "1,017" alone may be a thousand; "0,1" is a decimal comma, unless others have points.
    comma = any(re.search(r",(?!\d{3}$)", text) for text in texts) and not any("." in text for text in texts)
    headless = all(math.isfinite(_number(name, comma)) for name in names)
    if headless:
        columns = [[name, *cells] for name, cells in zip(names, columns, strict=True)]
        names = [f"{place + 1}" for place in range(len(names))]
    if len(columns) < 2:
        raise TableError(
            f"{source} must have two or more columns, times or frequencies first, got {len(columns)}; add one"
        )
    found = [np.array([_number(cell, comma) for cell in cells]) for cells in columns]
    for name, cells, numbers in zip(names, columns, found, strict=True):
        if not np.isfinite(numbers).all():
            row = int(np.isfinite(numbers).argmin())
            raise TableError(
                f"{source} must hold finite numbers only, got {cells[row]!r} in row {row + 1} of column "
                f"{name if headless else repr(name)}; correct or drop that row"
            )
    return names, found


def _number(cell: Any, comma: bool) -> float:
    try:
        return float(cell.replace(",", ".") if comma and isinstance(cell, str) else cell)
    except (TypeError, ValueError):
        return math.nan


def _document(result: FitResult) -> dict[str, Any]:
    """For --json; numbers that are not finite are null."""

    def plain(number: float) -> float | None:
        return float(number) if math.isfinite(number) else None

    intervals = {name: [plain(end) for end in ends] for name, ends in result.intervals.items()}
    rows = {
        name: {"value": value, "error": plain(result.errors[name]), "interval": intervals.get(name, [])}
        for name, value in result.values.items()
    }
    names = ("chi2", "reduced_chi2", "aic", "bic", "n_data", "converged", "warnings")
    return {"parameters": rows, **{name: getattr(result, name) for name in names}}


def _page(title: str, result: FitResult) -> str:
    """One file of HTML with its figure inside, without scripts."""
    from jinja2 import Environment

    picture = io.StringIO()
    result.plot().savefig(picture, format="svg", metadata={"Date": None})
    drawing = picture.getvalue()
    template = files("fracdnn.cli").joinpath("fit.html").read_text(encoding="utf-8")
    page = Environment(autoescape=True, trim_blocks=True).from_string(template)
    return page.render(title=title, result=result, drawing=drawing[drawing.index("<svg") :])
