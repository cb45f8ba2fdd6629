"""Kernels are compiled once and found on disk later; what goes wrong is said once; no Numba is no news."""

import os
import subprocess
import sys
import textwrap
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import fracdnn
from fracdnn.exceptions import KernelWarning
from fracdnn.kernels import loading
from tests.kernels.little import package_with_a_little_kernel

NUMBA = pytest.mark.skipif(not find_spec("numba"), reason="kernels need Numba")
REPORT = """
    import torch
    from fracdnn.kernels import loading

    print(loading.small_network(torch.float32).state)
"""


def run(code, *, package=None, **environment):
    """A new process: what it prints, and what goes to stderr."""
    root = Path(fracdnn.__file__).parents[1] if package is None else package
    paths = os.pathsep.join([environment.pop("before", ""), str(root)]).strip(os.pathsep)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )
    return done.stdout.strip(), done.stderr.strip()


@pytest.fixture
def fresh():
    loading.small_network.cache_clear()
    yield
    loading.small_network.cache_clear()


@NUMBA
def test_the_kernel_is_there_after_warmup():
    found = loading.warmup()
    assert [each.dtype for each in found] == [torch.float32, torch.float64]
    assert all(each.module is not None and each.state in ("compiled", "found on disk") for each in found)
    assert all(each.seconds >= 0 for each in found)
    assert loading.small_network(torch.float64).module.__name__ == "fracdnn.kernels.small_network"


def test_other_dtypes_have_no_kernel():
    assert loading.small_network(torch.bfloat16).module is None
    assert loading.small_network(torch.complex64).module is None


@NUMBA
@pytest.mark.usefixtures("fresh")
def test_a_kernel_that_fails_to_compile_is_told_once(monkeypatch):
    monkeypatch.setattr("fracdnn.kernels.small_network.run", None)
    message = r"the kernel could not be compiled for torch.float32.*TypeError: .*not callable.*numba -s"
    with pytest.warns(KernelWarning, match=message):
        assert loading.small_network(torch.float32).module is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loading.small_network(torch.float32).module is None


def test_a_missing_numba_is_silent():
    code = """
        import sys

        sys.modules["numba"] = None
        from fracdnn.kernels import loading
        print({each.state for each in loading.warmup()}, sys.modules["numba"])
    """
    assert run(code, PYTHONWARNINGS="error") == ("{'not available'} None", "")


def test_a_numba_that_cannot_be_imported_is_a_warning(tmp_path):
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs another NumPy')")
    out, err = run(REPORT, before=str(tmp_path))
    assert out == "not available"
    assert err.count("KernelWarning") == 1
    assert "ImportError: Numba needs another NumPy" in err


@NUMBA
def test_a_first_compile_is_announced_and_a_change_compiles_again(tmp_path):
    kernel = package_with_a_little_kernel(tmp_path)
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    announced = ("compiled", "compiling a kernel, once for this machine: some seconds")
    assert run(REPORT, package=tmp_path, **cache) == announced
    assert run(REPORT, package=tmp_path, **cache) == ("found on disk", "")
    with kernel.open("a") as source:
        source.write("# changed\n")
    assert run(REPORT, package=tmp_path, **cache) == announced


@NUMBA
@pytest.mark.slow
def test_the_kernel_compiles_where_no_folder_can_be_written_to():
    code = """
        import torch
        from numba.core.caching import CacheImpl
        from fracdnn.kernels import loading

        CacheImpl._locator_classes = []
        print(loading.small_network(torch.float32).state)
    """
    assert run(code)[0] == "compiled"


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
