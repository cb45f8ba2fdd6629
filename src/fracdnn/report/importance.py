"""Which columns a model relies on: how much worse its answers become when the cells of one are shuffled."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.inspection import permutation_importance
from sklearn.metrics import r2_score

from fracdnn.report.figures import BLUE, GREY
from fracdnn.report.plots import Plot, axis, label, numbers
from fracdnn.report.subject import SHOWN, Subject

REPEATS, MOST_BARS = 5, 20
# Answers that a report waits for at most, and samples below which an importance says little.
MOST_ANSWERS, LEAST_SAMPLES = 80_000, 40


_LEAST = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Importances:
    """What each column of a subject is worth, with the deviation over shuffles, and the samples it is measured on.

    `why_not` says why nothing was measured, where it was not.
    """

    mean: np.ndarray
    deviation: np.ndarray
    samples: np.ndarray
    why_not: str = ""

    def best(self, most: int) -> list[int]:
        """The columns that are worth more than their deviation, the first of them first."""
        clear = np.flatnonzero(self.mean > self.deviation)
        return clear[np.argsort(-self.mean[clear], kind="stable")][:most].tolist()


def measured(subject: Subject) -> Importances:
    samples, why_not = _samples(subject), ""
    if len(subject.columns) * REPEATS * LEAST_SAMPLES > MOST_ANSWERS:
        why_not = f"{len(subject.columns):,} columns are too many to shuffle each of them."
    elif not subject.classifies and not np.ptp(subject.y[samples], axis=0).all():
        why_not = "Without different values of the target there is no R² that shuffled columns could lower."
    elif not len(samples):
        why_not = "No sample has a class that the training knows."
    if why_not:
        return Importances(np.empty(0), np.empty(0), samples, why_not)
    return Importances(*importances(subject, samples), samples)


def importance_plot(subject: Subject, found: Importances) -> Plot:
    """The most important columns as bars, the first at the top, with the deviation over shuffles."""
    plot = Plot("importance", "Importance of columns", "", note=found.why_not)
    if plot.note:
        return plot
    order = np.argsort(-found.mean, kind="stable")[:MOST_BARS]
    names = [label(list(subject.columns)[k]) for k in order]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": numbers(found.mean[order]),
        "y": list(range(len(order))),
        "text": names,
        "textposition": "none",
        "marker": {"color": BLUE, "opacity": 0.75},
        "error_x": {"type": "data", "array": numbers(found.deviation[order]), "color": GREY, "thickness": 1.5},
        "hovertemplate": "%{text}<br>%{x:.4g} ± %{error_x.array:.2g}<extra></extra>",
    }
    word = "increase of the log-loss" if subject.classifies else "decrease of R²"
    ticks = {"tickvals": list(range(len(order))), "ticktext": names, "showgrid": False}
    plot.data = [bars]
    plot.layout = {
        "xaxis": axis(word) | {"zeroline": True, "zerolinecolor": GREY},
        "yaxis": axis("", **ticks, range=[len(order) - 0.4, -0.6]),
        "showlegend": False,
    }
    plot.tall, plot.caption = len(order) > 12, _caption(subject, found.samples, word, len(order))
    return plot


def importances(subject: Subject, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of scikit-learn's permutation importance of each column: loss in minus log-loss, or in R².

    What is shuffled are numbers of rows, so that all features of a column move together.
    """
    X, features = subject.X[samples], list(subject.columns.values())
    rows = np.arange(len(X))

    def score(estimator: Any, moved: np.ndarray, y: np.ndarray) -> float:
        shuffled = X.copy()
        for column in np.flatnonzero((moved != rows[:, None]).any(0)):
            shuffled[:, features[column]] = X[moved[:, column]][:, features[column]]
        if subject.classifies:
            # scikit-learn's own log-loss would take longer than the answers.
            return float(np.log(estimator.predict_proba(shuffled)[rows, y].clip(min=_LEAST)).mean())
        return float(r2_score(y, subject.answers(shuffled)))

    places = np.repeat(rows[:, None], len(features), axis=1)
    options = {"scoring": score, "n_repeats": REPEATS, "random_state": 0}
    target = (subject.codes if subject.classifies else subject.y)[samples]
    found = permutation_importance(subject.estimator, places, target, **options)
    return found.importances_mean, found.importances_std


def _samples(subject: Subject) -> np.ndarray:
    """Some of the samples whose class the training knows, so many that the report stays quick."""
    most = min(SHOWN, MOST_ANSWERS // (REPEATS * len(subject.columns)))
    samples = subject.shown(most)
    return samples[np.isin(subject.y[samples], subject.estimator.classes_)] if subject.classifies else samples


def _caption(subject: Subject, samples: np.ndarray, word: str, n_bars: int) -> str:
    drawn = "" if len(samples) == subject.n else f" of {subject.n:,}"
    caption = (
        f"The {word} when the cells of one column are shuffled among {len(samples):,}{drawn} held-out samples: mean "
        f"and standard deviation of {REPEATS} shuffles. Near 0 the model does without the column; columns that say the "
        f"same share what they are worth."
    )
    others = len(subject.columns) - n_bars
    return caption + (f" Shown are the {n_bars} most important of {len(subject.columns):,}." if others else "")
