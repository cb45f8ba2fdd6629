"""Ctrl-C while a kernel is compiled: a real signal, in a real process with an empty cache."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fracdnn.kernels.interrupts import interrupt_afterwards

pytest.importorskip("numba", reason="there is nothing to compile without Numba")

PROGRAM = """
import time
import torch
from fracdnn.nn import FractionalStack
stack = FractionalStack([torch.nn.Tanh() for _ in range(40)])
print("compiling", flush=True)
try:
    stack(torch.zeros(1000))
    time.sleep(60)  # where compiling was done sooner
except KeyboardInterrupt:
    print("interrupted")
else:
    print("lost")
"""


@pytest.mark.parametrize("delay", [0.1, 0.8, 1.6, 2.4])
def test_ctrl_c_is_not_lost(delay, tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "compiling\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    said, complaints = process.communicate(timeout=120)
    assert said == "interrupted\n", complaints
    assert "ignored" not in complaints


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
