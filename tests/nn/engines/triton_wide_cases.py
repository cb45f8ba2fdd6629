"""The engine "triton-wide" against "autograd" and double precision, on a GPU or in Triton's interpreter."""

import math
from functools import partial

import pytest
import torch

from tests.memory.triton_cases import DEVICE, UNIT_ROUNDOFF, made_plan, needs_gpu, number, numbers, relative
from tests.nn.engines import gpu_cases
from tests.nn.engines.gpu_cases import check, found
from tests.nn.problems import network

ENGINE = "triton-wide"
made = partial(gpu_cases.made, ENGINE)


@pytest.mark.parametrize(
    ("n", "n_features", "n_layers", "options"),
    [
        (6, 3, 1, {}),
        pytest.param(6, 3, 17, {"width": 5, "activate_input": True}, marks=pytest.mark.slow),
        (5, 2, 17, {"activation": "relu", "bias": "scalar", "order": 0.9}),
        pytest.param(6, 3, 33, {"bias": False}, marks=pytest.mark.slow),
        (74, 7, 9, {"activation": "relu"}),  # a tile and a rest, and no tile holds whole rows
    ],
)
def test_values_and_all_gradients_agree_with_operations(n, n_features, n_layers, options):
    check(*made(n, n_features, n_layers, **options))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_coarser_numbers(dtype):
    """Against the same numbers in double precision."""
    net, x = made(dtype=dtype)
    mine = found(net, x)
    theirs = found(net.double(), x.detach().double().requires_grad_(), "autograd")
    for a, b in zip(mine, theirs, strict=True):
        assert a.dtype is dtype
        assert relative(a, b) <= (20 * UNIT_ROUNDOFF[dtype] if dtype in UNIT_ROUNDOFF else 2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tanh_is_exact_to_some_units_in_the_last_place(dtype):
    x = torch.cat([torch.logspace(-30, 2, 150), torch.linspace(0.3, 0.7, 100), torch.tensor([math.inf, math.nan])])
    x = torch.cat([x, -x, torch.zeros(1)]).to(DEVICE, dtype)
    start, value = torch.zeros_like(x), x.clone()
    history = made_plan(number(0.5), 2, dtype).history_sum(start)
    history.first(start)
    state = history.advance_layer(1, value, None, 1.0, "tanh")
    torch.testing.assert_close(value, torch.tanh(x), rtol=4 * torch.finfo(dtype).eps, atol=0, equal_nan=True)
    assert torch.equal(state.nan_to_num(), value.nan_to_num())


@needs_gpu
def test_a_layer_takes_a_state_a_change_and_its_gradient():
    """As a layer of a residual network; beside them there are seven blocks of eight states, whatever the depth."""
    state, gradient = 4 * 4096 * 64, 4 * (64 * 64 + 64)
    shallow, deep = (peak_memory(n_layers, width=64, n=4096) for n_layers in (200, 400))
    assert deep - shallow <= 1.01 * 200 * (2 * state + gradient)
    assert shallow <= 200 * (2 * state + gradient) + 56 * state


def peak_memory(n_layers, width, n):
    net = network(width, 2, n_layers, torch.float32, engine=ENGINE).to(DEVICE)
    x = numbers(n, width, dtype=torch.float32)
    net(x[:1]).sum().backward()
    net.zero_grad()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    net(x).sum().backward()
    return torch.cuda.max_memory_allocated() - before
