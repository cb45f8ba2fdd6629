"""The report of a fitted estimator: one HTML file with all it needs in it, to be opened anywhere."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fracdnn.files import write_whole
from fracdnn.parameters import LOCAL_PARAMETERS
from fracdnn.report.drawings import pictures
from fracdnn.report.importance import measured
from fracdnn.report.network_facts import network_facts
from fracdnn.report.subject import Subject, subject_of
from fracdnn.report.texts import is_number
from fracdnn.report.trust import advice, class_table, headline, outlier_table, tiles
from fracdnn.version import versions


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
    its own; `suspicions` are warnings of `fracdnn train`, with remedies behind "; ". The file requests nothing from
    the network, needs no JavaScript, and is whole or absent.
    """
    from jinja2 import Environment, PackageLoader

    subject = subject_of(estimator, X, y, ids)
    importances = measured(subject)
    # Values are escaped unless they are marked as safe, as pictures are, in which Matplotlib escapes texts.
    loader = PackageLoader("fracdnn.report", "")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.tests["number"] = is_number
    page = environment.get_template("report.html").render(
        title=title,
        kind="Classification" if subject.classifies else "Regression",
        headline=headline(subject),
        trust=advice(subject, importances, columns, suspicions),
        tiles=tiles(subject),
        pictures=pictures(subject, importances),
        tables=_tables(subject, details or {}, columns, trained_with or {}),
    )
    return write_whole(Path(path), lambda temporary: temporary.write_text(page, encoding="utf-8"))


def _tables(
    subject: Subject, details: Mapping[str, str], columns: Sequence[Mapping[str, str]], trained_with: Mapping[str, str]
) -> dict[str, list[Any]]:
    """Return rows of texts by heading, without tables that are empty."""
    estimator, now = subject.estimator, versions()
    described = [["left out" if text == "unused" else text for text in row.values()] for row in columns]
    settings = {"estimator": type(estimator).__name__} | estimator.get_params(deep=False)
    tables: dict[str, list[Any]] = {
        "Classes": class_table(subject) if subject.classifies else [],
        "Outliers": [] if subject.classifies else outlier_table(subject),
        "How each column is used": [[name.capitalize() for name in columns[0]], *described] if columns else [],
        "The network": list(network_facts(subject).items()),
        "Details": list(details.items()),
        "Versions": [
            (name, version if now.get(name, version) == version else f"{version} (report: {now[name]})")
            for name, version in (trained_with or now).items()
        ],
        "Settings": [(name, str(value)) for name, value in settings.items() if name not in LOCAL_PARAMETERS],
    }
    return {heading: rows for heading, rows in tables.items() if rows}
