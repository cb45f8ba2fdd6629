"""Work shared among Python's threads: each piece is done once, beside the others, and what fails is told."""

import threading

import pytest

from fracdnn.kernels.threads import MAX_THREADS, on_threads


@pytest.mark.parametrize("count", [1, 2, 3, MAX_THREADS])
def test_each_piece_runs_once_and_beside_the_others(count):
    met, seen = threading.Barrier(count, timeout=60), []

    def piece(number, thread):
        met.wait()  # broken unless all threads are under way at a time
        seen.append((number, thread))

    on_threads(piece, count, count)
    assert sorted(number for number, _ in seen) == list(range(count))
    assert sorted(thread for _, thread in seen) == list(range(count))


def test_a_thread_takes_one_piece_after_another():
    seen = []
    on_threads(lambda number, thread: seen.append((number, thread)), 100, 1)
    assert seen == [(number, 0) for number in range(100)]


@pytest.mark.parametrize("wrong", [0, 2])
def test_an_error_in_a_piece_is_raised_when_all_have_ended(wrong):
    met, ended = threading.Barrier(3, timeout=60), []

    def piece(number, thread):
        met.wait()
        if number == wrong:
            raise ValueError("no")
        ended.append(number)

    with pytest.raises(ValueError, match="no"):
        on_threads(piece, 3, 3)
    assert sorted(ended) == sorted({0, 1, 2} - {wrong})


def test_threads_that_have_not_begun_when_the_work_is_done_are_not_waited_for():
    """While others keep all threads busy, the thread that asks does all of the work."""
    ready, done = threading.Barrier(MAX_THREADS + 2, timeout=60), threading.Event()

    def block(number, thread):
        ready.wait()
        done.wait(60)

    busy = threading.Thread(target=on_threads, args=(block, MAX_THREADS + 1, MAX_THREADS + 1))
    busy.start()
    seen = []
    try:
        ready.wait()
        on_threads(lambda number, thread: seen.append((number, thread)), 5, 2)
    finally:
        done.set()
        busy.join()
    assert seen == [(number, 0) for number in range(5)]
