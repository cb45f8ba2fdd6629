"""The estimators' parameters, each declared once: its default, what is allowed, and what it means.

The standard library is enough to import them, so that the command knows its options at once.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import wraps
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

from fracdnn.exceptions import InvalidArgumentError

if TYPE_CHECKING:
    import numpy.random.mtrand
    import torch

# Parameters that say where and how to run, not what was learned.
LOCAL_PARAMETERS = ("device", "checkpoint_path", "resume", "verbose")


@dataclass(frozen=True)
class Interval:
    """Numbers of a type from `low` on, up to `high` unless that is None; `closed` holds the ends that belong to it."""

    type: Any
    low: int
    high: int | None = None
    closed: str = "[]"

    def __contains__(self, value: Any) -> bool:
        if not isinstance(value, self.type) or isinstance(value, bool):
            return False
        above = value >= self.low if "[" in self.closed else value > self.low
        return above and (self.high is None or (value <= self.high if "]" in self.closed else value < self.high))

    def __str__(self) -> str:
        low = f"{'at least' if '[' in self.closed else 'above'} {self.low}"
        return low if self.high is None else f"{low}, {'at most' if ']' in self.closed else 'below'} {self.high}"


@dataclass(frozen=True)
class Types:
    """Values of the types with these names, such as "torch.device": nothing is imported to know."""

    text: str
    names: tuple[str, ...]

    def __contains__(self, value: Any) -> bool:
        return any(f"{kind.__module__}.{kind.__name__}" in self.names for kind in type(value).__mro__)


# A rule is one of these, words of which one is allowed, None, or a type whose values are.
Words = frozenset
COUNT, NOT_NEGATIVE, POSITIVE = Interval(Integral, 1), Interval(Real, 0), Interval(Real, 0, closed="")
ORDER, SHARE = Interval(Real, 0, 1, closed="]"), Interval(Real, 0, 1, closed="")
AUTO, BOOLEAN = Words({"auto"}), Types("True or False", ("builtins.bool", "numpy.bool", "numpy.bool_"))
SEED = Types(
    "a whole number, a RandomState or None",
    ("builtins.NoneType", "builtins.int", "numpy.integer", "numpy.random.mtrand.RandomState"),
)

Estimator = TypeVar("Estimator")


def parameter(allowed: Sequence[Any], meaning: str, *, default: Any) -> Any:
    """A parameter with its rules, any of which a value must meet, and its line in the class's docstring."""
    return field(default=default, metadata={"allowed": list(allowed), "meaning": meaning})


# Names that other libraries have for parameters.
_OTHER_NAMES = {
    "epochs": "max_iter",
    "max_epochs": "max_iter",
    "n_epochs": "max_iter",
    "lr": "learning_rate_init",
    "learning_rate": "learning_rate_init",
    "solver": "optimizer",
    "weight_decay": "alpha",
    "seed": "random_state",
    "n_estimators": "n_members",
    "hidden_size": "width",
}


def _with_usual_errors(constructor: Any) -> Any:
    """Wrap a constructor so that a wrong argument raises a TypeError that names the class and suggests a parameter."""

    @wraps(constructor)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        name, known = type(self).__name__, [each.name for each in fields(self)]
        if args:
            raise TypeError(f"{name}() takes keyword arguments only, got the positional {args[0]!r:.40}; name it")
        for wrong in (each for each in given if each not in known):
            near = [_OTHER_NAMES[wrong]] if wrong in _OTHER_NAMES else get_close_matches(wrong, known, 1)
            remedy = f"; did you mean {near[0]!r}?" if near else f"; its parameters are {', '.join(known)}"
            raise TypeError(f"{name}() got an unexpected keyword argument {wrong!r}{remedy}")
        constructor(self, **given)

    return checked


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(parameter,))
def with_parameters(kind: type[Estimator]) -> type[Estimator]:
    """Give the class a constructor that stores the parameters declared in its body and in those of its bases.

    A subclass may give a parameter of its base another default, `alpha: float = 1e-3`; what is allowed and meant stays.
    """
    allowed = dict(getattr(kind, "_parameter_rules", {}))
    meanings = dict(getattr(kind, "_parameter_meanings", {}))
    for each in fields(dataclass(kw_only=True, eq=False, repr=False)(kind)):  # type: ignore[arg-type]
        if each.metadata:
            allowed[each.name], meanings[each.name] = each.metadata["allowed"], each.metadata["meaning"]
    kind._parameter_rules, kind._parameter_meanings = allowed, meanings  # type: ignore[attr-defined]
    kind.__init__ = _with_usual_errors(kind.__init__)  # type: ignore[method-assign]
    return kind


@with_parameters
class SharedParameters:
    """The parameters of classifier and regressor. How the defaults were found: docs/estimators.md."""

    _parameter_rules: ClassVar[dict[str, list[Any]]]
    _parameter_meanings: ClassVar[dict[str, str]]

    def _check_parameters(self) -> None:
        for each in fields(self):
            value, rules = getattr(self, each.name), self._parameter_rules[each.name]
            if not any(_meets(value, rule) for rule in rules):
                allowed = " or ".join(map(_described, rules))
                raise InvalidArgumentError(
                    f"{each.name} must be {allowed}, got {value!r}; the default is {each.default!r}"
                )

    n_layers: int = parameter([COUNT], "Layers, behind an input projection.", default=3)
    order: float = parameter(
        [ORDER], "Order of the fractional derivative, in (0, 1]; 1 is a network without memory.", default=0.5
    )
    width: int | None = parameter([None, COUNT], "Width of a layer; None is the number of features.", default=64)
    step_size: float = parameter([POSITIVE], "Time from a layer to the next.", default=0.5)
    activation: str = parameter(
        [Words({"tanh", "relu", "gelu", "silu", "sigmoid", "identity"})],
        "Nonlinearity of the input projection and the layers.",
        default="silu",
    )
    learn_order: bool = parameter([BOOLEAN], "Learn the order too, from `order` on.", default=False)
    n_members: int | str = parameter(
        [COUNT, AUTO],
        "Networks whose answers are averaged, each holds out a different fold; "
        '"auto" is 8 below 5,000 rows, 5 below 20,000, 2 below 100,000, then 1.',
        default="auto",
    )
    alpha: float = parameter([NOT_NEGATIVE], "Decay of all matrices.", default=3e-4)
    optimizer: str = parameter(
        [Words({"lbfgs", "bfgs", "adam"})], 'Mini-batches with "adam", else all samples at once.', default="adam"
    )
    max_iter: int | str = parameter(
        [COUNT, AUTO],
        'Epochs of "adam", else most iterations, for each member; no warning when the limit is reached. "auto" is 100 '
        'up to 10,000 rows, then 1,000,000 / rows, at least 10; 60 for "lbfgs" and "bfgs".',
        default="auto",
    )
    max_time: float | None = parameter(
        [None, POSITIVE],
        "Seconds after which the epoch or iteration under way is the last, with a warning; anew when resumed.",
        default=None,
    )
    learning_rate_init: float = parameter(
        [POSITIVE], 'Step of "adam" at first; it falls linearly to 0 at the end of `max_iter` epochs.', default=1e-2
    )
    batch_size: int | str = parameter(
        [COUNT, AUTO],
        'Samples in a mini-batch of "adam"; "auto" is an eighth of them as a power of 2 from 32 to 256, and '
        "1,024 from 65,536 rows on.",
        default="auto",
    )
    early_stopping: bool | str = parameter(
        [BOOLEAN, AUTO],
        "Stop when the loss of held-out samples has not improved for 30 epochs, and keep the best network; each of "
        'several members holds out a part of its own, a single one a tenth. "auto" does so from 10 rows on.',
        default="auto",
    )
    checkpoint_path: str | os.PathLike | None = parameter(
        [None, str, os.PathLike], "File that the state of the training is written to, some twenty times.", default=None
    )
    resume: bool = parameter(
        [BOOLEAN], "Go on from `checkpoint_path` if it exists, bit-identical to an uninterrupted fit.", default=False
    )
    verbose: bool = parameter([BOOLEAN, Interval(Integral, 0)], "Show a bar on standard error.", default=False)
    random_state: "int | numpy.random.mtrand.RandomState | None" = parameter(
        [SEED], "Seed of the first weights, of shuffling and of what is held out.", default=None
    )
    device: "str | torch.device" = parameter(
        [str, Types("a device", ("torch.device",))], 'Where to compute; "auto" is a GPU if any.', default="auto"
    )
    dtype: str = parameter(
        [Words({"float32", "float64"})], "What training computes in; fitted networks are float64.", default="float32"
    )


@with_parameters
class ClassifierParameters(SharedParameters):
    class_weight: dict | str | None = parameter(
        [None, dict, Words({"balanced"})],
        'Weights by class (1 where one is missing); "balanced" divides by how frequent a class is.',
        default=None,
    )


@with_parameters
class RegressorParameters(SharedParameters):
    outlier_limit: float | None = parameter(
        [None, POSITIVE],
        "Targets farther from the median than so many spreads (interquartile range / 1.349) count as if they "
        "lay there, so that a few of them cannot dominate the loss; None takes all as they are.",
        default=30.0,
    )


def _meets(value: Any, rule: Any) -> bool:
    if isinstance(rule, Words):
        return isinstance(value, str) and value in rule
    if isinstance(rule, Interval | Types):
        return value in rule
    return value is None if rule is None else isinstance(value, rule)


def _described(rule: Any) -> str:
    if isinstance(rule, Interval):
        return f"a {'whole ' if rule.type is Integral else ''}number {rule}"
    if isinstance(rule, Words):
        return " or ".join(map(repr, sorted(rule)))
    if isinstance(rule, Types):
        return rule.text
    return "None" if rule is None else f"a {rule.__name__}"
