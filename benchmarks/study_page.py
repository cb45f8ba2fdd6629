"""The tables and the picture of the study of classifiers, from its results.

    python -m benchmarks.study_page docs/results/study.json docs/study.md docs/images/study.png

Tables stand between `<!-- study NAME -->` and `<!-- end -->`.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from benchmarks.measures import markdown
from fracdnn.files import write_whole
from fracdnn.report.figures import BLUE, VERMILION, new_figure, save_figure

MEASURES = {"accuracy": -1, "log_loss": 1, "calibration": 1, "seconds": 1}
NEURAL = ("fractional", "fractional, learned order", "order 1", "MLP")


class Study:
    """Means over folds and seeds, [data, model]."""

    def __init__(self, path: Path) -> None:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        self.data, self.models = (list(dict.fromkeys(run[key] for run in runs)) for key in ("data", "model"))
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for run in runs:
            groups.setdefault((run["data"], run["model"]), []).append(run)
        self.means = {
            name: np.array([[np.mean([r[name] for r in groups[d, m]]) for m in self.models] for d in self.data])
            for name in MEASURES
        }

    def ranks(self, name: str, models: tuple[str, ...] = ()) -> np.ndarray:
        """The rank of each model on each data set, 1 the best."""
        chosen = [self.models.index(model) for model in models or self.models]
        return np.array([rankdata(MEASURES[name] * row[chosen]) for row in self.means[name]])

    def critical_difference(self) -> float:
        """Nemenyi: mean ranks closer than this do not differ at the level of 5 %."""
        k, n = len(self.models), len(self.data)
        return float(studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n)))


def tables(study: Study) -> dict[str, str]:
    accuracy = [
        [d, *(f"{100 * v:.2f}" for v in row)] for d, row in zip(study.data, study.means["accuracy"], strict=True)
    ]
    ranks = {name: study.ranks(name).mean(0) for name in MEASURES}
    lines = [[m, *(f"{ranks[name][k]:.2f}" for name in MEASURES)] for k, m in enumerate(study.models)]
    neural = {name: study.ranks(name, NEURAL).mean(0) for name in ("accuracy", "log_loss")}
    among = [[m, *(f"{neural[name][k]:.2f}" for name in neural)] for k, m in enumerate(NEURAL)]
    mlp = study.models.index("MLP")
    ratios = study.means["seconds"][:, :3] / study.means["seconds"][:, [mlp]]
    times = [[d, *(f"{ratio:.2f}" for ratio in row)] for d, row in zip(study.data, ratios, strict=True)]
    return {
        "accuracy": markdown(["data", *study.models], accuracy),
        "ranks": markdown(["model", "accuracy", "log-loss", "calibration", "fit time"], lines),
        "neural": markdown(["model", "accuracy", "log-loss"], among),
        "times": markdown(["data", *study.models[:3]], times),
    }


def figure(study: Study) -> Any:
    """Mean ranks by accuracy, with the critical difference from the best one."""
    ranks = study.ranks("accuracy").mean(0)
    order = np.argsort(ranks)
    drawing = new_figure(8, 3.2)
    axes = drawing.subplots()
    best, reach = ranks.min(), study.critical_difference()
    axes.axvspan(best, best + reach, color="0.9", label=f"within the critical difference ({reach:.2f}) of the best")
    for place, k in enumerate(order):
        colour = VERMILION if study.models[k] in NEURAL[:3] else BLUE
        axes.plot([1, ranks[k]], [place, place], color=colour, linewidth=1)
        axes.plot(ranks[k], place, "o", color=colour)
    axes.set_yticks(range(len(order)), [study.models[k] for k in order])
    axes.invert_yaxis()
    statistic = friedmanchisquare(*study.means["accuracy"].T)
    title = f"{len(study.data)} data sets; Friedman test p = {statistic.pvalue:.0e}"
    axes.set(xlabel="mean rank by accuracy (1 is best)", title=title, xlim=(1, len(order)))
    axes.legend(frameon=False, loc="upper right", fontsize=8)
    return drawing


def main(results: Path, page: Path, picture: Path) -> None:
    study = Study(results)
    found = tables(study)
    text = re.sub(
        r"(<!-- study (\w+) -->\n).*?(<!-- end -->)",
        lambda match: f"{match[1]}\n{found[match[2]]}\n\n{match[3]}",
        page.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    write_whole(page, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    save_figure(picture, figure(study))


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:4]))
