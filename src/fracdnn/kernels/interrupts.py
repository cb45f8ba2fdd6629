"""Ctrl-C while a kernel is compiled or a large module is imported."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_deferred: list[bool] | None = None  # interrupts that wait for the end of a block, where Ctrl-C is ignored


def interrupt() -> None:
    """Do as Ctrl-C would where it is ignored, now or at the end of the block of `interrupt_afterwards`."""
    if _deferred is None:
        raise KeyboardInterrupt
    _deferred.append(True)


@contextmanager
def interrupt_afterwards() -> Iterator[None]:
    """Defer Ctrl-C until the block exits; a second Ctrl-C takes effect at once.

    Compilers and imports lose a KeyboardInterrupt. LLVM calls back into Python from C, where an exception is printed
    and dropped; so is one raised while an import cleans up. One raised in source text that a module executes while it
    is imported is worse: even if it is caught, Python ends by the signal when the program is done. So the block only
    notes the signal, and the usual handler is called when it exits, whether or not it failed.

    Nothing is deferred outside the main thread, which gets no signals; where Ctrl-C is ignored, `interrupt` is.
    """
    global _deferred
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not callable(handler):
        before, _deferred = _deferred, []
        try:
            yield
        finally:
            waiting, _deferred = _deferred, before
            if waiting:
                interrupt()
        return
    noted: list[tuple[Any, ...]] = []

    def note(*received: Any) -> None:
        noted.append(received)
        if len(noted) > 1:
            handler(*received)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if noted:
            handler(*noted[0])
