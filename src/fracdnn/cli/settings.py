"""The settings of `fracdnn train`, and what they must be."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import typer

from fracdnn.cli.options import check_encoding
from fracdnn.cli.ranks import TIMEOUT, check_timeout
from fracdnn.estimators import FractionalClassifier, FractionalRegressor
from fracdnn.estimators.parameters import LOCAL_PARAMETERS
from fracdnn.tabular.encodings import UTF_8
from fracdnn.tabular.memory import bytes_of

TASKS = ("auto", "classification", "regression")


@dataclass
class Settings:
    """What `train` does beside the estimator's own parameters, which are in `parameters`."""

    target: str
    task: str = "auto"
    test_fraction: float = 0.2
    drop: list[str] = field(default_factory=list)
    keep: list[str] = field(default_factory=list)
    categorical: list[str] = field(default_factory=list)
    search: bool = False
    jobs: int = 1
    memory_limit: str | float | None = None
    encoding: str = UTF_8
    timeout: float = TIMEOUT
    parameters: dict[str, Any] = field(default_factory=dict)
    start_over: bool = False
    spaces_checkpoints: bool = False

    def document(self) -> dict[str, Any]:
        """Those that say what is learned, with defaults."""
        elsewhere = ("jobs", "memory_limit", "timeout", "parameters", "start_over", "spaces_checkpoints")
        own = {name: value for name, value in asdict(self).items() if name not in elsewhere}
        parameters = FractionalRegressor().get_params() | FractionalClassifier().get_params() | self.parameters
        local = (*LOCAL_PARAMETERS, "checkpoint_every", "max_time")
        return own | {name: value for name, value in parameters.items() if name not in local}


def check_settings(settings: Settings) -> None:
    if settings.task not in TASKS:
        raise typer.BadParameter(f"must be one of {', '.join(TASKS)}, got {settings.task!r}", param_hint="--task")
    if not 0 <= settings.test_fraction < 1:
        raise typer.BadParameter(f"must lie in [0, 1), got {settings.test_fraction}", param_hint="--test-fraction")
    both = [name for name in settings.keep if name in settings.drop]
    if both:
        raise typer.BadParameter(f"must be no column of --drop, got {both[0]!r}; leave one out", param_hint="--keep")
    if settings.memory_limit is not None:
        try:
            bytes_of(settings.memory_limit)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--memory-limit") from None
    if settings.start_over and settings.parameters.get("resume"):
        raise typer.BadParameter("must go without --resume, got both; leave one out", param_hint="--start-over")
    if settings.jobs == 0:
        raise typer.BadParameter("must be a number of processes or -1, got 0", param_hint="--jobs")
    check_timeout(settings.timeout)
    check_encoding(settings.encoding)
    device = str(settings.parameters.get("device", "auto"))
    if device != "auto":
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise typer.BadParameter(str(error).splitlines()[0], param_hint="--device") from None
    for kind in (FractionalClassifier, FractionalRegressor):  # the task is not known yet
        known = {name: value for name, value in settings.parameters.items() if name in kind._parameter_constraints}
        try:
            kind(**known)._validate_params()
        except ValueError as error:
            raise typer.BadParameter(str(error).replace(f" of {kind.__name__}", "")) from None
