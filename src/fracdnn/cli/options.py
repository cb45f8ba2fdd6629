"""Command-line options made from the estimators' parameters: names, types, limits and defaults have one source."""

import inspect
import tomllib
from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any

import typer

from fracdnn.cli.messages import fail
from fracdnn.columns.words import nearest
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.tabular.encodings import checked_encoding

# The command's own options, and what a TOML file may hold for them.
OWN_KINDS: dict[str, tuple[type, ...]] = {
    "target": (str,),
    "task": (str,),
    "test_fraction": (float, int),
    "drop": (list,),
    "keep": (list,),
    "categorical": (list,),
    "search": (bool,),
    "jobs": (int,),
    "start_over": (bool,),
    "memory_limit": (str, int, float),
    "timeout": (float, int),
    "encoding": (str,),
}
# Defaults that the command has instead of the estimators'.
DEFAULTS = {
    "random_state": "0",
    "checkpoint": "with --run model.ckpt in its folder, else none",
    "checkpoint_every": "with --run a twentieth of --max-iter, 50 at most, else 50",
}
# `verbose` is what --quiet is for.
_LEFT_OUT = ("verbose",)


def estimator_parameters() -> dict[str, inspect.Parameter]:
    """A parameter of the command for each parameter of the estimators, None where it is not given."""
    from fracdnn.estimators import FractionalClassifier, FractionalRegressor

    found = {}
    every = FractionalClassifier._parameter_constraints | FractionalRegressor._parameter_constraints
    for name, constraints in every.items():
        if name not in _LEFT_OUT:
            annotation = _annotation(name, constraints)
            found[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
    return found


def _annotation(name: str, constraints: list[Any]) -> Any:
    from fracdnn.estimators.parameters import AUTO

    kind = _kind(constraints)
    flag = f"--{name.replace('_', '-')}"
    options: dict[str, Any] = {
        "help": _help(name, constraints),
        "rich_help_panel": "Network and training",
        "show_default": False,
    }
    if kind is bool:
        return Annotated[bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", **options)]
    words = [word for word, rule in (("none", None), ("auto", AUTO)) if rule in constraints]
    if words and kind in (int, float):
        shown = "|".join(["INTEGER" if kind is int else "FLOAT", *words])
        return Annotated[Any, typer.Option(flag, parser=_number_or(kind, words), metavar=shown, **options)]
    if tuple in constraints:
        return Annotated[Any, typer.Option(flag, parser=_shape, metavar="ROWSxCOLUMNS", **options)]
    return Annotated[kind | None, typer.Option(flag, **options)]


def _kind(constraints: list[Any]) -> type:
    for constraint in constraints:
        if constraint == "boolean":
            return bool
        if constraint == "random_state" or getattr(constraint, "type", None) is Integral:
            return int
        if getattr(constraint, "type", None) is Real:
            return float
    return str


def _help(name: str, constraints: list[Any]) -> str:
    """What it is for, what is allowed, and the default."""
    from fracdnn.estimators import FractionalClassifier, FractionalRegressor

    rules = [rule for rule in map(_rule, constraints) if rule]
    meanings = FractionalRegressor._parameter_meanings | FractionalClassifier._parameter_meanings
    meaning = meanings[name].replace("`", "")
    return f"{meaning} {f'{rules[0]}; ' if rules else ''}{_default(name)} by default."


def _rule(constraint: Any) -> str:
    from sklearn.utils._param_validation import Interval, StrOptions

    from fracdnn.estimators.parameters import AUTO

    if constraint == AUTO:  # of which the meaning tells
        return ""
    if isinstance(constraint, StrOptions):
        return f"One of {', '.join(sorted(constraint.options))}"
    if not isinstance(constraint, Interval):
        return ""
    left, right, closed = constraint.left, constraint.right, constraint.closed
    low = f"{'At least' if closed in ('left', 'both') else 'Above'} {left}"
    return low if right is None else f"{low}, {'at most' if closed in ('right', 'both') else 'below'} {right}"


def _default(name: str) -> str:
    from fracdnn.estimators import FractionalClassifier, FractionalRegressor

    if name in DEFAULTS:
        return DEFAULTS[name]
    kinds = (inspect.signature(kind).parameters for kind in (FractionalClassifier, FractionalRegressor))
    return _shown(next(kind[name].default for kind in kinds if name in kind))


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    return "none" if default is None else str(default)


def _number_or(kind: type, words: list[str]) -> Callable[[str], Any]:
    """What parses a number or one of the words, which stay as they are."""

    def parsed(text: str) -> Any:
        if text.lower() in words:
            return text.lower()
        try:
            return kind(text)
        except ValueError:
            what = "whole number" if kind is int else "number"
            raise typer.BadParameter(f"{text!r} is neither a {what} nor {' or '.join(map(repr, words))}") from None

    return parsed


def _shape(text: str) -> Any:
    """Such as 8x8, or none."""
    if text.lower() == "none":
        return "none"
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise typer.BadParameter(f"{text!r} is no pair of whole numbers such as 8x8")
    return tuple(int(part) for part in parts)


def check_encoding(name: str) -> None:
    try:
        checked_encoding(name)
    except InvalidArgumentError as error:
        raise typer.BadParameter(str(error), param_hint="--encoding") from None


def read_config(path: Path, names: list[str]) -> dict[str, Any]:
    """The settings of a TOML file; a key that is no option is an error."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fail(f"{path} must be a TOML file, got one that cannot be read ({error}); correct it")
    settings = {key.replace("-", "_"): value for key, value in document.items()}
    for key, value in settings.items():
        if key not in names:
            fail(f"{path} must hold options of `fracdnn train`, got the key {nearest(key, names)}; see --help")
        kinds = OWN_KINDS.get(key)
        if kinds == (list,) and isinstance(value, str):
            settings[key] = [value]
        elif kinds and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            fail(f"{path} must hold a {kinds[0].__name__} for {key}, got {value!r}; correct it")
        elif not kinds and value == "none":
            settings[key] = None
        elif key == "grid_shape" and isinstance(value, str):
            settings[key] = _shape(value)
    return settings


def chosen(given: dict[str, Any]) -> dict[str, Any]:
    """Those that were given, with the word none for an estimator's parameter as Python has it."""
    return {
        name: None if value == "none" and name not in OWN_KINDS else value
        for name, value in given.items()
        if value is not None
    }
