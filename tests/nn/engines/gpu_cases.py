"""What both engines of a GPU have to do, there or in Triton's interpreter; two more files have what each does alone.

`tests.kernels.test_triton` runs these files in a process of their own.
"""

import math

import pytest
import torch

from fracdnn.exceptions import NotFiniteError
from fracdnn.nn.operators import ACTIVATIONS
from tests.memory.cuda_graphs import assert_a_graph_gives_the_same
from tests.memory.triton_cases import DEVICE, needs_gpu, relative
from tests.nn.problems import batch, network

LIMIT = {torch.float64: 1e-13, torch.float32: 3e-6}
# Compressed, so that every engine has the same weights.
WIDE = "triton-wide"
OPTIONS = {"triton-wide": {"compress": True}, "triton": {}}
both = pytest.mark.parametrize("engine", OPTIONS)


def made(engine, n=6, n_features=3, n_layers=9, dtype=torch.float64, **options):
    """A network on an engine and a batch."""
    net = network(n_features, 2, n_layers, dtype, engine=engine, **OPTIONS[engine], **options).to(DEVICE)
    return net, batch(n, n_features, dtype).detach().to(DEVICE).requires_grad_()


def found(net, x, engine=None):
    """The result and all gradients, by an engine, or by the one that was asked for."""
    if engine is not None:
        net.engine = engine
    result = net(x)
    assert net.engine_ == net.engine
    weights = torch.linspace(-1, 2, result.numel(), device=DEVICE).to(x.dtype).view_as(result)
    return [result, *torch.autograd.grad((result * weights).sum(), [x, *net.parameters()])]


def check(net, x):
    mine, asked = found(net, x), net.engine
    for one, other in zip(mine, found(net, x, "autograd"), strict=True):
        assert one.dtype == other.dtype
        assert relative(one, other) <= LIMIT[x.dtype]
    net.engine = asked


def out_of_memory(*_, **__):
    raise MemoryError


@both
def test_going_back_again_gives_the_same(engine, monkeypatch):
    """Also after an error on the way."""
    net, x = made(engine, n_layers=4)
    loss = net(x).square().sum()
    expected = torch.autograd.grad(loss, [x, net.K, net.b], retain_graph=True)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "bmm", out_of_memory)
        with pytest.raises(MemoryError):
            torch.autograd.grad(loss, net.K, retain_graph=True)
    for mine, theirs in zip(torch.autograd.grad(loss, [x, net.K, net.b]), expected, strict=True):
        assert torch.equal(mine, theirs)


@both
def test_inference_gives_the_same(engine):
    net, x = made(engine, n_layers=4)
    expected = net(x)
    with torch.inference_mode():
        assert torch.equal(net(x), expected)
    assert net.engine_ == engine


@both
def test_views_of_any_kind(engine):
    net, x = made(engine, n_layers=3)
    for name in ("K", "b", "W"):
        turned = getattr(net, name).detach().transpose(-1, -2).contiguous().transpose(-1, -2)
        setattr(net, name, torch.nn.Parameter(turned))
    assert not net.b.is_contiguous()
    check(net, x.detach().T.contiguous().T.requires_grad_())
    negated = torch._neg_view(-x.detach().contiguous())
    assert negated.is_neg()
    expected, b = net(x), net.b.detach().contiguous()
    assert torch.equal(net(negated), expected)
    net(negated).sum().backward()
    assert all(parameter.grad.stride() == parameter.stride() for parameter in net.parameters())
    del net.b
    net.b = torch._neg_view(-b)
    assert torch.equal(net(x), expected)
    assert net.engine_ == engine


@pytest.mark.parametrize(
    ("engine", "activation"),
    [*((WIDE, name) for name in ("tanh", "relu")), *(("triton", name) for name in ACTIVATIONS)],
)
def test_what_is_not_finite_is_not_hidden(engine, activation):
    net, x = made(engine, n_layers=5, activation=activation)
    torch.nn.init.constant_(net.b[3].detach(), math.nan)
    if x.is_cpu:
        with pytest.raises(NotFiniteError, match="layer 3 made the state not finite"):
            net(x)
    else:
        assert net(x).isnan().all()
    assert net.engine_ == engine


@needs_gpu
@pytest.mark.parametrize(("engine", "dtype"), [(WIDE, torch.float32), (WIDE, torch.bfloat16), ("triton", None)])
def test_a_cuda_graph_gives_the_same(engine, dtype):
    net, x = made(engine, 33, 16, 70, dtype or torch.float32, bias="scalar")
    assert_a_graph_gives_the_same(lambda: [each.detach() for each in found(net, x)])


@needs_gpu
@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("triton", {}),
        ("triton", {"dtype": torch.float32, "learn_order": True, "activation": "gelu"}),
        ("triton", {"order": 1.0}),
        ("triton", {"n_features": 64, "n_layers": 192}),
        ("triton", {"n": 1000, "n_features": 64, "n_layers": 64}),
        ("triton-wide", {"n": 1000, "n_features": 64, "n_layers": 65}),
        ("triton-wide", {"n_layers": 193}),
        ("triton-wide", {"n_features": 65, "n_layers": 17}),
        ("triton-wide", {"n_features": 65, "compress": True}),
        ("triton-wide", {"n_layers": 17, "dtype": torch.bfloat16}),
        ("matmul", {"n_features": 65, "n_layers": 16}),
        ("matmul", {"n_features": 65, "n_layers": 17, "compress": False}),
        ("matmul", {"n_features": 65, "n_layers": 17, "order": 1.0}),
        ("matmul", {"n_layers": 200, "learn_order": True}),
        ("matmul", {"n_features": 65, "n_layers": 17, "activation": "gelu"}),
        ("matmul", {"n_layers": 17, "residual": False}),
        ("matmul", {"dtype": torch.bfloat16}),
    ],
    ids=str,
)
def test_what_auto_takes_on_a_gpu(engine, options):
    options = dict(options)
    n = options.pop("n", 3)
    net = network(**options).to(DEVICE)
    net(torch.zeros(n, net.architecture.n_features, dtype=net.W.dtype, device=DEVICE)).sum().backward()
    assert net.engine_ == engine
