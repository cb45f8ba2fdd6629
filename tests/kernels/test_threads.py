"""Kernels on torch's threads: each piece of work is taken once, by however many there are."""

import ctypes
import sys

import numpy as np
import pytest

pytest.importorskip("numba", reason="kernels need Numba")

from numba import carray, cfunc, from_dtype, types

from fracdnn.exceptions import KernelWarning
from fracdnn.kernels import threads
from fracdnn.kernels.threads import Call, numbers, take

RECORD = np.dtype(
    [("taken", np.int64), ("entered", np.int64), ("n", np.int64), ("counts", np.int64), ("weight", np.float64)]
)
N = 1_000_000


@pytest.fixture(scope="module")
def kernel():
    @cfunc(types.void(types.CPointer(from_dtype(RECORD))))
    def count(arguments):
        """Add the weight to each count; `entered` is how many threads did at least one."""
        record = carray(arguments, 1)[0]
        counts = numbers(record.counts, record.n, np.float32)
        piece = take(arguments, 0)
        if piece < record.n:
            take(arguments, 1)
        while piece < record.n:
            counts[piece] += np.float32(record.weight)
            piece = take(arguments, 0)

    return count


def counted(call):
    counts = np.zeros(N, np.float32)
    call(0, N, counts.ctypes.data, 1.5)
    return counts


def test_one_thread(kernel):
    call = Call(kernel, RECORD, 1)
    for _ in range(2):
        assert (counted(call) == 1.5).all()
        assert (call.read("taken"), call.read("entered"), call.read("n")) == (N + 1, 1, N)


@pytest.mark.skipif(sys.platform != "linux", reason="torch has GNU OpenMP on Linux only")
@pytest.mark.parametrize("count", [2, 3])
def test_several_threads_take_each_piece_once(kernel, count):
    call, most = Call(kernel, RECORD, count), 0
    for _ in range(100):  # a busy machine may start the second thread when the work is done
        assert (counted(call) == 1.5).all()
        assert call.read("taken") == N + count
        most = max(most, call.read("entered"))
        if most > 1:
            break
    assert 1 < most <= count


@pytest.fixture
def without_openmp(monkeypatch):
    def fail(_):
        raise OSError("no such library")

    monkeypatch.setattr(ctypes, "CDLL", fail)
    threads._parallel_region.cache_clear()
    yield
    threads._parallel_region.cache_clear()


@pytest.mark.usefixtures("without_openmp")
def test_without_openmp_a_kernel_runs_on_one_thread_and_says_so_once(kernel):
    counted(Call(kernel, RECORD, 1))  # one thread needs none
    with pytest.warns(KernelWarning, match=r"run on one thread.*torch.set_num_threads\(1\) turns this warning off"):
        call = Call(kernel, RECORD, 2)
    assert (counted(call) == 1.5).all()
    assert call.read("entered") == 1
    counted(Call(kernel, RECORD, 2))  # no second warning, which would be an error here


def test_a_record_holds_whole_numbers_and_others(kernel):
    call = Call(kernel, RECORD, 1)
    call(7, 0, 2**62, -0.25)
    assert call.read("counts") == 2**62
    assert call.read("entered") == 7
