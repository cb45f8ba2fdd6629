"""The engine "triton" against "autograd" and the objective's definition, on a GPU or in Triton's interpreter."""

from functools import partial

import pytest
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn.engines import triton
from fracdnn.nn.operators import ACTIVATIONS
from fracdnn.training import Objective, Regularization, backward
from tests.memory.triton_cases import DEVICE, needs_gpu, relative
from tests.nn.engines import gpu_cases
from tests.nn.engines.gpu_cases import LIMIT, check, found
from tests.nn.problems import batch, network
from tests.slow import each_once, slow_but

ENGINE = "triton"
made = partial(gpu_cases.made, ENGINE)


SHAPES = [
    ((6, 3, 1), {}),
    ((1, 1, 2), {"bias": False}),
    ((33, 2, 6), {"activation": "relu", "bias": "scalar", "order": 0.9}),
    ((17, 3, 9), {"width": 20, "activate_input": True}),
    ((5, 4, 3), {"order": 1.0}),
    ((5, 3, 4), {"width": 64, "order": [0.3, 0.5, 0.7, 0.9]}),
    ((5, 3, 4), {"step_size": [0.1, 0.2, 0.3, 0.4]}),
]


@pytest.mark.parametrize(("shape", "dtype"), each_once(SHAPES, [torch.float64, torch.float32]))
def test_values_and_all_gradients_agree_with_operations(shape, dtype):
    sizes, options = shape
    check(*made(*sizes, dtype, **options))


@pytest.mark.parametrize("activation", slow_but(["tanh", "gelu"], ACTIVATIONS))
def test_every_activation(activation):
    check(*made(activation=activation, learn_order=True))


@pytest.mark.parametrize("options", [{"learn_order": "layer"}, {"learn_steps": True}], ids=str)
def test_a_learned_memory(options):
    check(*made(18, 3, 5, **options))


def test_samples_far_from_zero():
    """Where σ has no slope, and exponentials would overflow."""
    for activation in ACTIVATIONS:
        net, x = made(n_layers=2, activation=activation, dtype=torch.float32)
        with torch.no_grad():
            x *= 1e4
        for mine, theirs in zip(found(net, x), found(net, x, "autograd"), strict=True):
            assert mine.isfinite().all()
            assert (mine - theirs).norm() <= 1e-5 * theirs.norm().clamp(min=1e-3)


OBJECTIVES = [
    Objective(),
    Objective(label_smoothing=0.1, regularization=Regularization(0.1, 0.2, 0.3, 0.4)),
    Objective("squared_error", Regularization(smooth=0.2, laplacian="matrix")),
]


def by_autograd(objective, net, x, target, weight):
    net.engine = "autograd"
    net.zero_grad()
    value = objective(net, x, target, weight)
    value.backward()
    net.engine = ENGINE
    return [value, *[parameter.grad for parameter in net.parameters()]]


def data(objective, n, n_outputs, dtype):
    generator = torch.Generator().manual_seed(5)
    if objective.loss == "cross_entropy":
        target = torch.randint(n_outputs, (n,), generator=generator)
    else:
        target = torch.randn(n, n_outputs, generator=generator, dtype=torch.float64).to(dtype)
    return target.to(DEVICE), (torch.rand(n, generator=generator, dtype=torch.float64) + 0.1).to(DEVICE, dtype)


@pytest.mark.parametrize(
    ("objective", "weighted", "dtype"), each_once(OBJECTIVES, [True, False], [torch.float64, torch.float32])
)
def test_a_loss_and_its_gradients_in_one_pass(objective, weighted, dtype, monkeypatch):
    made_inside = []
    inside = triton.TritonLayers.loss
    monkeypatch.setattr(triton.TritonLayers, "loss", lambda *given: made_inside.append(given) or inside(*given))
    options = {"width": 5, "activate_input": True, "activation": "gelu", "learn_order": True}
    net, x = made(19, 3, 4, dtype, **(options if weighted else {}))
    x = x.detach()
    target, weight = data(objective, len(x), 2, dtype)
    weight = weight if weighted else None
    expected = by_autograd(objective, net, x, target, weight)
    net.zero_grad()
    value, outputs = backward(objective, net, x, target, weight)
    assert net.engine_ == ENGINE
    assert len(made_inside) == 1
    assert relative(outputs, net(x)) <= LIMIT[dtype]
    assert value == pytest.approx(float(expected[0].detach()), rel=LIMIT[dtype])
    for parameter, theirs in zip(net.parameters(), expected[1:], strict=True):
        assert relative(parameter.grad, theirs) <= LIMIT[dtype]


@pytest.mark.parametrize("n_outputs", slow_but([17, 65], [1, 17, 64, 65]))
def test_numbers_of_outputs(n_outputs):
    """More than the kernel takes are left to torch."""
    net = network(3, n_outputs, 3, engine=ENGINE).to(DEVICE)
    x = batch(7).detach().to(DEVICE)
    target, weight = data(Objective(), 7, n_outputs, x.dtype)
    expected = by_autograd(Objective(), net, x, target, weight)
    net.zero_grad()
    value, _ = backward(Objective(), net, x, target, weight)
    assert value == pytest.approx(float(expected[0].detach()), rel=1e-13, abs=1e-15)
    for parameter, theirs in zip(net.parameters(), expected[1:], strict=True):
        assert (parameter.grad - theirs).norm() <= 1e-13 * theirs.norm().clamp(min=1e-2)


def test_many_rows_are_multiplied_in_parts(monkeypatch):
    monkeypatch.setattr(triton, "_ROWS_OF_A_PRODUCT", 16)
    check(*made(35, 2, 3))


@needs_gpu
@pytest.mark.parametrize("label", [-1, 2])
def test_labels_without_an_output_are_refused(label):
    net, x = made()
    target = torch.tensor([0, 1, label, 0, 1, 0], device=DEVICE)
    with pytest.raises(InvalidArgumentError, match=f"target must hold classes from 0 to 1 for 2 outputs, got {label}"):
        backward(Objective(), net, x.detach(), target)
