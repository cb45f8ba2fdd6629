"""The report of a fitted estimator: one HTML file with all it needs in it, to be opened anywhere."""

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from fracdnn.estimators.parameters import LOCAL_PARAMETERS
from fracdnn.estimators.reliability import BINS
from fracdnn.files import write_whole
from fracdnn.report.flow import flow_plot
from fracdnn.report.importance import importance_plot
from fracdnn.report.planes import region_plot
from fracdnn.report.plots import (
    Plot,
    confusion_plot,
    gradient_plot,
    memory_plot,
    prediction_plot,
    reliability_plot,
    training_plot,
)
from fracdnn.report.subject import Subject, subject_of
from fracdnn.version import versions

_NOT_SHOWN = (*LOCAL_PARAMETERS, "checkpoint_every")


def write_report(
    path: str | os.PathLike,
    estimator: Any,
    X: Any,
    y: Any,
    *,
    title: str,
    details: dict[str, str] | None = None,
    columns: Mapping[str, Sequence[int]] | None = None,
) -> Path:
    """Write what a fitted estimator does with held-out samples, how it was trained and what it remembers.

    X [n, n_features] and y are samples that the training has not seen; `details` (settings, file names …) are shown as
    a table; `columns` says which features (numbers from 0 on) were made of a column, such as a category's: their
    importance is that of the column. The file, about 5 to 7 MB, holds its scripts and data, asks for nothing from the
    network, and is whole or absent. Scatter plots show at most 2,000 samples; the figures at the top count all.
    """
    page = _page(subject_of(estimator, X, y, columns), title, details or {})
    return write_whole(Path(path), lambda temporary: temporary.write_text(page, encoding="utf-8"))


def _page(subject: Subject, title: str, details: dict[str, str]) -> str:
    from jinja2 import Environment
    from plotly.offline import get_plotlyjs

    plots = _plots(subject)
    # Values are escaped unless they are marked as safe; what a browser runs is named by its hash, so nothing else runs.
    scripts = [get_plotlyjs(), _resource("report.js")]
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(_resource("report.html"))
    return template.render(
        title=title,
        kind="Classification" if subject.classifies else "Regression",
        style=_resource("report.css"),
        tiles=_tiles(subject),
        plots=plots,
        tables=_tables(subject, details),
        scripts=scripts,
        hashes=[_hash(script) for script in scripts],
        data=_as_json({plot.name: _drawn(plot) for plot in plots if not plot.note}),
    )


def _plots(subject: Subject) -> list[Plot]:
    history = subject.estimator.history_
    classes = subject.classifies
    answers = [confusion_plot(subject), reliability_plot(subject)] if classes else [prediction_plot(subject)]
    shape = [*answers, importance_plot(subject), region_plot(subject), flow_plot(subject), memory_plot(subject)]
    return [*shape, training_plot(history), gradient_plot(history)]


def _tiles(subject: Subject) -> list[dict[str, str]]:
    """The figures at the top: a word, a value, and what to compare it with."""
    estimator, history = subject.estimator, subject.estimator.history_
    order = f"learned, from {estimator.order:.4g}" if estimator.learn_order else "fixed"
    n_iterations = len(history.records)
    shape = [
        _tile("Held-out samples", f"{subject.n:,}", f"{len(subject.features)} feature{_s(len(subject.features))}"),
        _tile("Order", f"{estimator.order_:.4g}", order),
        _tile("Layers", f"{subject.n_layers}", f"of width {subject.width}"),
        _tile("Training", history.status or "unknown", f"{n_iterations:,} iteration{_s(n_iterations)}"),
    ]
    if subject.classifies:
        return [*_class_tiles(subject), *shape]
    r2 = "undefined" if subject.r2 is None else f"{subject.r2:.4f}"
    deviation = float(subject.y.std(axis=0).mean())
    rmse = _tile("RMSE", f"{subject.rmse:.4g}", f"standard deviation of y: {deviation:.4g}")
    return [_tile("R²", r2, "1 is exact, 0 no better than the mean"), rmse, *shape]


def _class_tiles(subject: Subject) -> list[dict[str, str]]:
    shares = np.bincount(subject.codes) / subject.n
    loss = "undefined" if subject.log_loss is None else f"{subject.log_loss:.4f}"
    entropy = -float((shares[shares > 0] * np.log(shares[shares > 0])).sum())
    return [
        _tile("Accuracy", f"{subject.accuracy:.1%}", f"largest class alone: {shares.max():.1%}"),
        _tile("Log-loss", loss, f"shares of the classes alone: {entropy:.4f}"),
        _tile("Calibration error", f"{subject.reliability.error:.4f}", f"ECE of {BINS} bins; 0 is exact"),
    ]


def _tile(word: str, value: str, beside: str) -> dict[str, str]:
    kind = "figure" if value[:1].isdigit() or value.startswith("-") else "words"
    return {"word": word, "value": value, "beside": beside, "kind": kind}


def _s(n: int) -> str:
    return "" if n == 1 else "s"


def _tables(subject: Subject, details: dict[str, str]) -> dict[str, dict[str, str]]:
    parameters = subject.estimator.get_params(deep=False)
    settings = {"estimator": type(subject.estimator).__name__}
    settings |= {name: str(value) for name, value in parameters.items() if name not in _NOT_SHOWN}
    tables = {"Versions": versions(), "Settings": settings}
    return {"Details": {str(k): str(v) for k, v in details.items()}, **tables} if details else tables


def _drawn(plot: Plot) -> dict[str, Any]:
    return {
        "data": plot.data,
        "layout": plot.layout,
        "themes": plot.themes,
        "narrow": plot.narrow,
        "states": plot.states,
    }


def _as_json(document: Any) -> str:
    """JSON that may stand inside a script element: it holds no character with which a tag could end or begin."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _resource(name: str) -> str:
    return files("fracdnn.report").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """As a content security policy names an allowed script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
