"""The objective and its gradients as training evaluates them, against the definition and finite differences."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from fracdnn.exceptions import NotFiniteError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import (
    Objective,
    Regularization,
    Task,
    backward,
    together,
)
from fracdnn.training.evaluation import data_loss_together
from tests.nn.problems import network
from tests.slow import each_once
from tests.training.problems import OBJECTIVES, REGULARIZATION, by_definition, data, orders_of_remainders

TOLERANCE = {torch.float64: 1e-11, torch.float32: 3e-4}


def evaluated(objective, net, x, target, weight):
    """The value and the gradients that an evaluation leaves."""
    net.zero_grad()
    value, outputs = backward(objective, net, x, target, weight)
    torch.testing.assert_close(outputs, net(x).detach())
    assert not outputs.requires_grad
    return value, [p.grad for p in net.parameters()]


def check(objective, net, x, target, weight):
    tolerance = TOLERANCE[x.dtype]
    value, found = evaluated(objective, net, x, target, weight)
    for usual in (by_definition(objective, net, x, target, weight), objective(net, x, target, weight)):
        assert value == pytest.approx(float(usual.detach()), rel=tolerance)
        wanted = torch.autograd.grad(usual, list(net.parameters()), allow_unused=True)
        for mine, theirs in zip(found, wanted, strict=True):
            assert mine.dtype == theirs.dtype
            assert mine.shape == theirs.shape
            assert (mine - theirs).norm() <= tolerance * theirs.norm().clamp(min=1e-2)


@pytest.mark.parametrize(
    ("width", "size", "dtype"),
    each_once(range(1, 17), [(1, 5), (33, 35), (150, 9)], [torch.float32, torch.float64]),
)
def test_every_small_width(dtype, width, size):
    n, n_layers = size
    net = network(width, 3, n_layers, dtype)
    check(Objective(regularization=REGULARIZATION), net, *data(n, net))


@pytest.mark.parametrize("n_outputs", [1, 2, 7, 20])
def test_outputs(n_outputs):
    net = network(3, n_outputs)
    check(Objective(), net, *data(40, net))
    check(Objective("squared_error"), net, *data(40, net, "squared_error"))


@pytest.mark.parametrize(
    ("objective", "way"), each_once(OBJECTIVES, [(False, None), (True, 5), (True, None), (False, 5)]), ids=repr
)
def test_losses_weights_and_regularisation(objective, way):
    weighted, width = way
    net = network(width=width, activate_input=True)
    check(objective, net, *data(50, net, objective.loss, weighted))


@pytest.mark.parametrize(("order", "bias"), each_once([1.0, 0.9, 0.1], [True, "scalar", False]))
def test_orders_and_biases(order, bias):
    net = network(order=order, bias=bias, n_layers=11, width=4)
    check(Objective(regularization=REGULARIZATION), net, *data(40, net, weighted=True))


def test_the_remainder_of_a_taylor_expansion_is_of_second_order():
    net = network(4, 3, 20)
    given = data(50, net)
    objective = Objective(regularization=REGULARIZATION)
    start, slopes = evaluated(objective, net, *given)
    for order in orders_of_remainders(lambda moved: objective(moved, *given), net, start, slopes, first=1e-2):
        assert abs(order - 2) < 0.15


def test_gradients_are_added_to_those_that_are_there():
    net = network(width=4)
    given = data(30, net)
    _, once = evaluated(Objective(), net, *given)
    once = [gradient.clone() for gradient in once]
    backward(Objective(), net, *given)
    for parameter, gradient in zip(net.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)


def test_what_is_frozen_gets_no_gradient():
    net = network(width=4)
    net.K.requires_grad_(False)
    net.input_bias.requires_grad_(False)
    given = data(20, net)
    backward(Objective(regularization=REGULARIZATION), net, *given)
    assert all((p.grad is None) != p.requires_grad for p in net.parameters())
    trained = [p for p in net.parameters() if p.requires_grad]
    expected = torch.autograd.grad(by_definition(Objective(regularization=REGULARIZATION), net, *given), trained)
    for parameter, gradient in zip(trained, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_gradients_are_everyones_to_change():
    """Not views that autograd refuses, nor a graph that grows, nor one another's memory."""
    net = network(width=4)
    given = data(30, net)
    net.K.grad = torch.zeros_like(net.K).requires_grad_()
    for _ in range(2):
        backward(Objective(), net, *given)
    assert net.K.grad.norm() > 0
    assert net.K.grad.grad_fn is None
    net.zero_grad()
    backward(Objective(), net, *given)
    others = [p.grad.clone() for p in net.parameters() if p is not net.K]
    net.K.grad.fill_(7.0)
    for mine, parameter in zip(others, (p for p in net.parameters() if p is not net.K), strict=True):
        assert torch.equal(mine, parameter.grad)


def test_gradients_lie_as_their_parameters_do():
    """Fused optimisers pair them by address."""
    net = network(width=4)
    for name in ("K", "W", "input_weight"):
        turned = getattr(net, name).detach().transpose(-1, -2).contiguous().transpose(-1, -2)
        setattr(net, name, torch.nn.Parameter(turned))
    check(Objective(), net, *data(30, net))
    for parameter in net.parameters():
        assert parameter.grad.stride() == parameter.stride()


class Doubled(Objective):
    def data_loss(self, outputs, target, weight):
        return 2 * super().data_loss(outputs, target, weight)


class Tripled(Regularization):
    def __call__(self, network):
        return 3 * super().__call__(network)


class Twice(FractionalNetwork):
    def forward(self, x):
        return 2.0 * super().forward(x)


def test_subclasses_say_what_is_minimised():
    net = network(4)
    given = data(30, net)
    value, _ = backward(Objective(), net, *given)
    penalty = backward(Objective(regularization=Regularization(decay=0.1)), net, *given)[0] - value
    assert backward(Doubled(), net, *given)[0] == pytest.approx(2 * value)
    tripled = Objective(regularization=Tripled(decay=0.1))
    assert backward(tripled, net, *given)[0] == pytest.approx(value + 3 * penalty)
    twice = Twice(3, 4, n_layers=5).double()
    x, target, _ = data(6, twice)
    assert backward(Objective(), twice, x, target)[0] == pytest.approx(float(cross_entropy(twice(x), target).detach()))


WATCHED = {
    "network": lambda net, seen: net.register_forward_hook(lambda *_: seen.append(1)),
    "network, back": lambda net, seen: net.register_full_backward_pre_hook(lambda *_: seen.append(1)),
    "parameter": lambda net, seen: net.K.register_hook(lambda _: seen.append(1)),
    "accumulated": lambda net, seen: net.W.register_post_accumulate_grad_hook(lambda _: seen.append(1)),
    "everything": lambda net, seen: torch.nn.modules.module.register_module_forward_hook(lambda *_: seen.append(1)),
}


@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
@pytest.mark.parametrize("what", WATCHED)
def test_hooks_still_run(what):
    net, seen = network(width=4), []
    handle = WATCHED[what](net, seen)
    try:
        backward(Objective(), net, *data(6, net))
    finally:
        handle.remove()
    assert seen


def test_a_hook_may_change_a_gradient():
    net = network(4)
    given = data(6, net)
    _, plain = evaluated(Objective(), net, *given)
    net.K.register_hook(lambda gradient: 3 * gradient)
    _, hooked = evaluated(Objective(), net, *given)
    torch.testing.assert_close(hooked[0], 3 * plain[0])


def test_autocast_anomalies_and_inputs_with_gradients():
    net = network(dtype=torch.float32)
    x, target, weight = data(30, net, weighted=True)
    with torch.autocast("cpu", torch.bfloat16):
        backward(Objective(), net, x, target)
    with torch.autograd.set_detect_anomaly(True):
        backward(Objective(), net, x, target)
    x.requires_grad_()
    backward(Objective(), net, x, target)
    assert x.grad is not None
    weight.requires_grad_()
    backward(Objective(), net, x.detach(), target, weight)
    assert weight.grad is not None


def test_it_evaluates_where_gradients_are_off():
    """A caller's `no_grad` is about the caller's own operations."""
    net = network()
    given = data(20, net)
    _, expected = evaluated(Objective(), net, *given)
    with torch.no_grad():
        _, found = evaluated(Objective(), net, *given)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(mine, theirs)


def test_nothing_to_learn_is_an_error():
    net = network().requires_grad_(False)
    with pytest.raises(RuntimeError, match="does not require grad"):
        backward(Objective(), net, *data(30, net))


@pytest.mark.parametrize(
    "options",
    [
        {"residual": False},
        {"n_features": 4, "operator": "nine-point", "grid_shape": (2, 2)},
        {"learn_order": True},
    ],
    ids=str,
)
def test_other_networks(options):
    net = network(**options)
    given = data(30, net)
    value, _ = backward(Objective(), net, *given)
    assert value == pytest.approx(float(Objective()(net, *given).detach()))
    assert all(p.grad is not None for p in net.parameters())


def test_a_state_that_is_not_finite_is_named():
    net = network(n_layers=6)
    x, target, _ = data(6, net)
    bad = x.clone()
    bad[2, 1] = math.nan
    with pytest.raises(NotFiniteError, match="the input must be finite"):
        backward(Objective(), net, bad, target)
    with torch.no_grad():
        net.b[3, 1] = math.nan
    with pytest.raises(NotFiniteError, match="layer 3 made the state not finite"):
        backward(Objective(), net, x, target)
    assert all(p.grad is None for p in net.parameters())


def test_trouble_with_a_chunk_and_an_interrupt_end_the_loss_of_all_chunks(monkeypatch):
    """As one process of several; here there is one only."""
    net = network(width=4)
    given = data(30, net)

    def chunks():
        yield given
        raise ValueError("no such file")

    with pytest.raises(ValueError, match="no such file"):
        data_loss_together(Objective(), net, chunks())
    assert math.isfinite(data_loss_together(Objective(), net, [given]))
    monkeypatch.setattr(together, "_interrupted", True)
    with pytest.raises(KeyboardInterrupt):
        data_loss_together(Objective(), net, [given])


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_outputs_that_are_not_finite_make_a_loss_that_is_not(loss):
    net = network()
    with torch.no_grad():
        net.W[1, 0] = math.inf
    assert not math.isfinite(backward(Objective(loss), net, *data(6, net, loss))[0])


def test_large_outputs_do_not_overflow():
    net = network()
    with torch.no_grad():
        net.W.mul_(1e4)
    check(Objective(), net, *data(30, net))


def test_labels_without_an_output_are_treated_as_torch_does():
    net = network()
    x, target, _ = data(6, net)
    target[2] = -100  # what cross_entropy ignores
    value, _ = backward(Objective(), net, x, target)
    assert value == pytest.approx(float(cross_entropy(net(x), target).detach()))
    target[2] = 4
    with pytest.raises(IndexError, match="out of bounds"):
        backward(Objective(), net, x, target)


def test_a_network_of_16_bits():
    net = network().to(torch.bfloat16)
    x, target, _ = data(6, net)
    assert backward(Objective(), net, x, target)[0] == float(cross_entropy(net(x), target).detach())


def test_probabilities_as_targets():
    net = network()
    x, _, _ = data(6, net)
    target = torch.full((6, 4), 0.25, dtype=torch.float64)
    assert backward(Objective(), net, x, target)[0] == pytest.approx(float(cross_entropy(net(x), target).detach()))


def test_accuracy_is_that_of_the_outputs():
    net = network()
    x, target, weight = data(40, net, weighted=True)
    for given in (None, weight):
        task = Task(net, Objective(), x, target, given)
        task.backward()
        hits = (net(x).argmax(1) == target).double()
        assert task.accuracy(task.output) == pytest.approx(
            float(hits.mean() if given is None else hits @ given / given.sum())
        )


def test_a_negative_view_is_taken_for_what_it_is():
    net = network()
    x, target, _ = data(8, net)
    expected, _ = backward(Objective(), net, -x, target)
    assert backward(Objective(), net, torch._neg_view(x), target)[0] == pytest.approx(expected, rel=1e-14)
