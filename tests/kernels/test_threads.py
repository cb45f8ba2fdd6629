"""Work shared among Python's threads: each part runs once, beside the others, and what fails is told."""

import threading

import pytest

from fracdnn.kernels.threads import MAX_THREADS, on_threads


@pytest.mark.parametrize("count", [1, 2, 3, MAX_THREADS])
def test_each_part_runs_once_and_beside_the_others(count):
    met, seen = threading.Barrier(count, timeout=60), []

    def work(part):
        met.wait()  # broken unless all parts are under way at a time
        seen.append(part)
        return True

    assert on_threads(work, count)
    assert sorted(seen) == list(range(count))


@pytest.mark.parametrize("wrong", [0, 2])
def test_one_part_that_is_not_fine_is_enough(wrong):
    met = threading.Barrier(3, timeout=60)
    assert on_threads(lambda part: met.wait() >= 0 and part != wrong, 3) is False


@pytest.mark.parametrize("wrong", [0, 2])
def test_an_error_in_a_part_is_raised_when_all_have_ended(wrong):
    met, ended = threading.Barrier(3, timeout=60), []

    def work(part):
        met.wait()
        if part == wrong:
            raise ValueError("no")
        ended.append(part)
        return True

    with pytest.raises(ValueError, match="no"):
        on_threads(work, 3)
    assert sorted(ended) == sorted({0, 1, 2} - {wrong})


def test_parts_that_have_not_begun_when_the_work_is_done_are_not_waited_for():
    """While others keep all threads busy, the thread that asks does all of the work."""
    ready, done = threading.Barrier(MAX_THREADS + 2, timeout=60), threading.Event()
    busy = threading.Thread(target=on_threads, args=(lambda part: ready.wait() >= 0 and done.wait(60), MAX_THREADS + 1))
    busy.start()
    pieces, seen = iter(range(5)), []

    def work(part):
        seen.extend((part, piece) for piece in pieces)
        return True

    try:
        ready.wait()
        assert on_threads(work, 2)
    finally:
        done.set()
        busy.join()
    assert seen == [(1, piece) for piece in range(5)]
