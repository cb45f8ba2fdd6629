"""What a command needs is imported when it runs, so that the others, help and completion start at once."""

from importlib import import_module
from typing import Any

from fracdnn.kernels.interrupts import interrupt_afterwards


def loaded(name: str, *, trains: bool = False) -> Any:
    """The module `fracdnn.cli.<name>`, imported with Ctrl-C deferred: an import would lose it.

    `trains` also imports torch._dynamo. torch's first optimiser would import it, in the midst of a training, where
    Ctrl-C means something else: to stop early and keep the model.
    """
    with interrupt_afterwards():
        if trains:
            import_module("torch._dynamo")
        return import_module(f"fracdnn.cli.{name}")
