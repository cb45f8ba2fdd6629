"""Command-line options made from the estimators' parameters: names, types, limits and defaults have one source."""

import inspect
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any

import typer

from fracdnn.cli.messages import fail
from fracdnn.cli.settings import KINDS, Names, Settings, bytes_of, parameters_of
from fracdnn.columns.words import nearest
from fracdnn.kernels.interrupts import interrupt_afterwards
from fracdnn.parameters import AUTO, BOOLEAN, SEED, ClassifierParameters, Interval, RegressorParameters, Words
from fracdnn.tabular.reading import checked_encoding

TASKS = ("auto", "classification", "regression")
# Defaults that the command has instead of the estimators'.
DEFAULTS = {
    "random_state": "0",
    "checkpoint_path": "with --run, --checkpoint-every or --max-time MODEL.ckpt beside the model, else none",
    "checkpoint_every": "with --run a twentieth of --max-iter, 50 at most, else 50",
}
_ESTIMATORS = (ClassifierParameters, RegressorParameters)
# What the command line takes for a rule of theirs, and a TOML file for an option of a type.
_KINDS: dict[Any, type] = {BOOLEAN: bool, SEED: int, Integral: int, Real: float}
_TOML: dict[Any, tuple[type, ...]] = {float: (float, int), Names: (list,), str | None: (str, int, float)}


def estimator_options() -> list[inspect.Parameter]:
    """A parameter of the command for each parameter of the estimators, None where it is not given."""
    every = {name: rules for each in _ESTIMATORS for name, rules in each._parameter_rules.items()}
    del every["verbose"]  # which --quiet is for
    return parameters_of({name: _annotation(name, constraints) for name, constraints in every.items()})


def _annotation(name: str, constraints: list[Any]) -> Any:
    kinds = (_KINDS.get(getattr(rule, "type", rule)) for rule in constraints)
    kind, flag = next(filter(None, kinds), str), f"--{name.replace('_', '-')}"
    options: dict[str, Any] = {"rich_help_panel": "Network and training", "show_default": False}
    options["help"] = _help(name, constraints)
    if kind is bool:
        return Annotated[bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", **options)]
    words = [word for word, rule in (("none", None), ("auto", AUTO)) if rule in constraints]
    if words and kind in (int, float):
        shown = "|".join(["INTEGER" if kind is int else "FLOAT", *words])
        return Annotated[Any, typer.Option(flag, parser=_number_or(kind, words), metavar=shown, **options)]
    return Annotated[kind | None, typer.Option(flag, **options)]


def _help(name: str, constraints: list[Any]) -> str:
    estimator = next(each for each in _ESTIMATORS if name in each._parameter_meanings)
    # Of "auto" the meaning tells.
    rules = (rule for rule in constraints if isinstance(rule, Interval | Words) and rule != AUTO)
    shown = (f"one of {', '.join(sorted(rule))}" if isinstance(rule, Words) else str(rule) for rule in rules)
    rule = next((f"{text[0].upper()}{text[1:]}; " for text in shown), "")
    default = DEFAULTS.get(name) or str(getattr(estimator(), name))
    default = {"True": "yes", "False": "no", "None": "none"}.get(default, default)
    return f"{estimator._parameter_meanings[name].replace('`', '')} {rule}{default} by default."


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


def settings_of(given: dict[str, Any], config: Path | None) -> Settings:
    """The options given to `fracdnn train`, and those of its TOML file that are not, checked."""
    settings = {} if config is None else _read_config(config, list(given))
    for name, value in given.items():
        if value is not None and value != []:
            settings[name] = None if value == "none" and name not in KINDS else value
    if "target" not in settings:
        raise typer.BadParameter("pass --target COLUMN: the column to predict", param_hint="--target")
    own = {name: settings.pop(name) for name in KINDS if name in settings}
    found = Settings(**own, parameters=settings)
    _check(found)
    return found


def _read_config(path: Path, names: list[str]) -> dict[str, Any]:
    """The settings of a TOML file; a key that is no option is an error."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fail(f"{path} must be a TOML file, got one that cannot be read ({error}); correct it")
    settings = {key.replace("-", "_"): value for key, value in document.items()}
    for key, value in settings.items():
        if key not in names:
            fail(f"{path} must hold options of `fracdnn train`, got the key {nearest(key, names)}; see --help")
        if key not in KINDS:
            settings[key] = None if value == "none" else value
            continue
        kinds = _TOML.get(KINDS[key], (KINDS[key],))
        if kinds == (list,) and isinstance(value, str):
            settings[key] = [value]
        elif not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            fail(f"{path} must hold a {kinds[0].__name__} for {key}, got {value!r}; correct it")
    return settings


def _check(settings: Settings) -> None:
    if settings.task not in TASKS:
        raise typer.BadParameter(f"must be one of {', '.join(TASKS)}, got {settings.task!r}", param_hint="--task")
    if settings.decimal not in ("", ".", ","):
        raise typer.BadParameter(f"must be . or ,, got {settings.decimal!r}", param_hint="--decimal")
    if not 0 <= settings.test_fraction < 1:
        raise typer.BadParameter(f"must lie in [0, 1), got {settings.test_fraction}", param_hint="--test-fraction")
    both = [name for name in settings.keep if name in settings.drop]
    if both:
        raise typer.BadParameter(f"must be no column of --drop, got {both[0]!r}; leave one out", param_hint="--keep")
    if settings.start_over and settings.parameters.get("resume"):
        raise typer.BadParameter("must go without --resume, got both; leave one out", param_hint="--start-over")
    if settings.jobs == 0:
        raise typer.BadParameter("must be a number of processes or -1, got 0", param_hint="--jobs")
    with _as_errors_of("--memory-limit"):
        bytes_of(0 if settings.memory_limit is None else settings.memory_limit)
    check_encoding(settings.encoding)
    device = str(settings.parameters.get("device", "auto"))
    if device not in ("auto", "cpu"):  # of others torch knows, which takes seconds to import
        with interrupt_afterwards():
            import torch
        with _as_errors_of("--device"):
            torch.empty(0, device=device)
    for kind in _ESTIMATORS:  # the task is not known yet
        known = {name: value for name, value in settings.parameters.items() if name in kind._parameter_rules}
        try:
            kind(**known)._check_parameters()
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None


@contextmanager
def _as_errors_of(option: str) -> Iterator[None]:
    """What a check raises, as an error of the option."""
    try:
        yield
    except (ValueError, RuntimeError, AssertionError) as error:
        raise typer.BadParameter(str(error).splitlines()[0], param_hint=option) from None


def check_encoding(name: str) -> None:
    with _as_errors_of("--encoding"):
        checked_encoding(name)
