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
CASES = ["memory/triton_cases.py", *(f"nn/engines/{name}_cases.py" for name in ("gpu", "triton_wide", "triton"))]
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="needs Triton, which is not installed"
)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none")
chosen = pytest.mark.parametrize("speed", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
COMPILE = """
    import itertools, json, sys
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    states, places = json.loads(sys.argv[1])
"""
# Every kernel of a history for an H100, as "auto" runs them: a step forward and an exchange backward, or both with a
# layer in them.
HISTORY = """
    from fracdnn.kernels import triton_history as kernels

    TYPES = {"fp32": "fp32", "fp64": "fp64", "bf16": "fp32"}
    SUMS = ("base", "far", "weights", "near_weights", "far_weights", "oldest", "factor", "scale")
    STATES = ("out", "scaled", "states", "latest", "change", "bias", "first")

    for kernel, state, forward, layer in itertools.product(
        (kernels.finish, kernels.start_half, kernels.start_block), states, (True, False), ("", "tanh")
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
# Both kernels of a network for an H100.
NETWORK = """
    from fracdnn.kernels import triton_network as kernels
    from fracdnn.kernels.codes import CROSS_ENTROPY

    SIZES = ("n", "rows", "n_layers", "width", "n_outputs", "b_down", "b_along")
    KINDS = [("fp32", 16, "ieee", "gelu"), ("fp32", 64, "tf32", "silu"), ("fp64", 64, "ieee", "tanh")]

    chosen = [KINDS[place] for place in places]
    for kernel, (kind, width, precision, activation) in itertools.product((kernels.forward, kernels.backward), chosen):
        constants = {"MEMORY": True, "ACTIVATION": activation, "KIND": CROSS_ENTROPY, "PRECISION": precision}
        constants |= {"TILE": 16, "WIDTH": width, "OUTPUTS": 16, "AHEAD": kind == "fp32"}
        constants = {name: constants[name] for name in kernel.arg_names if name.isupper() and len(name) > 1}
        kinds = {**dict.fromkeys(constants, "constexpr"), **dict.fromkeys(SIZES, "i32"), "target": "*i64"}
        signature = {name: kinds.get(name, "*" + kind) for name in kernel.arg_names}
        place = kernel.arg_names.index
        source = ASTSource(
            fn=kernel,
            signature=signature,
            constexprs={(place(name),): value for name, value in constants.items()},
            attrs={(place(name),): [["tt.divisibility", 16]] for name in signature if signature[name][0] == "*"},
        )
        made = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
        print(kernel.__name__, kind, "mma" in made.asm["ptx"])
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


KINDS = ["fp32 False", "fp32 True", "fp64 True"]


@needs_triton
@pytest.mark.parametrize(
    ("states", "places"),
    [(["bf16"], [1]), pytest.param(["fp32", "fp64", "bf16"], [0, 1, 2], marks=pytest.mark.slow)],
    ids=str,
)
def test_the_kernels_compile_without_a_gpu(states, places, tmp_path):
    """The interpreter takes what the compiler refuses. Numbers of a history are read several at a time; products in
    TF32 and in float64 run on tensor cores, which float32 has none of.
    """
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "TRITON_BACKENDS_IN_TREE": "1"}
    program = "".join(map(textwrap.dedent, (COMPILE, HISTORY, NETWORK)))
    done = process("-c", program, json.dumps([states, places]), **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    steps, networks = lines[: -2 * len(places)], lines[-2 * len(places) :]
    assert len(steps) == (8 if states == ["bf16"] else 28)
    assert all(line.endswith("True") for line in steps)
    assert networks == [f"{name} {KINDS[place]}" for name in ("forward", "backward") for place in places]
