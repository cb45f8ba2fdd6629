"""Pictures of a report, by scikit-learn's displays and Matplotlib: each with a heading and what one sees."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import metrics

from fracdnn.report.figures import BLUE, GREY, INK, PALETTE, VERMILION, inline_svg, new_figure
from fracdnn.report.importance import REPEATS, Importances, dependence
from fracdnn.report.subject import Subject, areas_under_roc
from fracdnn.report.texts import number, short
from fracdnn.tables.words import count

# Bars, curves, panels and classes of a matrix with counts that a picture has room for.
MOST_BARS, MOST_CURVES, MOST_PANELS, MOST_COUNTED, MOST_SAMPLES = 20, 8, 6, 20, 200
STYLE: dict[Any, Any] = dict.fromkeys(
    ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
)
STYLE |= {"font.size": 11, "text.parse_math": False}


@dataclass(frozen=True)
class Picture:
    """A heading, a sentence on what one sees, and panels as <svg>, none where there is nothing to show."""

    heading: str
    caption: str
    panels: Sequence[str] = ()


def pictures(subject: Subject, importances: Importances) -> list[Picture]:
    """Return what there is to see of a model and held-out samples, the most important first."""
    import matplotlib

    answers = [_confusion, _calibration, _ranking] if subject.classifies else [_predictions]
    draw: list[Callable[..., Picture]] = [*answers, _importance, _dependence]
    plane = subject.classifies and subject.X.shape[1] == len(subject.columns) == 2
    with matplotlib.rc_context(STYLE):
        return [each(subject, importances) for each in [*draw, *([_regions] if plane else []), _training]]


def _axes(width: float = 6.0, height: float = 4.2) -> Any:
    axes = new_figure(width, height).subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _drawn(axes: Any) -> str:
    """Return the picture as <svg>, with numbers along its axes as in the text of the page."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    for axis in (axes.xaxis, axes.yaxis):
        if not isinstance(axis.get_major_locator(), FixedLocator):  # which has names
            axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, 3)))
    return inline_svg(axes.figure)


def _finished(heading: str, caption: str, axes: Any) -> Picture:
    return Picture(heading, caption, [_drawn(axes)])


def _confusion(subject: Subject, _: Importances) -> Picture:
    counts, names = subject.confusions, [short(name, 14) for name in subject.labels]
    size, counted = max(4.2, 0.35 * len(names)), len(names) <= MOST_COUNTED
    axes = _axes(size + 0.8, size)
    display = metrics.ConfusionMatrixDisplay(counts, display_labels=names)
    turned = 45 if sum(map(len, names)) > 30 else 0
    display.plot(
        ax=axes, cmap="Blues", colorbar=False, include_values=counted, values_format=",", xticks_rotation=turned
    )
    caption = (
        f"{int(np.trace(counts)):,} of {subject.n:,} held-out rows lie on the diagonal: they are predicted correctly."
    )
    return _finished("Confusion matrix", caption, axes)


def _calibration(subject: Subject, _: Importances) -> Picture:
    bins = subject.reliability
    kept = bins.counts > 0
    counts, axes = bins.counts[kept], _axes()
    axes.plot([0, 1], [0, 1], "--", color=GREY)
    axes.scatter(bins.confidence[kept] / counts, bins.hits[kept] / counts, 30 + 400 * counts / counts.sum(), color=BLUE)
    axes.set(xlabel="probability of the predicted class", ylabel="share predicted correctly")
    caption = (
        "Predictions in ten groups by the probability of the predicted class; larger dots hold more rows. On the "
        "dashed line the model is right as often as it says, below it the model is overconfident."
    )
    return _finished("Confidence and accuracy", caption, axes)


def _ranking(subject: Subject, _: Importances) -> Picture:
    areas = areas_under_roc(subject)
    if not areas:
        return Picture("ROC curve", "The held-out rows have fewer than two classes of the training: nothing to rank.")
    axes, shown = _axes(), sorted(sorted(areas, key=areas.__getitem__)[:MOST_CURVES])
    for k in shown:
        name, color = f"{short(subject.labels[k])} {areas[k]:.3f}", PALETTE[k % len(PALETTE)]
        curve = metrics.roc_curve(subject.codes == k, subject.probabilities[:, k])
        axes.plot(curve[0], curve[1], color=color, label=name)
    axes.plot([0, 1], [0, 1], "--", color=GREY)
    axes.set(xlabel="false positive rate", ylabel="recall")
    axes.legend(frameon=False, loc="lower right")
    few = f" These are the {len(shown)} classes of least area among {len(areas)}." if len(shown) < len(areas) else ""
    caption = (
        f"Each class against all others, with the area under its curve: 1 is perfect, the dashed line chance.{few}"
    )
    return _finished("ROC curve", caption, axes)


def _predictions(subject: Subject, _: Importances) -> Picture:
    axes, shown = _axes(), subject.shown()
    for k in range(subject.y.shape[1]):
        observed, predicted = subject.y[shown, k], subject.predicted[shown, k]
        name, style = f"output {k + 1}", {"color": PALETTE[k % len(PALETTE)], "alpha": 0.6, "s": 18}
        metrics.PredictionErrorDisplay(y_true=observed, y_pred=predicted).plot(
            ax=axes, kind="actual_vs_predicted", scatter_kwargs=style | {"label": name}, line_kwargs={"color": GREY}
        )
    if subject.y.shape[1] > 1:
        axes.legend(frameon=False)
    both = np.concatenate([subject.y, subject.predicted])
    low, high = np.quantile(both, [0.02, 0.98])
    width = (high - low) or 1.0  # Far values do not squeeze the others.
    low, high = max(low - width, both.min()) - 0.05 * width, min(high + width, both.max()) + 0.05 * width
    axes.set(xlabel="predicted", ylabel="observed", aspect="auto", xlim=(low, high), ylim=(low, high))
    hidden = int(
        ((subject.y < low) | (subject.y > high) | (subject.predicted < low) | (subject.predicted > high)).sum()
    )
    far = f" {count(hidden, 'dot')} far from the others {'is' if hidden == 1 else 'are'} outside." if hidden else ""
    half, most = np.quantile(np.abs(subject.residuals), [0.5, 0.9])
    caption = (
        f"Each dot is a held-out row; on the line a prediction is exact. Half of the predictions are off by less than "
        f"{number(half, 3)}, nine in ten by less than {number(most, 3)}.{far}{subject.shown_note(shown)}"
    )
    return _finished("Observed and predicted", caption, axes)


def _importance(subject: Subject, found: Importances) -> Picture:
    heading = "Importance of columns"
    if found.why_not:
        return Picture(heading, found.why_not)
    order, names = np.argsort(-found.mean, kind="stable")[:MOST_BARS][::-1], list(subject.columns)
    axes, word = _axes(6.0, max(2.5, 0.32 * len(order) + 1.2)), subject.loss_word
    labels = [short(names[k]) for k in order]
    axes.barh(np.arange(len(order)), found.mean[order], xerr=found.deviation[order], color=BLUE, ecolor=GREY)
    axes.set_yticks(np.arange(len(order)), labels)
    axes.set_xlabel(word)
    some = f" These are the {len(order)} most important of {len(names):,} columns." if len(names) > len(order) else ""
    rows = f"{len(found.samples):,}" + ("" if len(found.samples) == subject.n else f" of {subject.n:,}")
    caption = (
        f"The {word} when the cells of one column are shuffled among {rows} held-out rows: mean and standard deviation "
        f"of {REPEATS} shuffles. Columns with the same information split their importance.{some}"
    )
    return _finished(heading, caption, axes)


def _dependence(subject: Subject, importances: Importances) -> Picture:
    heading, columns = "How the prediction depends on the most important columns", list(subject.columns)
    samples = subject.shown(MOST_SAMPLES)
    found = [dependence(subject, columns[k], samples) for k in importances.best(MOST_PANELS)]
    found = [each for each in found if len(each.values) > 1]
    if not found:
        return Picture(heading, "No column is clearly important, so there is nothing to show.")
    n_outputs = found[0].mean.shape[1]
    outputs = [1] if subject.classifies and n_outputs == 2 else range(min(n_outputs, MOST_CURVES))
    shown = np.concatenate([each.mean[:, outputs].ravel() for each in found])
    panels = []
    for place, each in enumerate(found):
        axes = _axes(4.0, 3.0)
        for k in outputs:
            color, name = PALETTE[k % len(PALETTE)], subject.output_name(k)
            axes.plot(each.values, each.mean[:, k], ".:" if each.names else ".-", color=color, label=short(name))
        if each.names:
            axes.set_xticks(each.values, [short(name, 10) for name in each.names])
        axes.set(
            xlabel=short(each.column), ylim=(shown.min() - 0.05 * np.ptp(shown), shown.max() + 0.05 * np.ptp(shown))
        )
        if len(outputs) > 1 and place == 0:
            axes.legend(frameon=False, fontsize=9)
        panels.append(_drawn(axes))
    what = f"probability of “{subject.output_name(1)}”" if len(outputs) == 1 else "probability of each class"
    caption = (
        f"The mean {what if subject.classifies else 'predicted value'} when {len(samples):,} held-out rows have this "
        f"value in one column and keep their own in all others: what the model does, not cause and effect."
    )
    return Picture(heading, caption, panels)


def _regions(subject: Subject, _: Importances) -> Picture:
    axes, shown = _axes(), subject.shown()
    ends = [(x.min() - 0.05 * np.ptp(x), x.max() + 0.05 * np.ptp(x)) for x in subject.X.T]
    grid = np.meshgrid(*(np.linspace(low, high, 150) for low, high in ends))
    winners = subject.outputs(np.stack(grid, axis=-1).reshape(-1, 2)).argmax(1).reshape(grid[0].shape)
    colors = [PALETTE[k % len(PALETTE)] for k in range(len(subject.labels))]
    axes.contourf(*grid, winners, levels=np.arange(len(colors) + 1) - 0.5, colors=colors, alpha=0.25)
    axes.scatter(*subject.X[shown].T, s=12, color=np.array(colors)[subject.codes[shown]])
    axes.set(xlabel=short(subject.features[0]), ylabel=short(subject.features[1]))
    caption = f"The class predicted at each place; dots are held-out rows, by their class.{subject.shown_note(shown)}"
    return _finished("Decision regions", caption, axes)


def _training(subject: Subject, _: Importances) -> Picture:
    history, axes = subject.estimator.history_, _axes()
    if not history.records:
        return Picture("Training", "Training ended before its first iteration, so there is no curve to show.")
    curves = [("loss", "training", BLUE), ("validation_score", "held out for early stopping", VERMILION)]
    for name, word, color in curves:
        values = np.array(history.column(name), dtype=float)
        if np.isfinite(values).any():
            axes.plot(history.column("iteration"), values, color=color, label=word)
    axes.legend(frameon=False)
    axes.set(xlabel="iteration", ylabel="loss")
    return _finished("Training", "The loss on the training rows at each iteration." + subject.first_member, axes)
