"""The kernel is loaded once, and what goes wrong is reported once."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import fracdnn


def run(code, **environment):
    """Run code in a new process; return what it prints, and what goes to stderr."""
    root = Path(fracdnn.__file__).parents[1]
    paths = os.pathsep.join([environment.pop("before", ""), str(root)]).strip(os.pathsep)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )
    return done.stdout.strip(), done.stderr.strip()


TRITON_REPORT = """
    import torch, warnings
    from fracdnn.exceptions import KernelWarning
    from fracdnn.kernels import loading

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", KernelWarning)
        found = [loading.triton_history(torch.device("cpu")) for _ in range(2)]
    print(found, [str(each.message) for each in told if each.category is KernelWarning])
"""


def test_a_triton_that_does_not_work_is_told_once(tmp_path):
    broken = tmp_path / "triton"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise RuntimeError('no compiler')\n", encoding="utf-8")
    said, _ = run(TRITON_REPORT, before=str(tmp_path), TRITON_INTERPRET="1")
    assert said.startswith("[None, None] [")
    assert said.count("Triton's kernels cannot be used on cpu") == said.count("RuntimeError: no compiler") == 1


def test_triton_has_no_kernels_for_the_cpu(tmp_path):
    """Unless its interpreter is asked for. Nothing is said, and Triton is not even imported."""
    broken = tmp_path / "triton"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise RuntimeError('no compiler')\n", encoding="utf-8")
    assert run(TRITON_REPORT, before=str(tmp_path), TRITON_INTERPRET="0")[0] == "[None, None] []"
