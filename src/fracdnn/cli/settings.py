"""The options of `fracdnn train` beside the estimators' parameters, each declared once: type, default, help."""

import inspect
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from fracdnn.exceptions import InvalidArgumentError

ENCODING = "utf-8"
# Seconds to wait for another process.
TIMEOUT = 1800.0
Encoding = Annotated[
    str,
    typer.Option(
        help="How a .csv or .tsv file is encoded, such as latin-1, cp1252 or utf-16; utf-8 by default.",
        show_default=False,
    ),
]
Sheet = Annotated[str | None, typer.Option(help="The sheet of an .xlsx file; the first one by default.")]
Timeout = Annotated[
    float,
    typer.Option(help="Under torchrun: seconds to wait for another process; 1800 by default.", show_default=False),
]
Names = list[str]


@dataclass
class Settings:
    """What `train` does beside the estimator's own parameters, which are in `parameters`."""

    target: Annotated[str, typer.Option(help="The column to predict.")]
    task: Annotated[str, typer.Option(help="auto, classification or regression; auto looks at the target.")] = "auto"
    test_fraction: Annotated[float, typer.Option(help="Rows held out to test the model; 0.2 by default.")] = 0.2
    drop: Annotated[Names, typer.Option(help="A column to leave out; may be repeated.")] = field(default_factory=list)
    keep: Annotated[
        Names, typer.Option(help="A column to use, though it looks like row numbers or an id; repeatable.")
    ] = field(default_factory=list)
    categorical: Annotated[Names, typer.Option(help="A column whose numbers are categories; may be repeated.")] = field(
        default_factory=list
    )
    decimal: Annotated[str, typer.Option(help="The decimal sign, . or , of ambiguous columns such as 1,234.")] = ""
    search: Annotated[bool, typer.Option("--search", help="Try settings by cross-validation.")] = False
    jobs: Annotated[int, typer.Option(help="Processes for --search; -1 for all cores.")] = 1
    memory_limit: Annotated[
        str | None,
        typer.Option(help="Stream a table that needs more memory, such as 2GB; half of the free memory by default."),
    ] = None
    start_over: Annotated[
        bool, typer.Option("--start-over", help="Discard the checkpoint of an earlier training; see --resume.")
    ] = False
    encoding: Encoding = ENCODING
    sheet: Sheet = None
    timeout: Timeout = TIMEOUT
    parameters: dict[str, Any] = field(default_factory=dict)
    spaces_checkpoints: bool = False
    metrics: Path | None = None

    def document(self) -> dict[str, Any]:
        """Those that say what is learned, with defaults."""
        from fracdnn.estimators import FractionalClassifier, FractionalRegressor
        from fracdnn.parameters import LOCAL_PARAMETERS

        elsewhere = ("jobs", "memory_limit", "timeout", "parameters", "start_over", "spaces_checkpoints", "metrics")
        own = {name: value for name, value in asdict(self).items() if name not in elsewhere}
        parameters = FractionalRegressor().get_params() | FractionalClassifier().get_params() | self.parameters
        local = (*LOCAL_PARAMETERS, "checkpoint_every", "max_time")
        return own | {name: value for name, value in parameters.items() if name not in local}


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def bytes_of(text: str | float) -> int:
    """A number of bytes, perhaps with a unit: 500MB, 2GB, 1.5G."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", str(text).strip().lower())
    if found is None:
        raise InvalidArgumentError(
            f"memory_limit must be a number of bytes such as 500MB or 2GB, got {str(text)!r:.40}"
        )
    return int(float(found[1]) * _UNITS[found[2]])


_HINTS = get_type_hints(Settings, include_extras=True)
# The type of each of them.
KINDS = {name: hint.__origin__ for name, hint in _HINTS.items() if hasattr(hint, "__metadata__")}


def own_options() -> list[inspect.Parameter]:
    """A parameter of the command for each of them, None where it is not given."""
    return parameters_of({name: Annotated[kind | None, *_HINTS[name].__metadata__] for name, kind in KINDS.items()})


def parameters_of(annotations: dict[str, Any]) -> list[inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(name, kind, default=None, annotation=each) for name, each in annotations.items()]
