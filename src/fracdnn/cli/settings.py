"""The options of `fracdnn train` beside the estimators' parameters, declared in the same way."""

import re
from dataclasses import asdict
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar

import typer

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.parameters import BOOLEAN, LOCAL_PARAMETERS, POSITIVE, Interval, Words, parameter, with_parameters

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
    search: bool = parameter([BOOLEAN], "Try settings by cross-validation.", default=False)
    jobs: int = parameter([Interval(Integral, -1)], "Processes for --search; -1 for all cores.", default=1)
    memory_limit: str | None = parameter(
        [None, str],
        "Stream a table that needs more memory, such as 2GB. Default: half of the free memory.",
        default=None,
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

    def document(self) -> dict[str, Any]:
        """Those that say what is learned, with defaults."""
        from fracdnn.estimators import FractionalClassifier, FractionalRegressor

        own = asdict(self)
        given = FractionalRegressor().get_params() | FractionalClassifier().get_params() | own.pop("parameters")
        others = ("jobs", "memory_limit", "timeout", "start_over", *LOCAL_PARAMETERS, "checkpoint_every", "max_time")
        return {name: value for name, value in (own | given).items() if name not in others}


Encoding = Annotated[str, typer.Option(help=Settings._parameter_meanings["encoding"])]
Sheet = Annotated[str | None, typer.Option(help=Settings._parameter_meanings["sheet"])]
Timeout = Annotated[float, typer.Option(help=Settings._parameter_meanings["timeout"])]
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def bytes_of(text: str | float) -> int:
    """A number of bytes, perhaps with a unit: 500MB, 2GB, 1.5G."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", str(text).strip().lower())
    if found is None:
        raise InvalidArgumentError(
            f"memory_limit must be a number of bytes such as 500MB or 2GB, got {str(text)!r:.40}"
        )
    return int(float(found[1]) * _UNITS[found[2]])
