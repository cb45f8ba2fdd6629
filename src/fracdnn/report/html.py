"""The report of a fitted estimator: one HTML file with all it needs in it, to be opened anywhere."""

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from fracdnn.estimators.parameters import LOCAL_PARAMETERS
from fracdnn.files import write_whole
from fracdnn.report.calibration import reliability_plot
from fracdnn.report.confusion import confusion_plot
from fracdnn.report.dependence import dependence_plot
from fracdnn.report.dominance import warning
from fracdnn.report.flow import flow_plot
from fracdnn.report.headline import headline, tiles
from fracdnn.report.importance import Importances, importance_plot, measured
from fracdnn.report.memory import memory_plot
from fracdnn.report.network import network_facts
from fracdnn.report.planes import region_plot
from fracdnn.report.plots import Plot, Table
from fracdnn.report.ranking import ranking_plots
from fracdnn.report.residuals import prediction_plot, residual_plot
from fracdnn.report.subject import Subject, subject_of
from fracdnn.report.texts import is_number
from fracdnn.report.training import gradient_plot, training_plot
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
    left_out: Mapping[str, str] | None = None,
    trained_with: Mapping[str, str] | None = None,
) -> Path:
    """Write what a fitted estimator does with held-out samples, how it was trained and what it remembers.

    X [n, n_features] and y are samples that the training has not seen; `details` (settings, file names …) are shown as
    a table; `columns` says which features (numbers from 0 on) were made of a column, such as a category's: their
    importance is that of the column; `left_out` says of other columns why the model does without them;
    `trained_with` are the versions of the training, where they may be others than today's. The file, about 5 to 7 MB,
    holds its scripts and data, asks for nothing from the network, and is whole or absent. Scatter plots show at most
    2,000 samples, and what takes long is measured on as few as its caption says; the figures at the top count all.
    """
    subject = subject_of(estimator, X, y, columns)
    importances = measured(subject)
    plots = _plots(subject, importances, left_out or {})
    tables = _tables(subject, details or {}, trained_with or {})
    page = _page(subject, title, warning(subject, importances), plots, tables)
    return write_whole(Path(path), lambda temporary: temporary.write_text(page, encoding="utf-8"))


def _page(subject: Subject, title: str, warned: str, plots: list[Plot], tables: dict[str, dict[str, str]]) -> str:
    from jinja2 import Environment
    from plotly.offline import get_plotlyjs

    # Values are escaped unless they are marked as safe; what a browser runs is named by its hash, so nothing else runs.
    scripts = [get_plotlyjs(), _resource("report.js")]
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.tests["number"] = is_number
    return environment.from_string(_resource("report.html")).render(
        title=title,
        kind="Classification" if subject.classifies else "Regression",
        style=_resource("report.css"),
        headline=headline(subject),
        warned=warned,
        tiles=tiles(subject),
        plots=plots,
        tables=tables,
        scripts=scripts,
        hashes=[_hash(script) for script in scripts],
        data=_as_json({each.name: _drawn(each) for plot in plots for each in plot.drawn}),
    )


def _plots(subject: Subject, importances: Importances, left_out: Mapping[str, str]) -> list[Plot]:
    """What there is to see of this model and these samples, the most important first."""
    history, n_members = subject.estimator.history_, len(subject.estimator.members_)
    if subject.classifies:
        answers = [confusion_plot(subject), reliability_plot(subject), *ranking_plots(subject)]
    else:
        answers = [prediction_plot(subject), residual_plot(subject)]
    regions = region_plot(subject)
    # Regions show all that there is to one or two features.
    depends = dependence_plot(subject, importances) if regions is None else regions
    reasons = [importance_plot(subject, importances), depends, _without_plot("left-out", "Columns left out", left_out)]
    network = [flow_plot(subject), memory_plot(subject)]
    facts = _without_plot("network", "The network", network_facts(subject))
    training = [training_plot(history, n_members), gradient_plot(history), facts]
    return [plot for plot in (*answers, *reasons, *network, *training) if plot is not None]


def _without_plot(name: str, heading: str, facts: Mapping[str, str]) -> Plot | None:
    """A table alone; None without facts."""
    table = Table([], [[str(word), str(text)] for word, text in facts.items()])
    return Plot(name, heading, "", table=table) if facts else None


def _tables(subject: Subject, details: Mapping[str, str], trained_with: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """By heading, without those that are empty; the last is of little interest to most readers."""
    parameters = subject.estimator.get_params(deep=False)
    settings = {"estimator": type(subject.estimator).__name__}
    settings |= {name: str(value) for name, value in parameters.items() if name not in _NOT_SHOWN}
    tables = {
        "Details": {str(name): str(value) for name, value in details.items()},
        "Versions": _versions(trained_with),
        "Settings": settings,
    }
    return {heading: rows for heading, rows in tables.items() if rows}


def _versions(trained_with: Mapping[str, str]) -> dict[str, str]:
    """Those of the training, and of the report where it was made with others."""
    now = versions()
    trained = dict(trained_with) or now
    others = {name: now[name] for name in now if trained.get(name, now[name]) != now[name]}
    return {str(n): str(v) + (f" (report: {others[n]})" if n in others else "") for n, v in trained.items()}


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
