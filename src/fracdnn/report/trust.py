"""A verdict in one sentence, compared with the best constant answer; scores, warnings and remedies."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.stats import binomtest, entropy, median_abs_deviation
from sklearn.metrics import log_loss

from fracdnn.estimators.reliability import BINS
from fracdnn.report.importance import Importances, dominant
from fracdnn.report.network_facts import ENDS
from fracdnn.report.subject import Subject, areas_under_roc, r2
from fracdnn.report.texts import number, share
from fracdnn.tables.words import count

# What intervals and sets are to hold.
LEVEL = 0.9
# Below this probability a difference is not put down to chance.
CHANCE = 0.05
# What a model is called, compared with the best constant answer.
BETTER, UNCLEAR = "Better than the baseline", "Perhaps better than the baseline, but it may be chance"
NO_BETTER, NO_BASELINE = "No better than the baseline", "Nothing to compare with"
Tile = tuple[str, str, str]  # a word, a value, and what to compare it with
# Fewer held-out rows, in all and of a class, leave a score uncertain; so much of the squared error is too much.
FEW_ROWS, FEW_OF_CLASS, MUCH = 100, 10, 0.5
MOST_NAMED, LEAST_IDS = 6, 20
# A residual is an outlier this many robust deviations from the median (Iglewicz and Hoaglin 1993).
FAR, MOST_OUTLIERS, MOST_LISTED, MOST_OTHERS = 3.5, 6, 20, 3
# What to train again with, where the training did not finish.
_UNFINISHED = {"not finite": "a smaller learning rate", "time limit": "more time", "interrupted": "more time"}


def verdict(subject: Subject) -> str:
    """Return whether the model is better than the best constant answer."""
    if not subject.varies:
        return NO_BASELINE
    if subject.balanced:
        low, middle = _balanced_interval(subject)
        better, clearly = middle > 1 / len(subject.labels), low > 1 / len(subject.labels)
    elif subject.classifies:
        better = (subject.predicted == subject.y).sum() > np.bincount(subject.codes).max()
        clearly = chance(subject) < CHANCE
    else:
        better = r2(subject.y, subject.predicted) > 0
        clearly = interval(subject)[0] > 0
    return NO_BETTER if not better else BETTER if clearly else UNCLEAR


def headline(subject: Subject) -> str:
    """Return the verdict with the score and that of the best constant answer, in one sentence."""
    rows = count(subject.n, "held-out row")
    if subject.balanced and subject.varies:
        score = f"balanced accuracy {number(_balanced_interval(subject)[1])} on {rows}, since classes are weighted"
        constant = f"any constant answer reaches {number(1 / len(subject.labels))}"
    elif subject.classifies:
        counts = np.bincount(subject.codes)
        name = f"“{subject.labels[counts.argmax()]}”"
        score = f"accuracy {number(float((subject.predicted == subject.y).mean()))} on {rows}"
        same = f"which are all of class {name}"
        constant = f"always answering {name}, the most frequent class, reaches {number(counts.max() / subject.n)}"
    else:
        explained = f" (R² {number(r2(subject.y, subject.predicted))})" if subject.varies else ""
        score, same = f"RMSE {number(_rmse(subject.residuals))} on {rows}{explained}", "whose values are all the same"
        constant = f"always answering their mean gives {number(_rmse(subject.y - subject.y.mean(0)))}"
    return f"{verdict(subject)}: {score}{f'; {constant}' if subject.varies else f', {same}'}."


def _balanced_interval(subject: Subject) -> tuple[float, float]:
    """Return the lower end of the 95 % interval of the balanced accuracy, by the variances of recalls, and itself."""
    recalls = subject.confusions.diagonal() / np.maximum(counts := subject.confusions.sum(1), 1)
    present = counts > 0
    score = float(recalls[present].mean())
    variance = (recalls * (1 - recalls) / np.maximum(counts, 1))[present].sum() / present.sum() ** 2
    return score - 1.959963984540054 * float(np.sqrt(variance)), score


def tiles(subject: Subject) -> list[Tile]:
    """Scores; how often the true answer lies in what is to hold it nine times in ten; the number of rows."""
    estimator, n = subject.estimator, subject.n
    # Where no rows were held out in training, sets and intervals are not calibrated.
    inside, size = None, np.zeros(n)
    if subject.classifies:
        classes, accuracy, loss = estimator.classes_, float((subject.predicted == subject.y).mean()), "undefined"
        if len(subject.labels) == len(classes) > 1:  # no class that the training has not seen
            loss = number(log_loss(subject.y, subject.probabilities, labels=classes))
        low, high = (number(end, 3) for end in interval(subject))
        areas = areas_under_roc(subject).values()  # of one class against the rest
        weighted = [("Balanced accuracy", number(_balanced_interval(subject)[1]), "mean recall of the classes")]
        scores = [
            *(weighted if subject.balanced else []),
            ("Accuracy", number(accuracy), f"95% interval: {low} to {high}"),
            ("Log-loss", loss, f"baseline (class frequencies): {number(entropy(np.bincount(subject.codes)))}"),
            *([("Area under ROC", number(float(np.mean([*areas]))), "0.5 is chance, 1 perfect")] if areas else []),
            ("Calibration error", number(subject.reliability.error), f"ECE, {BINS} bins; 0 is perfect"),
        ]
        words = ("90% sets", "contain the true class; mean size")
        if estimator.calibration_ is not None:
            sets = np.pad(estimator.predict_sets(subject.X, LEVEL), ((0, 0), (0, len(subject.labels) - len(classes))))
            inside, size = sets[np.arange(n), subject.codes], sets.sum(1)
    else:
        beside, sizes = "1 is perfect, 0 no better than the mean", np.abs(subject.residuals)
        if subject.varies:
            beside = "95% interval: {} to {}".format(*map(number, interval(subject)))
        scores = [
            ("R²", number(r2(subject.y, subject.predicted)) if n > 1 else "undefined", beside),
            ("RMSE", number(_rmse(sizes)), f"baseline (mean): {number(_rmse(subject.y - subject.y.mean(0)))}"),
            ("Median error", number(float(np.median(sizes))), "half of the errors are smaller"),
            ("Mean error", number(float(sizes.mean())), "MAE"),
        ]
        words = ("90% intervals", "contain the value; mean width")
        if estimator.calibration_ is not None:
            ends = estimator.predict_quantiles(subject.X, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
            lower, upper = np.moveaxis(ends.reshape(*subject.y.shape, 2), -1, 0)
            inside, size = (subject.y >= lower) & (subject.y <= upper), upper - lower
    if inside is not None:
        scores.append((words[0], share(float(inside.mean())), f"{words[1]} {number(float(size.mean()))}"))
    return [*scores, ("Held-out rows", f"{n:,}", f"from {count(len(subject.columns), 'column')}")]


def chance(subject: Subject) -> float:
    """How probable a difference as large as that to the most frequent class is by chance, were both as often right:
    the sign test of the samples that only one of them has right (McNemar 1947).
    """
    model, constant = subject.predicted == subject.y, subject.codes == np.bincount(subject.codes).argmax()
    n = int((model != constant).sum())
    return float(binomtest(int((model & ~constant).sum()), n).pvalue) if n else 1.0


def _rmse(errors: np.ndarray) -> float:
    largest = np.abs(errors).max() or 1.0  # Squares of large numbers overflow.
    return float(largest * np.sqrt(((errors / largest) ** 2).mean()))


def r2_interval(y: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """In which R² of all samples lies 95 times of 100: of [n, n_outputs], the mean over outputs, by the delta method.

    R² = 1 − A/B of means A of squared errors and B of squared deviations has the influence (A/B · d² − e²) / B of a
    sample with error e and deviation d.
    """
    scale = np.abs(y).max() or 1.0  # Squares of large numbers overflow.
    errors, deviations = ((y - predicted) / scale) ** 2, ((y - y.mean(0)) / scale) ** 2
    ratio = errors.mean(0) / deviations.mean(0)
    influence = ((ratio * deviations - errors) / deviations.mean(0)).mean(1)
    half = 1.959963984540054 * float(np.sqrt((influence**2).mean() / len(y)))
    middle = float(1 - ratio.mean())
    return middle - half, min(middle + half, 1.0)


def interval(subject: Subject) -> tuple[float, float]:
    """In which the accuracy (by Wilson's formula) or R² of all samples lies 95 times of 100."""
    if not subject.classifies:
        return r2_interval(subject.y, subject.predicted)
    return binomtest(int((subject.predicted == subject.y).sum()), subject.n).proportion_ci(method="wilson")


def advice(
    subject: Subject, importances: Importances, columns: Sequence[Mapping[str, str]], suspicions: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Warnings, and what to try; `suspicions` are what the training said of the table, each with its remedy."""
    told = [each.partition("; ") for each in suspicions]
    found = [(f"{text[0].upper()}{text[1:]}.", f"{remedy[0].upper()}{remedy[1:]}.") for text, _, remedy in told]
    found += _findings(subject, importances, columns)
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


def _findings(
    subject: Subject, importances: Importances, columns: Sequence[Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    """Warnings with what to try, on columns, rows, and the fit."""
    if leak := dominant(subject, importances):
        remedy = f"Check that “{leak}” is known before the target and is not a copy of it; otherwise train without it."
        yield f"Possible leak: column “{leak}” explains nearly everything by itself.", remedy
    cells = {name: subject.X[:, places[0]] for name, places in subject.columns.items() if subject.n >= LEAST_IDS}
    if ids := [name for name, x in cells.items() if (x == np.floor(x)).all() and len(np.unique(x)) == subject.n]:
        remedy = f"If it is an id, train again without {_named(ids)}."
        yield f"Suspected id: {_named(ids)} holds a different whole number in each row.", remedy
    rows = [list(row.values()) for row in columns if row.get("kind") == "unused"]
    if left := [row[0] for row in rows if "dropped" not in row[-1]]:
        remedy = "Read below why columns were left out, and bring back those that matter."
        yield f"{count(len(left), 'column')} left out: {_named(left)}.", remedy
    if subject.n < FEW_ROWS:
        text = f"Few held-out rows: {subject.n}"
        if subject.classifies or subject.varies:
            low, high = (number(end, 2) for end in interval(subject))
            score = "the accuracy" if subject.classifies else "R²"
            text += f", so {score} may be anywhere from {low} to {high}"
        yield f"{text}.", "Test on more rows: hold out more of them, or use cross-validation."
    labels, known = (subject.labels, len(subject.estimator.classes_)) if subject.classifies else ([], 0)
    counts = np.bincount(subject.codes, minlength=len(labels)) if labels else ()
    if rare := [label for label, n in zip(labels[:known], counts, strict=False) if n < FEW_OF_CLASS]:
        remedy = "Collect more rows of rare classes, or merge them: their precision and recall are uncertain."
        yield f"Rare classes, with fewer than {FEW_OF_CLASS} held-out rows: {_named(rare)}.", remedy
    if new := labels[known:]:
        remedy = "Train again with rows of every class."
        yield f"Never in the training rows, so never predicted: {_named(new)}.", remedy
    if verdict(subject) in (UNCLEAR, NO_BETTER):
        remedy = "Check the target column, add columns that may explain it, or search for better settings."
        yield "The model is not clearly better than a constant answer.", remedy
    if not subject.classifies and (weight := outlier_weight(subject)) > MUCH:
        text = f"{count(int(outliers(subject).sum()), 'outlier')} in {subject.n:,} rows: {share(weight)}"
        remedy = "Check whether the values of the outliers, listed below by row, are right."
        yield f"{text} of the squared error.", remedy
    if remedy := _UNFINISHED.get(subject.estimator.history_.status, ""):
        yield f"Training did not finish: {ENDS[subject.estimator.history_.status]}.", f"Train again with {remedy}."


def class_table(subject: Subject) -> list[list[str]]:
    """Return each class with what it is confused with most; of many classes those with the most missed rows."""
    counts, names = subject.confusions, subject.labels
    hits, true = counts.diagonal(), counts.sum(1)
    rows = [["class", "rows", "precision", "recall", "confused with"]]
    for k in np.sort(np.argsort(hits - true, kind="stable")[:MOST_LISTED]):
        others = [j for j in np.argsort(-counts[k], kind="stable") if j != k and counts[k, j]]
        taken = [f"{names[j]} ({counts[k, j]:,})" for j in others[:MOST_OTHERS]]
        taken += [f"{len(others) - MOST_OTHERS} more"] if len(others) > MOST_OTHERS else []
        shares = [number(hits[k] / n[k], 3) if n[k] else "–" for n in (counts.sum(0), true)]
        rows.append([str(names[k]), f"{true[k]:,}", *shares, ", ".join(taken) or "–"])
    return rows


def deviations(residuals: np.ndarray) -> np.ndarray:
    """Return how many robust deviations residuals [n, n_outputs] lie from the median of their output."""
    residuals = residuals / (np.abs(residuals).max() or 1.0)  # Squares of large numbers overflow.
    scale = median_abs_deviation(residuals, axis=0, scale="normal")
    scale = np.where(scale > 0, scale, residuals.std(axis=0))
    return np.abs(residuals - np.median(residuals, axis=0)) / np.where(scale > 0, scale, np.inf)


def outliers(subject: Subject) -> np.ndarray:
    """Return which residuals [n, n_outputs] are outliers."""
    return deviations(subject.residuals) > FAR


def outlier_weight(subject: Subject) -> float:
    """Return the share of outliers in the squared error."""
    squares = (subject.residuals / (np.abs(subject.residuals).max() or 1.0)) ** 2
    return float(squares[outliers(subject)].sum() / (squares.sum() or 1.0))


def outlier_table(subject: Subject) -> list[list[str]]:
    """Return the rows with the largest outliers, by their ids, else by their numbers from 1."""
    distance, rows = deviations(subject.residuals).max(1), []
    for i in np.argsort(-distance, kind="stable")[: min(MOST_OUTLIERS, int((distance > FAR).sum()))]:
        k = int(deviations(subject.residuals)[i].argmax())
        cells = [number(float(each[i, k])) for each in (subject.y, subject.predicted, subject.residuals)]
        rows.append([subject.row_name(i), *cells, number(float(distance[i]), 3)])
    heading = ["row id" if subject.ids else "row", "observed", "predicted", "residual", "robust deviations"]
    return [heading, *rows] if rows else []
