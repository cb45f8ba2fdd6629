"""Share pieces of work among Python's threads: for compiled code, which does not hold the interpreter's lock.

Numba's own threads are no way: one of its pools ends the process where two Python threads use it at a time, another one
after a fork, and that one's threads wait for each other for milliseconds where other programs use the cores. Handing
work over takes some 30 µs.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

MAX_THREADS = 16


def on_threads(piece: Callable[[int, int], Any], n_pieces: int, threads: int) -> None:
    """Call piece(number, thread) for each number below `n_pieces`, on this thread, 0, and up to `threads` − 1 others.

    Each takes the next piece as soon as it has time. One that has not begun when none is left is not waited for.
    """
    numbers = iter(range(n_pieces))

    def work(thread: int) -> None:
        for number in numbers:
            piece(number, thread)

    others = [_pool().submit(work, thread) for thread in range(1, threads)]
    try:
        work(0)
    finally:
        for other in others:
            if not other.cancel():
                other.result()


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="fracdnn")


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads
