"""Ctrl-C while a kernel is compiled: a real signal, in a real process with an empty cache."""

import os
import signal
import subprocess
import sys

import pytest

from fracdnn.kernels.interrupts import interrupt_afterwards
from tests.kernels.little import package_with_a_little_kernel

pytest.importorskip("numba", reason="there is nothing to compile without Numba")

# LLVM calls Python back with each object it has compiled. An exception raised there is printed and forgotten, so that
# is where the signal comes.
PROGRAM = """
import signal, sys
import torch
from numba.core.codegen import CPUCodeLibrary
from fracdnn.nn import FractionalNetwork

left = int(sys.argv[1])
compiled = CPUCodeLibrary._object_compiled_hook.__func__

def interrupted(cls, *arguments):
    global left
    left -= 1
    if left == 0:
        signal.raise_signal(signal.SIGINT)
    return compiled(cls, *arguments)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
CPUCodeLibrary._object_compiled_hook = classmethod(interrupted)
net = FractionalNetwork(2, 2, n_layers=2)
try:
    net(torch.zeros(3, 2))
except KeyboardInterrupt:
    print("interrupted" if left <= 0 else "too early")
else:
    print("lost")
"""


@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_ctrl_c_is_not_lost(number, tmp_path):
    """In the middle of the first or the third object: compiling is brought to its end, then the interrupt is raised."""
    package_with_a_little_kernel(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", PROGRAM, str(number)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.stdout == "interrupted\n", run.stderr
    assert "ignored" not in run.stderr


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
