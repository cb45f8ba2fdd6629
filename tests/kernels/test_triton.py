"""Triton's kernels: their cases in Triton's interpreter and on a GPU, and whether they compile without one."""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import fracdnn

ROOT = Path(__file__).parents[2]
CASES = ["memory/triton_cases.py"]
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs Triton, which is not installed"
)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none")
chosen = pytest.mark.parametrize("speed", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
COMPILE = """
    import itertools, json, sys
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    states = json.loads(sys.argv[1])
"""
# Every kernel of a history for an H100, as "auto" runs them: a step forward and an exchange backward.
HISTORY = """
    from fracdnn.kernels import triton_history as kernels

    TYPES = {"fp32": "fp32", "fp64": "fp64", "bf16": "fp32"}
    SUMS = ("base", "far", "weights", "near_weights", "far_weights", "oldest", "factor", "scale")
    STATES = ("out", "scaled", "states", "latest", "change", "first")

    for kernel, state, forward in itertools.product(
        (kernels.finish, kernels.start_half, kernels.start_block), states, (True, False)
    ):
        options = {"LATEST": not forward, "CHANGE": forward, "SCALED": not forward, "TRANSPOSED": not forward}
        constants = {name: options.get(name, kernels.TILE) for name in kernel.arg_names if name.isupper()}
        kinds = {**dict.fromkeys(SUMS, "*" + TYPES[state]), **dict.fromkeys(STATES, "*" + state)}
        signature = {name: "constexpr" if name in constants else kinds.get(name, "i32") for name in kernel.arg_names}
        aligned = [name for name, kind in signature.items() if kind.startswith("*") or name == "size"]
        place = kernel.arg_names.index
        source = ASTSource(
            fn=kernel,
            signature=signature,
            constexprs={(place(name),): value for name, value in constants.items()},
            attrs={(place(name),): [["tt.divisibility", 16]] for name in aligned},
        )
        made = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": kernels.WARPS})
        print(kernel.__name__, state, "ld.global.v" in made.asm["ptx"])
"""


def process(*arguments, **environment):
    paths = [str(Path(fracdnn.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **environment},
    )


def run_cases(speed, **environment):
    cases = [str(ROOT / "tests" / name) for name in CASES]
    done = process("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", speed, *cases, **environment)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@needs_triton
@chosen
def test_the_cases_in_the_interpreter(speed):
    run_cases(speed, TRITON_INTERPRET="1")


@needs_cuda
@needs_triton
@chosen
def test_the_cases_on_a_gpu(speed):
    run_cases(speed, TRITON_INTERPRET="0")


@needs_triton
@pytest.mark.parametrize("states", [["bf16"], pytest.param(["fp32", "fp64", "bf16"], marks=pytest.mark.slow)], ids=str)
def test_the_kernels_compile_without_a_gpu(states, tmp_path):
    """The interpreter takes what the compiler refuses. Numbers of a history are read several at a time."""
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "TRITON_BACKENDS_IN_TREE": "1"}
    program = "".join(map(textwrap.dedent, (COMPILE, HISTORY)))
    done = process("-c", program, json.dumps(states), **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 6 * len(states)
    assert all(line.endswith("True") for line in lines)
