"""Many jobs in processes of one thread each."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from itertools import islice
from multiprocessing.connection import wait as wait_for_end
from typing import Any

DIED = "the process died"
# Numerical libraries read these when they are imported, so they are set before processes begin.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def in_processes(work: Callable[[Any], Any], jobs: Iterable[Any], processes: int) -> Iterator[tuple[Any, Any]]:
    """Each job with its result as it comes, `DIED` where it ended its process. 0 processes: here, one by one."""
    if not processes:
        yield from ((job, work(job)) for job in jobs)
        return
    os.environ.update(ONE_THREAD)
    with ExitStack() as stack:
        waiting, busy, idle = iter(jobs), {}, [stack.enter_context(_process()) for _ in range(processes)]
        while True:
            for job in islice(waiting, len(idle)):
                process = idle.pop()
                busy[process.submit(work, job)] = job, process
            if not busy:
                return
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                job, process = busy.pop(future)
                died = isinstance(future.exception(), BrokenProcessPool)
                idle.append(stack.enter_context(_process()) if died else process)
                yield job, DIED if died else future.result()


@contextmanager
def _process() -> Iterator[ProcessPoolExecutor]:
    """A pool of one, which ends at once where something is raised here, and with this process, however that ends."""
    executor = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        yield executor
    except BaseException:
        for process in list((executor._processes or {}).values()):
            process.terminate()
        raise
    finally:
        executor.shutdown()


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    wait_for_end([multiprocessing.parent_process().sentinel])  # type: ignore[union-attr]
    os._exit(1)
