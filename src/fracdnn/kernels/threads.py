"""Share pieces of work among Python's threads: for compiled code, which does not hold the interpreter's lock.

Numba's own threads are no way: one of its pools ends the process where two Python threads use it at a time, another one
after a fork, and where other programs use the cores its threads wait for each other for milliseconds. Handing work over
takes some 15 µs here.
"""

import os
import threading
from collections.abc import Callable
from itertools import count
from queue import SimpleQueue
from typing import Any

MAX_THREADS = 16


class _Pool:
    """Threads that wait for work; they end with the process."""

    def __init__(self) -> None:
        self.work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._size, self._lock = 0, threading.Lock()

    def grow(self, size: int) -> None:
        with self._lock:
            for _ in range(self._size, size):
                threading.Thread(target=self._serve, name="fracdnn", daemon=True).start()
            self._size = max(self._size, size)

    def _serve(self) -> None:
        while True:
            self.work.get()()


_pool = _Pool()


def on_threads(piece: Callable[[int, int], Any], n_pieces: int, threads: int) -> None:
    """Call piece(number, thread) once for each number below `n_pieces`, on this thread and up to `threads` − 1 others.

    Each takes the next piece as soon as it has time. A thread that has not begun when none is left is not waited for.
    """
    numbers, order, results = iter(range(n_pieces)), count(), SimpleQueue[BaseException | None]()

    def work() -> None:
        thread = next(order)
        for number in numbers:
            try:
                piece(number, thread)
                results.put(None)
            except BaseException as error:  # told by the thread that waits
                results.put(error)

    _pool.grow(threads - 1)
    for _ in range(threads - 1):
        _pool.work.put(work)
    work()
    errors = [error for _ in range(n_pieces) if (error := results.get())]
    if errors:
        raise errors[0]


def _forget_threads() -> None:
    """A child process has none of its parent's threads."""
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forget_threads)
