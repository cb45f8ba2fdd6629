"""Arguments of `fdeint` as test cases write them, all by keyword; and how often func is evaluated."""

from collections.abc import Callable
from typing import Any

import torch

from fracdnn.solver import Adaptive, Given, Graded, Uniform
from fracdnn.solver.rare_options import OPTIONS


def grouped(**given: Any) -> dict[str, Any]:
    """Return the same with the rare ones as `options`, and a grid that is named as an object.

    "graded" takes `n_steps` and `power`, "adaptive" rtol, atol and max_step.
    """
    grid = {name: given.pop(name) for name in ("grid", "power", "max_step") if name in given}
    if "max_step" in grid:
        tolerances = {name: given.pop(name) for name in ("rtol", "atol") if name in given}
        given["grid"] = Adaptive(**tolerances, max_step=grid["max_step"])
    elif grid.get("grid") == "graded" or "power" in grid:
        given["grid"] = Graded(given.pop("n_steps"), grid.get("power"))
    elif grid.get("grid") == "uniform":
        given["grid"] = Uniform(given.pop("n_steps"))
    elif grid.get("grid") == "given":
        given["grid"] = Given()
    elif grid.get("grid") not in (None, "adaptive"):
        given["grid"] = grid["grid"]
    options = {name: value for name, value in given.items() if name in OPTIONS}
    rest = {name: value for name, value in given.items() if name not in OPTIONS}
    return {**rest, "options": options} if options else rest


class NotePoints(torch.autograd.Function):
    """A time as it is; `note` gets the number of points at which a call of func evaluates it: inside of a map, all."""

    @staticmethod
    def forward(time: torch.Tensor, note: Callable[[int], Any]) -> torch.Tensor:
        note(1)
        return time.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, time: torch.Tensor, note: Callable[[int], Any]) -> tuple[torch.Tensor, Any]:
        note(info.batch_size)
        return time.clone(), in_dims[0]
