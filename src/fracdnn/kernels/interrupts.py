"""Ctrl-C while a kernel is compiled or a large module is imported."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupt_afterwards() -> Iterator[None]:
    """Defer Ctrl-C until the block exits; a second Ctrl-C takes effect at once.

    Compilers and imports lose a KeyboardInterrupt. LLVM calls back into Python from C, where an exception is printed
    and dropped; so is one raised while an import cleans up. One raised in source text that a module executes while it
    is imported is worse: even if it is caught, Python ends by the signal when the program is done. So the block only
    notes the signal, and the usual handler is called when it exits, whether or not it failed.

    Nothing is deferred outside the main thread, which gets no signals, or where Ctrl-C is ignored or handled by C code.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
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
