"""The estimators' docstrings: parameters from their declarations, and what a fit leaves, in numpydoc's sections."""

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from fracdnn.parameters import Words

Estimator = TypeVar("Estimator")
_INDENTED = textwrap.TextWrapper(120, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)

# What both estimators have after a fit: type and meaning.
FITTED = {
    "network_": (
        "FractionalNetwork",
        "The first of `members_`, in float64, whose training is `history_`.",
    ),
    "members_": ("list of FractionalNetwork", "The trained networks, whose answers are averaged."),
    "temperature_": ("float | None", "Divides a classifier's logits; None without held-out samples."),
    "calibration_": ("Calibration | None", "How far off members were on held-out samples; None without such samples."),
    "order_": ("float", "The order of the networks as it was given, or the mean of those they learned."),
    "encoding_": ("Encoder", "How columns become inputs of the network; `feature_names` are the names of these."),
    "standardization_": ("Standardization", "Mean and scale of each input."),
    "shaping_": ("Shaping", "How scaled inputs are clipped, and the bins beside them."),
    "history_": ("History", "A record for each epoch or iteration; `status` says why the training ended."),
    "n_iter_": ("int", "Epochs or iterations that were run."),
    "loss_": ("float", "The last loss, with the decay."),
    "loss_curve_": ("list of float", "The loss of each epoch or iteration."),
    "best_loss_": ("float | None", "The lowest of them; None with `early_stopping`, where held-out samples decide."),
    "validation_scores_": ("list of float | None", "Minus the held-out loss; None without `early_stopping`."),
    "best_validation_score_": ("float | None", "The highest of them, that of the network that was kept."),
    "n_features_in_": ("int", "Number of columns of X."),
    "feature_names_in_": ("ndarray of shape (n_features_in_,)", "Their names, if X had names that are all text."),
}


def documented(**fitted: tuple[str, str]) -> Callable[[type[Estimator]], type[Estimator]]:
    """Add the sections Parameters and Attributes to the docstring; `fitted` has the attributes of this class alone."""

    def complete(kind: Any) -> Any:
        parameters = {
            each.name: (f"{_type(kind, each)}, default={each.default!r}", kind._parameter_meanings[each.name])
            for each in fields(kind)
        }
        text = [inspect.cleandoc(kind.__doc__)]
        for title, rows in (("Parameters", parameters), ("Attributes", FITTED | fitted)):
            lines = (f"{name} : {type_}\n{_INDENTED.fill(meaning)}" for name, (type_, meaning) in rows.items())
            text.append("\n".join([title, "-" * len(title), *lines]))
        kind.__doc__ = "\n\n".join(text)
        return kind

    return complete


def _type(kind: Any, parameter: Any) -> str:
    """A choice as the words it is among, anything else as it is annotated."""
    words = [rule for rule in kind._parameter_rules[parameter.name] if isinstance(rule, Words)]
    if parameter.type is str and words:
        return "{" + ", ".join(map(repr, sorted(words[0]))) + "}"
    return parameter.type if isinstance(parameter.type, str) else inspect.formatannotation(parameter.type)
