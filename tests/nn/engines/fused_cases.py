"""The engine "fused" against "operations" and double precision, on a GPU or in Triton's interpreter.

`test_fused` runs this file in a process of its own, as `tests.memory.test_triton` does with its cases.
"""

import math

import pytest
import torch

from fracdnn.exceptions import NotFiniteError
from fracdnn.memory import triton_sum
from tests.memory.triton_cases import DEVICE, UNIT_ROUNDOFF, made_plan, needs_gpu, number, numbers, relative
from tests.nn.problems import batch, network

ENGINE = "fused"


def made(n=6, n_features=3, n_layers=9, dtype=torch.float64, **options):
    """A network on this engine and a batch; compressed, so that every engine has the same weights."""
    net = network(n_features, 2, n_layers, dtype, engine=ENGINE, history="compressed", **options).to(DEVICE)
    return net, batch(n, n_features, dtype).detach().to(DEVICE).requires_grad_()


def found(net, x, engine=ENGINE):
    """The result and all gradients, by an engine."""
    net.engine = engine
    result = net(x)
    assert net.engine_ == engine
    weights = torch.linspace(-1, 2, result.numel(), device=DEVICE).to(x.dtype).view_as(result)
    return [result, *torch.autograd.grad((result * weights).sum(), [x, *net.parameters()])]


def out_of_memory(*_, **__):
    raise MemoryError


def check(net, x):
    for mine, theirs in zip(found(net, x), found(net, x, "operations"), strict=True):
        assert mine.dtype == theirs.dtype
        assert relative(mine, theirs) <= 1e-13


@pytest.mark.parametrize(
    ("n", "n_features", "n_layers", "options"),
    [
        (6, 3, 1, {}),
        (6, 3, 17, {"width": 5, "activate_opening": True}),
        (5, 2, 24, {"activation": "relu", "bias": "scalar", "order": 0.9}),
        (6, 3, 33, {"bias": "none"}),
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
    theirs = found(net.double(), x.detach().double().requires_grad_(), "operations")
    for a, b in zip(mine, theirs, strict=True):
        assert a.dtype is dtype
        assert relative(a, b) <= (20 * UNIT_ROUNDOFF[dtype] if dtype in UNIT_ROUNDOFF else 2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tanh_is_exact_to_some_units_in_the_last_place(dtype):
    x = torch.cat([torch.logspace(-30, 2, 150), torch.linspace(0.3, 0.7, 100), torch.tensor([math.inf, math.nan])])
    x = torch.cat([x, -x, torch.zeros(1)]).to(DEVICE, dtype)
    start, value = torch.zeros_like(x), x.clone()
    history = made_plan(number(0.5), 2, dtype).forward_sum(start)
    history.first(start)
    state = history.advance_layer(1, value, None, 1.0, "tanh")
    torch.testing.assert_close(value, torch.tanh(x), rtol=4 * torch.finfo(dtype).eps, atol=0, equal_nan=True)
    assert torch.equal(state.nan_to_num(), value.nan_to_num())


def test_going_back_again_gives_the_same(monkeypatch):
    """Also after an error on the way."""
    net, x = made()
    loss = net(x).square().sum()
    expected = torch.autograd.grad(loss, [x, net.K, net.b], retain_graph=True)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "bmm", out_of_memory)
        with pytest.raises(MemoryError):
            torch.autograd.grad(loss, net.K, retain_graph=True)
    for mine, theirs in zip(torch.autograd.grad(loss, [x, net.K, net.b]), expected, strict=True):
        assert torch.equal(mine, theirs)


def test_inference_gives_the_same():
    net, x = made()
    expected = net(x)
    with torch.inference_mode():
        assert torch.equal(net(x), expected)
    assert net.engine_ == ENGINE


def test_views_of_any_kind():
    net, x = made()
    for name in ("K", "b", "W"):
        turned = getattr(net, name).detach().transpose(-1, -2).contiguous().transpose(-1, -2)
        setattr(net, name, torch.nn.Parameter(turned))
    assert not net.b.is_contiguous()
    check(net, x.detach().T.contiguous().T.requires_grad_())
    net.engine = ENGINE
    net(torch._neg_view(x)).sum().backward()
    assert all(parameter.grad.stride() == parameter.stride() for parameter in net.parameters())
    expected, b = net(x), net.b.detach().contiguous()
    del net.b
    net.b = torch._neg_view(-b)
    assert torch.equal(net(x), expected)
    assert net.engine_ == ENGINE


@pytest.mark.parametrize("activation", triton_sum.ACTIVATIONS)
def test_what_is_not_finite_is_not_hidden(activation):
    net, x = made(activation=activation)
    torch.nn.init.constant_(net.b[3].detach(), math.nan)
    if x.is_cpu:
        with pytest.raises(NotFiniteError, match="layer 3 made the state not finite"):
            net(x)
    else:
        assert net(x).isnan().all()
    assert net.engine_ == ENGINE


@needs_gpu
@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("fused", {"n_layers": 17}),
        ("fused", {"n_layers": 5, "history": "compressed"}),
        ("fused", {"n_layers": 17, "dtype": torch.bfloat16}),
        ("products", {"n_layers": 16}),
        ("products", {"n_layers": 17, "history": "exact"}),
        ("products", {"n_layers": 17, "order": 1.0}),
        ("products", {"n_layers": 200, "learn_order": True}),
        ("products", {"n_layers": 17, "activation": "gelu"}),
        ("products", {"n_layers": 17, "residual": False}),
    ],
)
def test_what_auto_takes_on_a_gpu(engine, options):
    net = network(256, 2, **options).to(DEVICE)
    net(torch.zeros(3, 256, dtype=net.W.dtype, device=DEVICE)).sum().backward()
    assert net.engine_ == engine


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cuda_graph_gives_the_same(dtype):
    net, x = made(33, 16, 70, dtype, bias="scalar")

    def run():
        return [each.detach() for each in found(net, x)]

    expected = [each.clone() for each in run()]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    for each in captured:
        each.fill_(float("nan"))
    graph.replay()
    for mine, theirs in zip(captured, expected, strict=True):
        torch.testing.assert_close(mine, theirs)  # a library may take other products in a graph


@needs_gpu
def test_memory_is_that_of_a_residual_network():
    """A state and a change for each layer, and a tenth more."""
    n, width, n_layers = 4096, 64, 200
    net = network(width, 2, n_layers, torch.float32, engine=ENGINE).to(DEVICE)
    x = numbers(n, width, dtype=torch.float32)
    net(x[:1]).sum().backward()
    net.zero_grad()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    net(x).sum().backward()
    taken = torch.cuda.max_memory_allocated() - before
    assert taken <= 1.1 * 2 * n_layers * x.numel() * x.element_size()
