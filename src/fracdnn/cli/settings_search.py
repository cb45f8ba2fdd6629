"""`fracdnn train --search`: settings of a network tried by cross-validation, and the best of them."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, ParameterGrid, ParameterSampler, StratifiedKFold

from fracdnn.cli.messages import fail, is_quiet, say, show_table
from fracdnn.estimators import raise_interrupts

# What is tried, unless it is given; beside the settings that the estimator has already.
SPACE: dict[str, list[Any]] = {
    "order": [0.1, 0.3, 0.5, 0.7, 0.9, 1.0],
    "n_layers": [2, 3, 4, 8],
    "width": [32, 64, 128],
    "learning_rate_init": [3e-3, 1e-2, 3e-2],
    "alpha": [1e-4, 1e-3, 1e-2],
}
N_SETTINGS, FOLDS = 18, 5
# Below so many rows cross-validation cannot tell more settings apart.
FEW_ROWS, FEW_SETTINGS = 1000, 8
Setting = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """A setting and its score on each fold: accuracy or R², NaN where predictions were not finite."""

    setting: Setting
    scores: list[float]

    @property
    def mean(self) -> float:
        """By which trials are compared; −∞ for a fit that came to nothing."""
        found = fmean(self.scores)
        return found if math.isfinite(found) else -math.inf

    def to_dict(self) -> dict[str, Any]:
        return {**self.setting, "scores": [score if math.isfinite(score) else None for score in self.scores]}


def search(estimator: Any, X: Any, y: np.ndarray, *, fixed: Sequence[str], jobs: int) -> tuple[list[Trial], bool]:
    """Try settings by cross-validation, in so many processes, and show them, the best first; whether Ctrl-C ended it.

    The parameters `fixed` stay as they are. Ctrl-C keeps the settings of which every fold is done.
    """
    seed, score = estimator.random_state, "accuracy" if is_classifier(estimator) else "R2"
    settings = drawn_settings(estimator, fixed, seed)[: FEW_SETTINGS if len(y) < FEW_ROWS else N_SETTINGS]
    folds = _folds(estimator, X, y, seed)
    candidate = clone(estimator).set_params(verbose=False, checkpoint_path=None, resume=False)
    if candidate.n_members == "auto":  # one tells which setting is better; the chosen one has all members
        candidate.set_params(n_members=1)
    trials: list[Trial] = []
    interrupted = False
    left = TimeRemainingColumn(compact=True)
    columns = (BarColumn(bar_width=20), MofNCompleteColumn(), "fits{task.fields[best]}", left)
    say(f"trying {len(settings)} settings, {len(folds)} folds each")
    work = (delayed(_score)(candidate, setting, X, y, *fold) for setting in settings for fold in folds)
    scores = Parallel(n_jobs=jobs, return_as="generator")(work)
    try:
        with Progress(*columns, console=Console(stderr=True, quiet=is_quiet())) as progress:
            bar = progress.add_task("search", total=len(settings) * len(folds), best="")
            for setting in settings:
                found = []
                for _ in folds:
                    found.append(next(scores))
                    progress.update(bar, advance=1)
                trials.append(Trial(setting, found))
                best = f", best {score} {max(trial.mean for trial in trials):.4f} of {len(trials)} settings"
                progress.update(bar, best=best)
    except KeyboardInterrupt:
        if not trials:
            raise
        interrupted = True
    trials.sort(key=lambda trial: -trial.mean)  # the earlier one where two are alike
    if trials[0].mean == -math.inf:
        fail("--search found no finite score; scale the target, or pass a smaller --learning-rate-init")
    rows = []
    for place, trial in enumerate(trials, start=1):
        is_finite = trial.mean > -math.inf
        numbers = (f"{trial.mean:.4f}", f"{pstdev(trial.scores):.4f}") if is_finite else ("not finite", "-")
        rows.append([str(place), *(f"{value:g}" for value in trial.setting.values()), *numbers])
    title, headings = f"{len(trials)} settings by {FOLDS}-fold cross-validation", ("", *trials[0].setting, score, "±")
    show_table(title, headings, rows, stderr=True, quiet=is_quiet())
    same = sum(trial.mean == trials[0].mean for trial in trials)
    if same > 1:
        say(f"{same} settings have the same {score}; the one tried first is used")
    if interrupted:
        done = f"{len(trials)} of {len(settings)} settings"
        say(f"the search was interrupted after {done}; the best of them is trained now")
    return trials, interrupted


def drawn_settings(estimator: Any, fixed: Sequence[str], seed: Any) -> list[Setting]:
    """The estimator's own setting, then others of the space, each once."""
    unused = {"learning_rate_init"} if estimator.solver != "adam" else set()
    space = {name: values for name, values in SPACE.items() if name not in (*fixed, *unused)}
    if not space:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in SPACE)
        fail(f"--search has nothing left to try, because {options} are all given; leave one of them out")
    own = {name: estimator.get_params()[name] for name in space}
    count = min(N_SETTINGS, len(ParameterGrid(space)))
    others = [setting for setting in ParameterSampler(space, count, random_state=seed) if setting != own]
    return [own, *({name: setting[name] for name in space} for setting in others)][:N_SETTINGS]


def _folds(estimator: Any, X: Any, y: np.ndarray, seed: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    kind = StratifiedKFold if is_classifier(estimator) else KFold
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            folds = list(kind(FOLDS, shuffle=True, random_state=seed).split(X, y))
    except ValueError as error:
        fail(f"--search needs more rows, got {len(y)} ({error}); leave it out")
    for warning in caught:
        say(f"warning: {warning.message}")
    return folds


def _score(candidate: Any, setting: Setting, X: Any, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    estimator = clone(candidate).set_params(**setting)
    with warnings.catch_warnings(), raise_interrupts():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the score tells
        estimator.fit(X[train], y[train])
    try:
        return float(estimator.score(X[test], y[test]))
    except ValueError:  # predictions that are not finite
        return math.nan
