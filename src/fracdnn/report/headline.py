"""How good the model is, in one sentence beside the best constant answer, and in a few figures."""

from dataclasses import dataclass

import numpy as np

from fracdnn.estimators.reliability import BINS
from fracdnn.report.intervals import r2_interval, share_interval
from fracdnn.report.ranking import mean_area
from fracdnn.report.subject import Subject
from fracdnn.report.texts import count, number, share

# Below this probability a difference is not put down to chance.
CHANCE = 0.05


@dataclass(frozen=True)
class Tile:
    """A word, a value, and what to compare it with."""

    word: str
    value: str
    beside: str


def headline(subject: Subject) -> str:
    return _of_classes(subject) if subject.classifies else _of_values(subject)


def tiles(subject: Subject) -> list[Tile]:
    shape = Tile("Held-out samples", f"{subject.n:,}", f"from {count(len(subject.columns), 'column')}")
    return [*(_class_tiles(subject) if subject.classifies else _value_tiles(subject)), shape]


def chance(subject: Subject) -> float:
    """How probable a difference as large as that to the most frequent class is by chance, were both as often right:
    the sign test of the samples that only one of them has right (McNemar 1947).
    """
    from scipy.stats import binomtest

    model, constant = subject.predicted == subject.y, subject.codes == most_frequent(subject)
    only_model, only_constant = int((model & ~constant).sum()), int((constant & ~model).sum())
    n = only_model + only_constant
    return float(binomtest(only_model, n).pvalue) if n else 1.0


def most_frequent(subject: Subject) -> int:
    """The place of the class that most held-out samples have: no constant answer is right more often."""
    return int(np.bincount(subject.codes).argmax())


def _of_classes(subject: Subject) -> str:
    most = most_frequent(subject)
    baseline, name = float((subject.codes == most).mean()), f"“{subject.labels[most]}”"
    told = f"Right for {share(subject.accuracy)} of {count(subject.n, 'held-out sample')}"
    if baseline == 1:
        return f"{told}, which are all of class {name}: there is nothing to compare with."
    constant = f"always answering {name}, the most frequent class"
    if subject.accuracy <= baseline:
        return f"{told}, no better than {constant}: {share(baseline)}."
    gone = (subject.accuracy - baseline) / (1 - baseline)
    sure = "" if chance(subject) < CHANCE else " So few samples may owe that to chance."
    return f"{told}; {constant}, is right for {share(baseline)}: {share(gone)} of those mistakes are gone.{sure}"


def _of_values(subject: Subject) -> str:
    rows, constant = count(subject.n, "held-out sample"), _deviation(subject)
    told = f"Off by {number(subject.rmse, 3)} (root mean square) on {rows}"
    if subject.r2 is None or not np.ptp(subject.y, axis=0).all():
        return f"{told}, whose values are all the same: there is nothing to compare with."
    if subject.r2 <= 0:
        return f"{told}, no better than always answering their mean: {number(constant, 3)}."
    sure = "" if r2_interval(subject.y, subject.predicted)[0] > 0 else " So few samples may owe that to chance."
    return (
        f"{told}; always answering their mean is off by {number(constant, 3)}: the model explains "
        f"{share(subject.r2)} of the variance.{sure}"
    )


def _deviation(subject: Subject) -> float:
    """The root mean square error of the mean of each output."""
    return float(np.sqrt(((subject.y - subject.y.mean(0)) ** 2).mean()))


def _class_tiles(subject: Subject) -> list[Tile]:
    shares = np.bincount(subject.codes) / subject.n
    entropy = -float((shares[shares > 0] * np.log(shares[shares > 0])).sum())
    loss = "undefined" if subject.log_loss is None else number(subject.log_loss)
    low, high = share_interval(np.array(subject.accuracy * subject.n), np.array(subject.n))
    found = [
        Tile("Accuracy", share(subject.accuracy), f"95% interval: {low:.1%} to {high:.1%}"),
        Tile("Log-loss", loss, f"shares of the classes alone: {number(entropy)}"),
    ]
    area = mean_area(subject)
    if area is not None:
        found.append(Tile("Area under ROC", number(area), "0.5 is chance, 1 perfect"))
    error = Tile("Calibration error", number(subject.reliability.error, 3), f"ECE of {BINS} bins; 0 is exact")
    return [*found, error]


def _value_tiles(subject: Subject) -> list[Tile]:
    constant = _deviation(subject)
    beside = "1 is exact, 0 no better than the mean"
    if subject.r2 is not None and (np.ptp(subject.y, axis=0) > 0).all():
        low, high = r2_interval(subject.y, subject.predicted)
        beside = f"95% interval: {number(low, 3)} to {number(high, 3)}"
    sizes = np.abs(subject.y - subject.predicted)
    return [
        Tile("R²", "undefined" if subject.r2 is None else number(subject.r2), beside),
        Tile("RMSE", number(subject.rmse), f"of their mean: {number(constant)}"),
        Tile("Median error", number(float(np.median(sizes))), "half of the samples are off by less"),
        Tile("Mean error", number(float(sizes.mean())), "absolute, MAE"),
    ]
