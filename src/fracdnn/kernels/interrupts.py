"""Ctrl-C while a kernel is compiled or a large module is imported."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

_deferred: list[Callable[[], Any]] | None = None  # what waits for the end of a block


def interrupt() -> None:
    """Do as Ctrl-C would where it is ignored, now or at the end of the block of `interrupt_afterwards`."""
    if _deferred is None:
        raise KeyboardInterrupt
    _deferred.append(interrupt)


@contextmanager
def interrupt_afterwards() -> Iterator[None]:
    """Defer Ctrl-C until the block exits; a second Ctrl-C takes effect at once.

    Compilers and imports lose a KeyboardInterrupt: LLVM calls back into Python from C, where an exception is printed
    and dropped; so is one raised while an import cleans up. One raised in source text that a module executes on import
    ends Python by the signal later, even if it is caught. So the usual handler is called when the block exits or fails.

    Nothing is deferred outside the main thread, which gets no signals; where Ctrl-C is ignored, `interrupt` is.
    """
    global _deferred
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler: Any = signal.getsignal(signal.SIGINT)
    before, noted = _deferred, list[Callable[[], Any]]()
    _deferred = noted

    def note(*received: Any) -> None:
        noted.append(partial(handler, *received))
        if len(noted) > 1:
            handler(*received)

    if callable(handler):
        signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        _deferred = before
        if callable(handler):
            signal.signal(signal.SIGINT, handler)
        if noted:
            noted[0]()
