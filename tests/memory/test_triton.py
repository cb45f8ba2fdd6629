"""Triton's kernels: the cases of `triton_cases` in Triton's interpreter and on a GPU, and whether they compile."""

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import fracdnn
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory import equal_steps_plan

CASES = Path(__file__).with_name("triton_cases.py")
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs Triton, which is not installed"
)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none")
chosen = pytest.mark.parametrize("speed", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
# Every kernel for an H100, as "auto" runs them: a step forward and an exchange backward, or both with a layer in them.
COMPILE = """
    import itertools, sys
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile
    from fracdnn.kernels import triton_history as kernels

    TYPES = {"fp32": "fp32", "fp64": "fp64", "bf16": "fp32"}
    SUMS = ("base", "far", "weights", "near_weights", "far_weights", "oldest", "factor", "scale")
    STATES = ("out", "scaled", "states", "latest", "change", "bias", "first")

    for kernel, state, forward, layer in itertools.product(
        (kernels.finish, kernels.start_half, kernels.start_block), sys.argv[1:], (True, False), ("", "tanh")
    ):
        if layer and state != "fp32" and kernel is not kernels.finish:
            continue
        options = {"LATEST": not forward and not layer, "CHANGE": forward or layer != "", "SCALED": not forward}
        options |= {"TRANSPOSED": not forward, "ACTIVATION": layer, "WIDTH": 256 if layer and forward else 0}
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
        cwd=CASES.parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **environment},
    )


def run_cases(cases, speed, **environment):
    done = process("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", speed, *map(str, cases), **environment)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@needs_triton
@chosen
def test_the_cases_in_the_interpreter(speed):
    run_cases([CASES], speed, TRITON_INTERPRET="1")


@needs_cuda
@needs_triton
@chosen
def test_the_cases_on_a_gpu(speed):
    run_cases([CASES], speed, TRITON_INTERPRET="0")


def compiled(program, folder, *arguments):
    """The lines that a program prints which compiles kernels, for a GPU that need not be there."""
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder), "TRITON_BACKENDS_IN_TREE": "1"}
    done = process("-c", textwrap.dedent(program), *arguments, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@needs_triton
@pytest.mark.parametrize(
    ("types", "count"), [(["bf16"], 8), pytest.param(["fp32", "fp64", "bf16"], 28, marks=pytest.mark.slow)]
)
def test_the_kernels_compile_without_a_gpu(types, count, tmp_path):
    """The interpreter takes what the compiler refuses, and does not see that numbers are read several at a time."""
    lines = compiled(COMPILE, tmp_path, *types)
    assert len(lines) == count
    assert all(line.endswith("True") for line in lines)


@pytest.mark.parametrize("block", [8, 32])
def test_a_triton_sum_that_cannot_serve_is_refused(block):
    order, step = torch.tensor(0.5, dtype=torch.float64), torch.tensor(0.2, dtype=torch.float64)
    plan = equal_steps_plan(order, step, 70, compress=True, compress_tol=1e-6, block=block, sums="triton")
    message = rf"sums must be 'torch' or 'auto' for torch.float32 on meta in blocks of {block} here, got 'triton'"
    with pytest.raises(InvalidArgumentError, match=message):
        plan.history_sum(torch.zeros(3, device="meta"))
