"""SIGTERM, as `kill`, a scheduler or a container sends it, taken as Ctrl-C: no temporary file or lock is left."""

import os
import signal
import threading
from typing import Any

_received = False


def exit_code() -> int:
    """Of a command that was interrupted: 143 by SIGTERM, else 130."""
    return 128 + (signal.SIGTERM if _received else signal.SIGINT)


def take_as_interrupt() -> None:
    """From now on, let the first SIGTERM do what Ctrl-C would, now or, where it is deferred, later."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return
    process = os.getpid()

    def end(number: int, frame: Any) -> None:
        global _received
        if _received:  # torchrun hands on what a scheduler has sent already; what ends here is to be whole
            return
        if os.getpid() != process:  # forked from the command, to be ended as any other
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        _received = True
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # Ctrl-C is ignored, as by jobs in the background
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    signal.signal(signal.SIGTERM, end)
