"""Options that are listed once, where they are taken, and shown wherever they are passed on."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn

from fracdnn.exceptions import InvalidTypeError

# As in the constructors of torch's modules.
Device = torch.device | str | None
DType = torch.dtype | None


def options_of(owner: type) -> dict[str, inspect.Parameter]:
    """The keyword options of a class, by name."""
    parameters = inspect.signature(owner).parameters.items()
    return {name: each for name, each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}


def takes_options_of(owner: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """For an `__init__` that ends in `**options` of another class: `help()` lists them, unknown ones are refused."""

    def decorate(init: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(init)
        named = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        names = {p.name for p in named}
        theirs = {name: each for name, each in options_of(owner).items() if name not in names}

        @wraps(init)
        def checked(self: Any, *arguments: Any, **options: Any) -> None:
            unknown = options.keys() - names - theirs.keys()
            if unknown:
                kind = type(self).__name__
                known = ", ".join(sorted({*names, *theirs} - {"self"}))
                raise InvalidTypeError(f"{kind} must be given options it has, got {min(unknown)!r}; it takes {known}")
            init(self, *arguments, **options)

        checked.__signature__ = own.replace(parameters=[*named, *theirs.values()])  # type: ignore[attr-defined]
        return checked

    return decorate


def reset_modules(module: nn.Module) -> None:
    """Reset all modules within one that can be; those within others first, since attention resets more than its own."""
    for part in reversed(list(module.modules())[1:]):
        reset = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
        if reset is not None:
            reset()
