"""The engines of a GPU: their cases in Triton's interpreter and on a GPU, whether they compile, what they refuse."""

from pathlib import Path

import pytest
import torch

from fracdnn.exceptions import InvalidArgumentError
from tests.memory.test_triton import chosen, compiled, needs_cuda, needs_triton, run_cases
from tests.nn.problems import batch, network

CASES = [Path(__file__).with_name(f"{name}_cases.py") for name in ("gpu", "triton_wide", "triton")]
STENCIL = {"operator": "nine-point", "n_features": 4, "grid_shape": (2, 2)}
# Both kernels of the engine "triton" for an H100.
COMPILE = """
    import itertools, sys
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile
    from fracdnn.kernels import triton_network as kernels
    from fracdnn.kernels.codes import CROSS_ENTROPY

    SIZES = ("n", "rows", "n_layers", "width", "n_outputs", "b_down", "b_along")
    KINDS = [("fp32", 16, "ieee", "gelu"), ("fp32", 64, "tf32", "silu"), ("fp64", 64, "ieee", "tanh")]

    chosen = [KINDS[int(place)] for place in sys.argv[1:]]
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


@needs_triton
@chosen
def test_the_cases_in_the_interpreter(speed):
    run_cases(CASES, speed, TRITON_INTERPRET="1")


@needs_cuda
@needs_triton
@chosen
def test_the_cases_on_a_gpu(speed):
    run_cases(CASES, speed, TRITON_INTERPRET="0")


@needs_triton
@pytest.mark.parametrize("places", [[1], pytest.param([0, 1, 2], marks=pytest.mark.slow)], ids=str)
def test_the_kernels_compile_without_a_gpu(places, tmp_path):
    """Products in TF32 and in float64 run on tensor cores, which float32 has none of."""
    kinds = [("fp32 False", "fp32 True", "fp64 True")[place] for place in places]
    expected = [f"{name} {kind}" for name in ("forward", "backward") for kind in kinds]
    assert compiled(COMPILE, tmp_path, *map(str, places)) == expected


@pytest.mark.parametrize(
    ("engine", "options", "reason"),
    [
        (
            "triton-wide",
            {"operator": "nine-point", "n_features": 4, "grid_shape": (2, 2)},
            "its operator is a stencil, no dense matrix",
        ),
        ("triton-wide", {"activation": "gelu"}, "its activation is 'gelu', none of"),
        ("triton-wide", {"residual": False}, "it has no skip connections"),
        ("triton-wide", {"learn_order": True}, "its order or steps are learned"),
        ("triton-wide", {"learn_steps": True}, "its order or steps are learned"),
        ("triton-wide", {"order": 1.0}, "it sums by exponentials, which need one order below 1 and equal steps"),
        (
            "triton-wide",
            {"step_size": [0.1] * 5},
            "it sums by exponentials, which need one order below 1 and equal steps",
        ),
        ("triton-wide", {"order": [0.5] * 5}, "it sums by exponentials, which need one order below 1 and equal steps"),
        ("triton-wide", {"compress": False}, "it sums by exponentials, and compress is False"),
        (
            "triton",
            {"operator": "nine-point", "n_features": 4, "grid_shape": (2, 2)},
            "its operator is a stencil, no dense matrix",
        ),
        ("triton", {"width": 65}, "its width is 65, above 64"),
        ("triton", {"residual": False}, "it has no skip connections"),
        ("triton", {"compress": True}, "it sums over all pairs of layers, and compress is True"),
    ],
    ids=str,
)
def test_a_network_it_cannot_serve_is_refused_at_once(engine, options, reason):
    with pytest.raises(InvalidArgumentError, match=f"engine='{engine}' cannot run this network: {reason}"):
        network(**options, engine=engine)


@pytest.mark.parametrize(
    ("engine", "dtypes"), [("triton-wide", "float32, float64, bfloat16, float16"), ("triton", "float32, float64")]
)
def test_a_batch_it_cannot_serve_is_refused(engine, dtypes):
    net = network(engine=engine)
    with pytest.raises(InvalidArgumentError, match=rf"x is torch.float64 on cpu, not one of {dtypes} on a CUDA device"):
        net(batch())
    with pytest.raises(InvalidArgumentError, match=rf"engine=\'{engine}\' cannot run this network: x has shape \(3,\)"):
        net(torch.zeros(3, dtype=torch.float64))
