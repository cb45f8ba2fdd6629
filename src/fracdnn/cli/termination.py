"""How the command ends early: by SIGTERM, which is taken as Ctrl-C, and by errors that a restart would meet again.

Only the standard library, so that both hold before anything else is imported.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fracdnn.interrupts import interrupt

_received = False
_GRACE = 30.0  # seconds that torchrun, too, leaves its processes after SIGTERM


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
        if callable(handler):
            handler(signal.SIGINT, frame)
        else:  # Ctrl-C is ignored, as by jobs in the background
            interrupt()

    signal.signal(signal.SIGTERM, end)


def end_with_launcher() -> None:
    """From now on, take the end of torchrun for SIGTERM: nobody would end, or start again, what it leaves behind."""
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(0.5)
        if os.environ.get("LOCAL_RANK") == "0":
            print("fracdnn: torchrun is gone, so this training ends", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        os._exit(128 + signal.SIGTERM)  # such as one that waits for the others in C, where no signal is seen

    if "TORCHELASTIC_RUN_ID" in os.environ and launcher > 1:
        threading.Thread(target=watch, daemon=True).start()


def _note() -> Path | None:
    """Of an error, for all restarts: beside the folders of torchrun's attempts, LOGS/attempt_0/0/error.json."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    return Path(file).parent.parent.parent / "fracdnn-failed" if file else None


def note_permanent(message: str) -> None:
    """Keep an error for the processes that torchrun starts again."""
    note = _note()
    if note is not None and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
        with suppress(OSError):  # no restart is spared then
            note.write_text(message, encoding="utf-8")


def end_if_permanent() -> None:
    """End with exit code 1 if the processes before failed for good."""
    note = _note()
    if note is None or not note.is_file():
        return
    with suppress(FileExistsError):  # the first process of an attempt tells; torchrun ends the others when it ends
        Path(os.environ["TORCHELASTIC_ERROR_FILE"]).parent.with_name("fracdnn-told").touch(exist_ok=False)
        why = note.read_text(encoding="utf-8", errors="replace")
        print(f"fracdnn: not retried, because it would fail again: {why}", file=sys.stderr)
    sys.exit(1)
