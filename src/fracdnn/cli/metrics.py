"""How good predictions are, in numbers that JSON can hold and tables for the terminal."""

from typing import Any

import numpy as np
from rich.table import Table

from fracdnn.tabular.model import TableModel


def scores(model: TableModel, X: np.ndarray, y: np.ndarray) -> dict[str, float | None]:
    """Accuracy and log-loss, or R², root mean square and mean absolute error."""
    if not model.is_classifier:
        return regression_scores(model.estimator.predict(X), y)
    return class_scores(model.estimator.classes_, model.estimator.predict_proba(X), y)


def class_scores(classes: np.ndarray, probabilities: np.ndarray, y: np.ndarray) -> dict[str, float | None]:
    """Accuracy, and the log-loss where all true classes are known ones."""
    from sklearn.metrics import log_loss

    found: dict[str, float | None] = {"accuracy": float((classes[probabilities.argmax(1)] == y).mean())}
    if np.isin(y, classes).all():
        found["log_loss"] = float(log_loss(y, probabilities, labels=classes))
    return found


def regression_scores(predicted: np.ndarray, y: np.ndarray) -> dict[str, float | None]:
    """R² is None where all true values are the same."""
    errors = predicted - y
    variance = float(y.var())
    return {
        "R2": 1.0 - float((errors**2).mean()) / variance if variance else None,
        "RMSE": float(np.sqrt((errors**2).mean())),
        "MAE": float(np.abs(errors).mean()),
    }


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def confusion(classes: np.ndarray, y: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Counts [true, predicted] over the classes."""
    from sklearn.metrics import confusion_matrix

    return confusion_matrix(y, predicted, labels=classes)


def by_class(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Precision, recall and F1 of each class; 0 where there is nothing to divide by."""
    hits, true, told = counts.diagonal(), counts.sum(1), counts.sum(0)
    precision, recall = (np.divide(hits, n, out=np.zeros(len(hits)), where=n > 0) for n in (told, true))
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros(len(hits)), where=total > 0)
    return {"precision": precision, "recall": recall, "F1": f1, "rows": true}


def class_table(classes: list[str], counts: np.ndarray) -> Table:
    table = Table(title="by class")
    columns = by_class(counts)
    for heading in ("class", *columns):
        table.add_column(heading, justify="right")
    for index, name in enumerate(classes):
        cells = [f"{columns[key][index]:.3f}" for key in ("precision", "recall", "F1")]
        table.add_row(name, *cells, str(columns["rows"][index]))
    return table


def confusion_table(classes: list[str], counts: np.ndarray) -> Table:
    table = Table(title="confusion: rows are the true class, columns the predicted one")
    for heading in ("", *classes):
        table.add_column(heading, justify="right")
    for name, row in zip(classes, counts, strict=True):
        table.add_row(name, *(str(count) for count in row))
    return table


def plain(value: Any) -> Any:
    """Arrays and NumPy numbers as JSON has them."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
