"""Many runs in processes of one thread each."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for_end
from typing import Any, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")
DIED = "the process died"
# Numerical libraries read these when they are imported, so they are set before processes begin.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def results(
    work: Callable[[Job], Result], jobs: Iterable[Job], processes: int, died: Callable[[Job, str], Result]
) -> Iterator[tuple[Job, Result]]:
    """Each job with its result as it comes. A job that ends its process, when it runs alone, gives what `died` says."""
    waiting = list(jobs)[::-1]
    while waiting:
        suspects: list[Job] = []
        with _pool(processes) as pool:
            yield from _until_broken(pool, work, waiting, processes, suspects)
        for job in suspects:
            with _pool(1) as pool:
                try:
                    yield job, pool.submit(work, job).result()
                except BrokenProcessPool:
                    yield job, died(job, DIED)


def _until_broken(
    pool: ProcessPoolExecutor, work: Callable[[Job], Result], waiting: list[Job], processes: int, suspects: list[Job]
) -> Iterator[tuple[Job, Result]]:
    """As many at a time as there are processes; where one of these dies, `suspects` are the jobs under way."""
    under_way: dict[Future[Any], Job] = {}
    while waiting or under_way:
        while waiting and len(under_way) < processes and not suspects:
            job = waiting.pop()
            try:
                under_way[pool.submit(work, job)] = job
            except BrokenProcessPool:
                suspects.append(job)
        if not under_way:
            return
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            job = under_way.pop(future)
            try:
                result = future.result()
            except BrokenProcessPool:
                suspects.append(job)
            else:
                yield job, result


class _pool:  # noqa: N801
    """A pool whose processes end at once, and with their parent, however that ends."""

    def __init__(self, processes: int) -> None:
        os.environ.update(ONE_THREAD)
        context = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(processes, mp_context=context, initializer=_begin)

    def __enter__(self) -> ProcessPoolExecutor:
        return self._executor

    def __exit__(self, *reason: object) -> None:
        if reason[0] is not None:
            for process in list((self._executor._processes or {}).values()):
                process.terminate()
        self._executor.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for_end([parent.sentinel])
        os._exit(1)
