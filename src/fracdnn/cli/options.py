"""The options of `fracdnn train`: those of the estimators, and others that are declared in the same way."""

import inspect
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from fracdnn.cli.messages import fail
from fracdnn.interrupts import interrupt_afterwards
from fracdnn.parameters import (
    AUTO,
    BOOLEAN,
    POSITIVE,
    SEED,
    ClassifierParameters,
    Interval,
    RegressorParameters,
    SharedParameters,
    Words,
    parameter,
    with_parameters,
)
from fracdnn.tables.reading import checked_encoding
from fracdnn.tables.words import nearest

ENCODING = "utf-8"
# Seconds to wait for another process.
TIMEOUT = 1800.0
_TASKS, _NAMES = Words({"auto", "classification", "regression"}), [list, tuple]


@with_parameters
class Settings:
    """What `train` does beside the estimator's own parameters, which are in `parameters`."""

    _parameter_rules: ClassVar[dict[str, list[Any]]]
    _parameter_meanings: ClassVar[dict[str, str]]

    target: str = parameter([str], "The column to predict.", default=None)
    task: str = parameter([_TASKS], "What to learn; auto looks at the target.", default="auto")
    test_fraction: float = parameter(
        [Interval(Real, 0, 1, closed="[")], "Share of the rows held out to test the model.", default=0.2
    )
    drop: list[str] = parameter(_NAMES, "A column to leave out; may be repeated.", default=())
    keep: list[str] = parameter(
        _NAMES, "A column to use, though it looks like row numbers or an id; may be repeated.", default=()
    )
    categorical: list[str] = parameter(_NAMES, "A column whose numbers are categories; may be repeated.", default=())
    decimal: str = parameter(
        [Words({"", ".", ","})], "The decimal sign, . or , of ambiguous columns such as 1,234.", default=""
    )
    start_over: bool = parameter(
        [BOOLEAN], "Discard the checkpoint of an earlier training; see --resume.", default=False
    )
    encoding: str = parameter(
        [str], "Encoding of a .csv or .tsv file, such as latin-1, cp1252 or utf-16.", default=ENCODING
    )
    sheet: str | None = parameter([None, str], "The sheet of an .xlsx file. Default: the first one.", default=None)
    timeout: float = parameter([POSITIVE], "Under torchrun: seconds to wait for another process.", default=TIMEOUT)
    parameters: dict[str, Any] = parameter([dict], "The estimator's parameters.", default=None)


Encoding = Annotated[str, typer.Option(help=Settings._parameter_meanings["encoding"])]
Sheet = Annotated[str | None, typer.Option(help=Settings._parameter_meanings["sheet"])]
# Defaults that the command has instead of the estimators'.
DEFAULTS = {
    "random_state": "0",
    "checkpoint_path": "MODEL.ckpt next to the model with --run or --max-time, else none",
}
_DECLARED: tuple[Any, ...] = (Settings, ClassifierParameters, RegressorParameters)
# --quiet is for the second; a command has no fit before.
_NO_OPTIONS = ("parameters", "verbose")
# What the command line shows for a default, and takes for a rule.
_IN_WORDS = {"True": "yes", "False": "no", "None": "none"}
_KINDS: dict[Any, Any] = {BOOLEAN: bool, SEED: int, Integral: int, Real: float, list: list[str]}


def train_options() -> list[inspect.Parameter]:
    """A parameter of the command for each that is declared, None where it is not given."""
    kind = inspect.Parameter.KEYWORD_ONLY
    options: dict[str, inspect.Parameter] = {}
    for declared in _DECLARED:
        for name, rules in declared._parameter_rules.items():
            if name not in (*options, *_NO_OPTIONS):
                annotation = _annotation(name, rules, _help(declared, name, rules))
                options[name] = inspect.Parameter(name, kind, default=None, annotation=annotation)
    return list(options.values())


def _annotation(name: str, rules: list[Any], text: str) -> Any:
    kinds = (_KINDS.get(getattr(rule, "type", rule)) for rule in rules)
    kind, flag = next(filter(None, kinds), str), f"--{name.replace('_', '-')}"
    options: dict[str, Any] = {"help": text, "show_default": False}
    if kind is bool:
        return Annotated[bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", **options)]
    if kind in (int, float):
        words = [word for word, rule in (("none", None), ("auto", AUTO)) if rule in rules]
        options |= {"metavar": f"<{'|'.join([kind.__name__, *words])}>"}
        return Annotated[Any, typer.Option(flag, parser=lambda text: _number_or_word(kind, text), **options)]
    return Annotated[kind | None, typer.Option(flag, **options)]


def _help(declared: Any, name: str, rules: list[Any]) -> str:
    # Of "auto" the meaning tells; of signs, too.
    rule = next((str(rule) for rule in rules if isinstance(rule, Interval)), "")
    for words in (each for each in rules if isinstance(each, Words) and each != AUTO and "" not in each):
        rule = f"one of {', '.join(sorted(words))}"
    default = DEFAULTS.get(name) or str(getattr(declared(), name))
    parts = [declared._parameter_meanings[name].replace("`", ""), rule and f"{rule[0].upper()}{rule[1:]}."]
    if declared is not Settings or default not in ("None", "()", ""):
        parts.append(f"Default: {_IN_WORDS.get(default, default)}.")
    return " ".join(filter(None, parts))


def _number_or_word(kind: type, text: str) -> Any:
    """A number, or a word for the parameter's own check."""
    try:
        return kind(text)
    except ValueError:
        return text.lower()


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Let the settings of a TOML file stand where the command line gives none; a key that is no option is an error."""
    if path is None:
        return None
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fail(f"{path} must be a TOML file, got one that cannot be read ({error}); correct it")
    options: dict[str, Any] = {each.name: each for each in context.command.params}
    names = [each.name for each in train_options()]
    for key, value in document.items():
        if (name := key.replace("-", "_")) not in names:
            fail(f"{path} must hold options of `fracdnn train`, got the key {nearest(name, names)}; see --help-all")
        cells = [str(each) for each in (value if isinstance(value, list) else [value])]
        options[name].default = cells if options[name].multiple else " ".join(cells)
    return path


def settings_of(given: dict[str, Any]) -> Settings:
    """The options given to `fracdnn train`, checked."""
    found = {name: value for name, value in given.items() if value is not None and value != []}
    if "target" not in found:
        raise typer.BadParameter("pass --target COLUMN: the column to predict", param_hint="--target")
    own = {name: found.pop(name) for name in Settings._parameter_rules if name in found}
    parameters = {name: None if value == "none" else value for name, value in found.items()}
    settings = Settings(**own, parameters=parameters)
    both = [name for name in settings.keep if name in settings.drop]
    if both:
        raise typer.BadParameter(f"must be no column of --drop, got {both[0]!r}; leave one out", param_hint="--keep")
    if settings.start_over and settings.parameters.get("resume"):
        raise typer.BadParameter("must go without --resume, got both; leave one out", param_hint="--start-over")
    check_encoding(settings.encoding)
    # Of both estimators: the task is not known yet.
    checked: list[Any] = [settings]
    for kind in _DECLARED[1:]:
        checked.append(kind(**{name: value for name, value in parameters.items() if name in kind._parameter_rules}))
    with _as_errors_of(None):
        for each in checked:
            SharedParameters._check_parameters(each)
    device = str(settings.parameters.get("device", "auto"))
    if device not in ("auto", "cpu"):  # of others torch knows, which takes seconds to import
        with interrupt_afterwards():
            import torch
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError):
            rule = f"must be auto, cpu or a device that torch finds here, such as cuda, got {device!r}"
            raise typer.BadParameter(rule, param_hint="--device") from None
    return settings


@contextmanager
def _as_errors_of(option: str | None) -> Iterator[None]:
    """What a check raises, as an error of the option."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def check_encoding(name: str) -> None:
    with _as_errors_of("--encoding"):
        checked_encoding(name)
