"""What is wrong for good, kept for the processes that torchrun starts again: they stop at once.

The note lies in the folder that torchrun makes for its logs, one for all restarts. Only the standard library, so that
it is read before anything else is imported.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path


def _note() -> Path | None:
    """Beside the folders of torchrun's attempts, LOGS/attempt_0/0/error.json."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    return Path(file).parent.parent.parent / "fracdnn-failed" if file else None


def mark(message: str) -> None:
    """Note an error that a restart would meet again."""
    note = _note()
    if note is not None and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
        with suppress(OSError):  # no restart is spared then
            note.write_text(message, encoding="utf-8")


def check() -> None:
    """End with exit code 1 if the processes before failed for good."""
    note = _note()
    if note is None or not note.is_file():
        return
    with suppress(FileExistsError):  # the first process of an attempt tells; torchrun ends the others when it ends
        Path(os.environ["TORCHELASTIC_ERROR_FILE"]).parent.with_name("fracdnn-told").touch(exist_ok=False)
        why = note.read_text(encoding="utf-8", errors="replace")
        print(f"fracdnn: not retried, because it would fail again: {why}", file=sys.stderr)
    sys.exit(1)
