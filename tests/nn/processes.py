"""Two processes of one script, for tests of distributed training."""

import os
import subprocess
import sys


def run_as_two_processes(script):
    """Run `script RANK STORE OUT` twice at once; each must end well and write "agrees" to OUT + RANK."""
    folder, environment = script.parent, {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script)]
    runs = [
        subprocess.Popen([*command, str(rank), str(folder / "store"), str(folder / "out")], env=environment)
        for rank in range(2)
    ]
    assert [run.wait(timeout=120) for run in runs] == [0, 0]
    assert [(folder / f"out{rank}").read_text() for rank in range(2)] == ["agrees"] * 2
