"""The engine "fused": the cases of `fused_cases` in Triton's interpreter and on a GPU, and what it refuses."""

from pathlib import Path

import pytest
import torch

from fracdnn.exceptions import InvalidArgumentError
from tests.memory.test_triton import needs_cuda, needs_triton, run_cases
from tests.nn.problems import batch, network

CASES = Path(__file__).with_name("fused_cases.py")


@needs_triton
def test_the_cases_in_the_interpreter():
    run_cases(CASES, "not slow", TRITON_INTERPRET="1")


@needs_cuda
@needs_triton
def test_the_cases_on_a_gpu():
    run_cases(CASES, "not slow", TRITON_INTERPRET="0")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"operator": "stencil", "n_features": 4, "grid_shape": (2, 2)}, "its operator is a stencil, no dense matrix"),
        ({"activation": "gelu"}, "its activation is 'gelu', none of"),
        ({"residual": False}, "it has no skip connections"),
        ({"learn_order": True}, "its order or steps are learned"),
        ({"learn_steps": True}, "its order or steps are learned"),
        ({"order": 1.0}, "it sums by exponentials, which need one order below 1 and equal steps"),
        ({"step_size": [0.1] * 5}, "it sums by exponentials, which need one order below 1 and equal steps"),
        ({"order": [0.5] * 5}, "it sums by exponentials, which need one order below 1 and equal steps"),
        ({"history": "exact"}, "it sums by exponentials, and history is 'exact'"),
    ],
    ids=str,
)
def test_a_network_it_cannot_serve_is_refused_at_once(options, reason):
    with pytest.raises(InvalidArgumentError, match=f"engine must be one that can serve, got 'fused', but {reason}"):
        network(**options, engine="fused")


def test_a_batch_it_cannot_serve_is_refused():
    net = network(engine="fused")
    with pytest.raises(
        InvalidArgumentError,
        match=r"x is torch.float64 on cpu, not one of float32, float64, bfloat16, float16",
    ):
        net(batch())
    with pytest.raises(InvalidArgumentError, match=r"got 'fused', but x has shape \(3,\), no batch of rows"):
        net(torch.zeros(3, dtype=torch.float64))
