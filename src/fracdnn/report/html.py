"""The report of a fitted estimator: one HTML file with all it needs in it, to be opened anywhere."""

import json
import os
import zlib
from base64 import b64encode, b85encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from fracdnn.files import write_whole
from fracdnn.parameters import LOCAL_PARAMETERS
from fracdnn.report.answers import confusion_plot, prediction_plot, reliability_plot, roc_plot
from fracdnn.report.importance import Importances, dependence_plot, importance_plot, measured
from fracdnn.report.inside import flow_plot, network_facts, region_plot, training_plot
from fracdnn.report.plots import Plot
from fracdnn.report.subject import Subject, subject_of
from fracdnn.report.texts import is_number
from fracdnn.report.trust import advice, headline, tiles
from fracdnn.version import versions

_NOT_SHOWN = (*LOCAL_PARAMETERS, "checkpoint_every")
# What the script draws of a plot.
_DRAWN = ("data", "layout", "states")


def write_report(
    path: str | os.PathLike,
    estimator: Any,
    X: Any,
    y: Any,
    *,
    title: str,
    details: dict[str, str] | None = None,
    columns: Sequence[Mapping[str, str]] = (),
    trained_with: Mapping[str, str] | None = None,
    ids: Sequence[object] | None = None,
    suspicions: Sequence[str] = (),
) -> Path:
    """Write what a fitted estimator does with held-out samples, and how it was trained.

    X [n, n_features] and y are samples that the training has not seen; `details` (settings, file names …) are shown as
    a table; `columns` are rows that say what was understood of each column; `trained_with` are the versions of the
    training, where they may be others than today's; `ids` name the rows of X where it is no DataFrame with an index of
    its own; `suspicions` are what `fracdnn train` warned of, with remedies behind "; ". The file, about 1.9 MB,
    requests nothing from the network, and is whole or absent. Scatter plots show at most 1,000 samples; the figures at
    the top count all.
    """
    from jinja2 import Environment, PackageLoader
    from plotly.offline import get_plotlyjs

    subject = subject_of(estimator, X, y, ids)
    importances = measured(subject)
    plots = _plots(subject, importances, columns)
    # Values are escaped unless they are marked as safe; what a browser runs is named by its hash, so nothing else runs.
    loader, library = PackageLoader("fracdnn.report", ""), get_plotlyjs()
    drawn = {each.name: {key: getattr(each, key) for key in _DRAWN} for plot in plots for each in plot.drawn}
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    script = loader.get_source(environment, "report.js")[0]
    environment.tests["number"] = is_number
    page = environment.get_template("report.html").render(
        title=title,
        kind="Classification" if subject.classifies else "Regression",
        headline=headline(subject),
        trust=advice(subject, importances, columns, suspicions),
        tiles=tiles(subject),
        plots=plots,
        tables=_tables(subject, details or {}, trained_with or {}),
        script=script,
        hashes=["sha256-" + b64encode(sha256(each.encode()).digest()).decode() for each in (library, script)],
        packed={
            "plotly": packed(library),
            "report-data": packed(json.dumps(drawn, separators=(",", ":"), allow_nan=False)),
        },
    )
    return write_whole(Path(path), lambda temporary: temporary.write_text(page, encoding="utf-8"))


def packed(text: str) -> str:
    """Deflated, in the base 85 of RFC 1924 without "<", which may stand in a script: a browser unpacks it offline."""
    return b85encode(zlib.compress(text.encode(), 9)).decode().replace("<", ",")


def _plots(subject: Subject, importances: Importances, columns: Sequence[Mapping[str, str]]) -> list[Plot]:
    """What there is to see of this model and these samples, the most important first."""
    drawn = [confusion_plot, reliability_plot, roc_plot] if subject.classifies else [prediction_plot]
    regions = region_plot(subject)
    # Regions show all that there is to two features.
    depends = dependence_plot(subject, importances) if regions is None else regions
    facts = Plot("network", "The network", table=network_facts(subject))
    plots = [*(draw(subject) for draw in drawn), importance_plot(subject, importances), depends]
    if columns:
        rows = [["left out" if text == "unused" else text for text in row.values()] for row in columns]
        table = [[heading.capitalize() for heading in columns[0]], *rows]
        plots.append(Plot("columns", "How each column is used", table=table, wide=True))
    plots += [flow_plot(subject), training_plot(subject), facts]
    for plot in plots:
        plot.wide |= bool(plot.parts or plot.note)
    facts.wide = sum(not plot.wide for plot in plots) % 2 == 1  # else the last row of two would hold it alone
    return plots


def _tables(subject: Subject, details: Mapping[str, str], trained_with: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """By heading, without those that are empty; the last is of little interest to most readers."""
    parameters, now = subject.estimator.get_params(deep=False), versions()
    trained = {  # with what, and the report where it was made with others
        name: version if now.get(name, version) == version else f"{version} (report: {now[name]})"
        for name, version in (trained_with or now).items()
    }
    settings = {"estimator": type(subject.estimator).__name__} | parameters
    shown = {name: str(value) for name, value in settings.items() if name not in _NOT_SHOWN}
    tables = {"Details": {str(name): str(value) for name, value in details.items()}, "Versions": trained}
    return {heading: rows for heading, rows in (tables | {"Settings": shown}).items() if rows}
