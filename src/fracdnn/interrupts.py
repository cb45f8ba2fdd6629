"""Ctrl-C while a large module is imported or a record is written."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

_deferred: list[Callable[[], Any]] | None = None  # interrupts that run when the current block ends


def interrupt() -> None:
    """Do what Ctrl-C would do if it is ignored: now, or at the end of the block of `interrupt_afterwards`."""
    if _deferred is None:
        raise KeyboardInterrupt
    _deferred.append(interrupt)


@contextmanager
def interrupt_afterwards() -> Iterator[None]:
    """Defer Ctrl-C until the block exits; a second Ctrl-C takes effect at once.

    A KeyboardInterrupt raised while an import cleans up is lost, and one raised in text that a module executes on
    import ends Python by the signal later, even if it is caught. So the usual handler is called when the block exits or
    fails.

    Nothing is deferred outside the main thread, which gets no signals. If Ctrl-C is ignored, `interrupt` is deferred.
    """
    global _deferred
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler: Any = signal.getsignal(signal.SIGINT)
    outer, deferred = _deferred, list[Callable[[], Any]]()
    _deferred = deferred

    def defer(*received: Any) -> None:
        deferred.append(partial(handler, *received))
        if len(deferred) > 1:
            handler(*received)

    if callable(handler):
        signal.signal(signal.SIGINT, defer)
    try:
        yield
    finally:
        _deferred = outer
        if callable(handler):
            signal.signal(signal.SIGINT, handler)
        if deferred:
            deferred[0]()
