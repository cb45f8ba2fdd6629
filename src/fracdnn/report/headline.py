"""The verdict on a model in one sentence, compared with the best constant answer, and a few scores."""

from enum import Enum
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest
from sklearn.metrics import log_loss, r2_score

from fracdnn.columns.words import count
from fracdnn.estimators.reliability import BINS
from fracdnn.report.classes import ranked
from fracdnn.report.subject import Subject
from fracdnn.report.texts import number, share

# What intervals and sets are to hold.
LEVEL = 0.9
# Below this probability a difference is not put down to chance.
CHANCE = 0.05


class Verdict(Enum):
    """Whether a model is better than the best constant answer."""

    BETTER = "Better than the baseline"
    UNCLEAR = "Perhaps better than the baseline, but it may be chance"
    NO_BETTER = "No better than the baseline"
    NO_BASELINE = "Nothing to compare with"


class Tile(NamedTuple):
    """A word, a value, and what to compare it with."""

    word: str
    value: str
    beside: str


def verdict(subject: Subject) -> Verdict:
    if not subject.varies:
        return Verdict.NO_BASELINE
    if subject.classifies:
        better = (subject.predicted == subject.y).sum() > np.bincount(subject.codes).max()
        clearly = chance(subject) < CHANCE
    else:
        better = r2_score(subject.y, subject.predicted) > 0
        clearly = r2_interval(subject.y, subject.predicted)[0] > 0
    return Verdict.NO_BETTER if not better else Verdict.BETTER if clearly else Verdict.UNCLEAR


def headline(subject: Subject) -> str:
    """The verdict with the scores that it compares."""
    rows = count(subject.n, "held-out row")
    if subject.classifies:
        counts = np.bincount(subject.codes)
        name = f"“{subject.labels[counts.argmax()]}”"
        score = f"accuracy {number(float((subject.predicted == subject.y).mean()))} on {rows}"
        same = f"which are all of class {name}"
        constant = f"always answering {name}, the most frequent class, reaches {number(counts.max() / subject.n)}"
    else:
        r2 = f" (R² {number(r2_score(subject.y, subject.predicted))})" if subject.varies else ""
        score, same = f"RMSE {number(_rmse(subject.residuals))} on {rows}{r2}", "whose values are all the same"
        constant = f"always answering their mean gives {number(_rmse(subject.y - subject.y.mean(0)))}"
    return f"{verdict(subject).value}: {score}{f'; {constant}' if subject.varies else f', {same}'}."


def tiles(subject: Subject) -> list[Tile]:
    scores = _class_tiles(subject) if subject.classifies else _value_tiles(subject)
    shape = Tile("Held-out rows", f"{subject.n:,}", f"from {count(len(subject.columns), 'column')}")
    # Where no rows were held out in training, sets and intervals are not calibrated.
    return [*scores, *([_coverage_tile(subject)] if subject.estimator.calibration_ is not None else []), shape]


def _coverage_tile(subject: Subject) -> Tile:
    """How often the true answer lies in what is to hold it nine times in ten."""
    if subject.classifies:
        sets = subject.estimator.predict_sets(subject.X, LEVEL)
        known = subject.codes < sets.shape[1]
        inside = sets[np.arange(subject.n), np.where(known, subject.codes, 0)] & known
        words, size = ("90% sets", "contain the true class; mean size"), sets.sum(1)
    else:
        ends = subject.estimator.predict_quantiles(subject.X, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
        low, high = np.moveaxis(ends.reshape(*subject.y.shape, 2), -1, 0)
        inside, size = (subject.y >= low) & (subject.y <= high), high - low
        words = "90% intervals", "contain the value; mean width"
    return Tile(words[0], share(float(inside.mean())), f"{words[1]} {number(float(size.mean()))}")


def chance(subject: Subject) -> float:
    """How probable a difference as large as that to the most frequent class is by chance, were both as often right:
    the sign test of the samples that only one of them has right (McNemar 1947).
    """
    model, constant = subject.predicted == subject.y, subject.codes == np.bincount(subject.codes).argmax()
    n = int((model != constant).sum())
    return float(binomtest(int((model & ~constant).sum()), n).pvalue) if n else 1.0


def _rmse(errors: np.ndarray) -> float:
    return float(np.sqrt((errors**2).mean()))


def r2_interval(y: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """In which R² of all samples lies 95 times of 100: of [n, n_outputs], the mean over outputs, by the delta method.

    R² = 1 − A/B of means A of squared errors and B of squared deviations has the influence (A/B · d² − e²) / B of a
    sample with error e and deviation d.
    """
    errors, deviations = (y - predicted) ** 2, (y - y.mean(0)) ** 2
    ratio = errors.mean(0) / deviations.mean(0)
    influence = ((ratio * deviations - errors) / deviations.mean(0)).mean(1)
    half = 1.959963984540054 * float(np.sqrt((influence**2).mean() / len(y)))
    r2 = float(1 - ratio.mean())
    return r2 - half, min(r2 + half, 1.0)


def _class_tiles(subject: Subject) -> list[Tile]:
    shares = np.bincount(subject.codes) / subject.n
    entropy = -float((shares[shares > 0] * np.log(shares[shares > 0])).sum())
    known, loss, hits = subject.estimator.classes_, "undefined", int((subject.predicted == subject.y).sum())
    if len(subject.labels) == len(known) > 1:  # no class that the training has not seen
        loss = number(log_loss(subject.y, subject.probabilities, labels=known))
    low, high = binomtest(hits, subject.n).proportion_ci(method="wilson")
    areas = [each.area for each in ranked(subject)]  # of one class against the rest
    return [
        Tile("Accuracy", number(hits / subject.n), f"95% interval: {number(low, 3)} to {number(high, 3)}"),
        Tile("Log-loss", loss, f"baseline (class frequencies): {number(entropy)}"),
        *([Tile("Area under ROC", number(float(np.mean(areas))), "0.5 is chance, 1 perfect")] if areas else []),
        Tile("Calibration error", number(subject.reliability.error), f"ECE, {BINS} bins; 0 is perfect"),
    ]


def _value_tiles(subject: Subject) -> list[Tile]:
    beside, sizes = "1 is perfect, 0 no better than the mean", np.abs(subject.residuals)
    if subject.varies:
        beside = "95% interval: {} to {}".format(*map(number, r2_interval(subject.y, subject.predicted)))
    return [
        Tile("R²", number(r2_score(subject.y, subject.predicted)) if subject.n > 1 else "undefined", beside),
        Tile("RMSE", number(_rmse(sizes)), f"baseline (mean): {number(_rmse(subject.y - subject.y.mean(0)))}"),
        Tile("Median error", number(float(np.median(sizes))), "half of the errors are smaller"),
        Tile("Mean error", number(float(sizes.mean())), "MAE"),
    ]
