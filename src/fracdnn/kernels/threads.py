"""Share work among Python's threads: for compiled code, which does not hold the interpreter's lock.

Numba's own threads are no way: one of its pools ends the process where two Python threads use it at a time, another one
after a fork. Handing work over takes some 50 µs.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

MAX_THREADS = 16


def on_threads(work: Callable[[int], bool], count: int) -> bool:
    """Whether all of work(0), …, work(count − 1) are true; the last one runs in this thread, the others beside it.

    Each takes pieces of work until none are left: one that has not begun when the last one returns is not needed.
    """
    others = [_pool().submit(work, part) for part in range(count - 1)]
    try:
        fine = work(count - 1)
    finally:
        results = [other.result() for other in others if not other.cancel()]
    return fine and all(results)


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="fracdnn")


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads
