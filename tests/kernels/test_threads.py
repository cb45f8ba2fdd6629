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
    assert on_threads(lambda part: part != wrong, 3) is False


@pytest.mark.parametrize("wrong", [0, 2])
def test_an_error_in_a_part_is_raised_when_all_have_ended(wrong):
    ended = []

    def work(part):
        if part == wrong:
            raise ValueError("no")
        ended.append(part)
        return True

    with pytest.raises(ValueError, match="no"):
        on_threads(work, 3)
    assert sorted(ended) == sorted({0, 1, 2} - {wrong})
