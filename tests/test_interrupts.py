"""Ctrl-C while something is imported that would lose it."""

import signal

import pytest

from fracdnn.interrupts import interrupt_afterwards


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_is_not_lost_where_the_work_fails(times):
    reached = []

    def work():
        with interrupt_afterwards():
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            reached.append(True)
            raise ImportError

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert bool(reached) == (times == 1)  # whoever asks twice does not wait
