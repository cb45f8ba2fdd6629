"""May I trust this? What speaks against a model and its scores, and what to do about it."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.stats import binomtest

from fracdnn.columns.words import count
from fracdnn.report.headline import Verdict, r2_interval, verdict
from fracdnn.report.importance import Importances, dominant
from fracdnn.report.residuals import outlier_weight, outliers
from fracdnn.report.subject import Subject
from fracdnn.report.texts import number, share

# Fewer held-out rows, in all and of a class, leave a score uncertain; so much of the squared error is too much.
FEW_ROWS, FEW_OF_CLASS, MUCH = 100, 10, 0.5
MOST_NAMED, LEAST_IDS = 6, 20
_UNFINISHED = {
    "not finite": ("the loss was no longer finite", "a smaller learning rate"),
    "time limit": ("it reached its time limit", "more time"),
    "interrupted": ("it was interrupted", "more time"),
}
# A warning, and what to try.
Findings = Iterator[tuple[str, str]]


def advice(subject: Subject, importances: Importances, columns: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    found = [*_on_columns(subject, importances, columns), *_on_rows(subject), *_on_fit(subject)]
    usual = "Predict new rows, and compare some predictions with what you know."
    if len(subject.columns) > 1:
        usual = f"Check below whether the columns that the model relies on make sense. {usual}"
    return {
        "Warnings": [warning for warning, _ in found] or ["None: no sign of leaks, ids, rare classes or too few rows."],
        "What to try next": [*(remedy for _, remedy in found), usual],
    }


def _named(names: Sequence[object]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(f"“{name}”" for name in names[:MOST_NAMED]) + more


def _on_columns(subject: Subject, importances: Importances, columns: Sequence[Mapping[str, str]]) -> Findings:
    if leak := dominant(subject, importances):
        remedy = f"Check that “{leak}” is known before the target and is not a copy of it; otherwise train without it."
        yield f"Possible leak: column “{leak}” explains nearly everything by itself.", remedy
    if ids := like_ids(subject):
        remedy = f"If it is an id, train again without {_named(ids)}."
        yield f"Suspected id: {_named(ids)} holds a different whole number in each row.", remedy
    rows = [list(row.values()) for row in columns if row.get("kind") == "unused"]
    if left := [row[0] for row in rows if "dropped" not in row[-1]]:
        remedy = "Read below why columns were left out, and bring back those that matter."
        yield f"{count(len(left), 'column')} left out: {_named(left)}.", remedy


def like_ids(subject: Subject) -> list[str]:
    """The columns in use that hold a different whole number in each of 20 rows or more."""
    if subject.n < LEAST_IDS:
        return []
    values = {name: subject.X[:, places[0]] for name, places in subject.columns.items()}
    return [name for name, x in values.items() if (x == np.floor(x)).all() and len(np.unique(x)) == subject.n]


def _on_rows(subject: Subject) -> Findings:
    if subject.n < FEW_ROWS:
        text = f"Few held-out rows: {subject.n}"
        if subject.classifies:
            low, high = binomtest(int((subject.predicted == subject.y).sum()), subject.n).proportion_ci(method="wilson")
            text += f", so the accuracy may be anywhere from {number(low, 2)} to {number(high, 2)}"
        elif subject.varies:
            low, high = r2_interval(subject.y, subject.predicted)
            text += f", so R² may be anywhere from {number(low, 2)} to {number(high, 2)}"
        yield f"{text}.", "Test on more rows: hold out more of them, or use cross-validation."
    if not subject.classifies:
        return
    counts, known = np.bincount(subject.codes, minlength=len(subject.labels)), len(subject.estimator.classes_)
    if rare := [label for label, n in zip(subject.labels[:known], counts, strict=False) if n < FEW_OF_CLASS]:
        remedy = "Collect more rows of rare classes, or merge them: their precision and recall are uncertain."
        yield f"Rare classes, with fewer than {FEW_OF_CLASS} held-out rows: {_named(rare)}.", remedy
    if new := subject.labels[known:]:
        remedy = "Train again with rows of every class."
        yield f"Never in the training rows, so never predicted: {_named(new)}.", remedy


def _on_fit(subject: Subject) -> Findings:
    if verdict(subject) in (Verdict.UNCLEAR, Verdict.NO_BETTER):
        remedy = "Check the target column, add columns that may explain it, or search for better settings."
        yield "The model is not clearly better than a constant answer.", remedy
    if not subject.classifies and (weight := outlier_weight(subject)) > MUCH:
        text = f"{count(int(outliers(subject).sum()), 'outlier')} in {subject.n:,} rows: {share(weight)}"
        remedy = "Check whether the values of the outliers, listed below by row, are right."
        yield f"{text} of the squared error.", remedy
    if subject.estimator.history_.status in _UNFINISHED:
        why, remedy = _UNFINISHED[subject.estimator.history_.status]
        yield f"Training did not finish: {why}.", f"Train again with {remedy}."
