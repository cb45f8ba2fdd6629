"""Ctrl-C while something is compiled or imported."""

import importlib
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupt_afterwards() -> Iterator[None]:
    """Within, Ctrl-C waits.

    LLVM calls back into Python now and then, and would lose an exception raised there; so would the end of an import.
    And one raised in code that an import makes of text has Python end by the signal, though it was dealt with.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[tuple[Any, ...]] = []

    def keep(*what: Any) -> None:
        came.append(what)
        if len(came) > 1:  # whoever asks twice does not want to wait
            handler(*what)

    signal.signal(signal.SIGINT, keep)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[0])


def import_whole(name: str) -> None:
    """Import a module that takes long, as far as it is not there yet."""
    if name not in sys.modules:
        with interrupt_afterwards():
            importlib.import_module(name)
