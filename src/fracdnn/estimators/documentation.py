"""The estimators' docstrings: parameters from their declarations, and what a fit leaves, in numpydoc's sections."""

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from fracdnn.parameters import Words

Estimator = TypeVar("Estimator")

# What both estimators have after a fit: type and meaning.
FITTED = {
    "network_": (
        "FractionalNetwork",
        "The first of `members_`, in float64; `history_`, `loss_` and curves are of its training.",
    ),
    "members_": ("list of FractionalNetwork", "The trained networks, whose answers are averaged."),
    "temperature_": (
        "float | None",
        "What a classifier's logits are divided by, from held-out samples; None without `calibrate` or such samples.",
    ),
    "calibration_": (
        "Calibration | None",
        "How far off members were on samples that they held out, for intervals and sets; None without such samples.",
    ),
    "order_": ("float", "The order of the networks as it was given, or the mean of those they learned."),
    "encoding_": ("Encoding", "How columns become inputs of the network; `feature_names` are the names of these."),
    "standardization_": ("Standardization", "Mean and scale of each input."),
    "shaping_": ("Shaping", "How scaled inputs are clipped, and the bins beside them."),
    "history_": ("History", "A record for each epoch or iteration; `status` says why the training ended."),
    "n_iter_": ("int", "Epochs or iterations that were run."),
    "loss_": ("float", "The last loss, with the decay."),
    "loss_curve_": ("list of float", "The loss of each epoch or iteration."),
    "best_loss_": ("float | None", "The lowest of them; None with `early_stopping`, where held-out samples decide."),
    "validation_scores_": (
        "list of float | None",
        "Minus the loss of held-out samples; None without `early_stopping`.",
    ),
    "best_validation_score_": ("float | None", "The highest of them, that of the network that was kept."),
    "n_features_in_": ("int", "Number of columns of X."),
    "feature_names_in_": ("ndarray of shape (n_features_in_,)", "Their names, if X had names that are all text."),
}


def documented(**fitted: tuple[str, str]) -> Callable[[type[Estimator]], type[Estimator]]:
    """Add the sections Parameters and Attributes to the docstring; `fitted` has the attributes of this class alone."""

    def complete(kind: type[Estimator]) -> type[Estimator]:
        summary = inspect.cleandoc(kind.__doc__ or "")
        kind.__doc__ = "\n\n".join(
            [summary, _section("Parameters", _parameters(kind)), _section("Attributes", FITTED | fitted)]
        )
        return kind

    return complete


def _section(title: str, rows: dict[str, tuple[str, str]]) -> str:
    indented = textwrap.TextWrapper(120, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    lines = [f"{name} : {kind}\n{indented.fill(meaning)}" for name, (kind, meaning) in rows.items()]
    return "\n".join([title, "-" * len(title), *lines])


def _parameters(kind: Any) -> dict[str, tuple[str, str]]:
    allowed, meanings = kind._parameter_rules, kind._parameter_meanings
    return {
        each.name: (f"{_type(each.type, allowed[each.name])}, default={each.default!r}", meanings[each.name])
        for each in fields(kind)
    }


def _type(annotation: Any, allowed: list[Any]) -> str:
    """A choice as the words it is among, anything else as it is annotated."""
    words = [rule for rule in allowed if isinstance(rule, Words)]
    if annotation is str and words:
        return "{" + ", ".join(repr(word) for word in sorted(words[0])) + "}"
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
