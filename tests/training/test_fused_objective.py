"""The objective by one compiled pass, against the definition, torch operations and finite differences."""

import copy
import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from fracdnn.exceptions import NotFiniteError
from fracdnn.nn import FractionalNetwork, fused
from fracdnn.training import FullBatchTraining, MiniBatchTraining, Objective, Task
from fracdnn.training.fused_objective import evaluated
from tests.training.problems import OBJECTIVES, REGULARIZATION, by_definition, data, network, orders_of_remainders

pytest.importorskip("numba", reason="the compiled pass needs Numba")

TOLERANCE = {torch.float64: 1e-11, torch.float32: 3e-4}


@pytest.fixture
def calls(monkeypatch):
    """How often value and gradients were computed in one pass, once it is compiled."""
    made = []
    for dtype in TOLERANCE:
        assert fused._kernel(dtype) is not None
    loss = fused.Tiles.loss
    monkeypatch.setattr(fused.Tiles, "loss", lambda self, *a, **o: made.append(self) or loss(self, *a, **o))
    return made


def in_torch(objective, net, x, target, weight):
    other = copy.copy(net)  # the same parameters
    other._modules = {**net._modules, "stack": copy.copy(net.stack)}
    other.stack.history = "exact"
    return objective(other, x, target, weight)


def check(objective, net, x, target, weight, usual=by_definition):
    tolerance, parameters = TOLERANCE[x.dtype], list(net.parameters())
    value, expected = objective(net, x, target, weight), usual(objective, net, x, target, weight)
    torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance)
    found, wanted = (torch.autograd.grad(each, parameters, allow_unused=True) for each in (value, expected))
    for mine, theirs in zip(found, wanted, strict=True):
        assert (mine - theirs).norm() <= tolerance * theirs.norm().clamp(min=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [*range(1, 17)])
@pytest.mark.parametrize(("n", "n_layers"), [(1, 5), (33, 35), (150, 9)])
def test_it_is_the_definition(calls, dtype, width, n, n_layers):
    net = network(width, 3, n_layers, dtype)
    check(Objective(regularization=REGULARIZATION), net, *data(n, net))
    assert len(calls) == 1


@pytest.mark.parametrize("n_layers", [1, 2, 7, 8, 9, 16, 17, 33])
@pytest.mark.parametrize("n_outputs", [1, 2, 7, 20])
def test_layers_and_outputs(calls, n_layers, n_outputs):
    net = network(3, n_outputs, n_layers)
    check(Objective(), net, *data(40, net))
    check(Objective("squared_error"), net, *data(40, net, "squared_error"))
    assert len(calls) == 2


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@pytest.mark.parametrize("width", [None, 5])
def test_losses_weights_and_regularisation(calls, objective, weighted, width):
    net = network(width=width)
    given = data(50, net, objective.loss, weighted)
    check(objective, net, *given)
    check(objective, net, *given, usual=in_torch)
    assert len(calls) == 2


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("bias", ["vector", "scalar", "none"])
@pytest.mark.parametrize("order", [1.0, 0.9, 0.1])
def test_orders_biases_and_activations(calls, order, bias, activation):
    net = network(order=order, bias=bias, activation=activation, n_layers=11, width=4, activate_opening=True)
    check(Objective(regularization=REGULARIZATION), net, *data(40, net, weighted=True))
    assert calls


@pytest.mark.parametrize("order", [0.5, 1.0, [0.2, 0.5, 0.9, 1.0, 0.3]])
def test_unequal_steps_and_orders(calls, order):
    net = network(order=order, step_size=[0.1, 0.3, 0.2, 0.5, 0.05])
    check(Objective(), net, *data(20, net))
    assert calls


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
@pytest.mark.parametrize("bias", ["vector", "scalar", "none"])
def test_first_and_second_derivatives(calls, loss, bias):
    net = network(2, 3, 3, bias=bias, width=2)
    x, target, weight = data(4, net, loss, weighted=True)
    objective = Objective(loss, REGULARIZATION, 0.1 if loss == "cross_entropy" else 0.0)
    names, parameters = zip(*net.named_parameters(), strict=True)

    def run(x, *parameters):
        for name, parameter in zip(names, parameters, strict=True):
            holder, _, last = name.rpartition(".")
            del net.get_submodule(holder)._parameters[last]
            net.get_submodule(holder)._parameters[last] = parameter
        return objective(net, x, target, weight)

    x.requires_grad_()
    assert torch.autograd.gradcheck(run, (x, *parameters))
    assert torch.autograd.gradgradcheck(run, (x, *parameters))
    assert calls


def test_the_remainder_of_a_taylor_expansion_is_of_second_order(calls):
    net = network(4, 3, 20)
    given = data(50, net)
    objective = Objective(regularization=REGULARIZATION)
    value = objective(net, *given)
    start, slopes = float(value.detach()), torch.autograd.grad(value, list(net.parameters()))
    for order in orders_of_remainders(objective, net, given, start, slopes, first=1e-2):
        assert abs(order - 2) < 0.15
    assert len(calls) == 5


def test_the_gradient_of_the_input(calls):
    net = network()
    x, target, _ = data(40, net)
    x.requires_grad_()
    objective = Objective()
    mine = torch.autograd.grad(objective(net, x, target), x)[0]
    theirs = torch.autograd.grad(by_definition(objective, net, x, target, None), x)[0]
    torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-13)
    assert calls


def test_an_upstream_factor_and_a_retained_graph():
    net = network()
    given = data(20, net)
    parameters = list(net.parameters())
    value = Objective(regularization=REGULARIZATION)(net, *given)
    once = torch.autograd.grad(value, parameters, retain_graph=True)
    thrice = torch.autograd.grad(3.0 * value, parameters, retain_graph=True)
    for one, three in zip(once, thrice, strict=True):
        torch.testing.assert_close(three, 3.0 * one)
    value.backward(retain_graph=True)
    value.backward(retain_graph=True)
    value.backward()
    for parameter, one in zip(parameters, once, strict=True):
        torch.testing.assert_close(parameter.grad, 3.0 * one)
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()


def test_outputs_are_the_networks(calls):
    net = network()
    given = data(40, net)
    _, outputs = Objective().value_and_outputs(net, *given)
    assert calls
    assert not outputs.requires_grad
    torch.testing.assert_close(outputs, net(given[0]).detach(), rtol=1e-12, atol=1e-13)


def test_accuracy_is_that_of_the_outputs():
    net = network()
    x, target, weight = data(40, net, weighted=True)
    for given in (None, weight):
        task = Task(net, Objective(), x, target, given)
        task.loss()
        hits = (net(x).argmax(1) == target).double()
        assert task.accuracy(task.output) == pytest.approx(
            float(hits.mean() if given is None else hits @ given / given.sum())
        )


def test_results_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr("fracdnn.kernels.tiles.FEWEST_MULTIPLICATIONS_FOR_THREADS", 0)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3, 3, 7):
            torch.set_num_threads(count)
            net = network(4, 3, 7, width=6)
            value, outputs = Objective().value_and_outputs(net, *data(3000, net, weighted=True))
            found.append([value, outputs, *torch.autograd.grad(value, list(net.parameters()))])
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(mine, first) for mine, first in zip(other, found[0], strict=True))


def test_many_threads_at_once_do_not_share_their_rooms():
    from concurrent.futures import ThreadPoolExecutor

    net = network(4, 3, 7)
    many = [data(400, net, seed=seed) for seed in range(8)]

    def run(given):
        return torch.autograd.grad(Objective()(net, *given), list(net.parameters()))

    expected = [run(given) for given in many]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run, many * 4))
    for mine, theirs in zip(found, expected * 4, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_frozen_parameters_get_no_gradient(calls):
    net = network(width=4)
    net.layers[1].K.requires_grad_(False)
    net.W.requires_grad_(False)
    net.opening.bias.requires_grad_(False)
    given = data(20, net)
    objective = Objective(regularization=REGULARIZATION)
    objective(net, *given).backward()
    assert calls
    assert all((p.grad is None) != p.requires_grad for p in net.parameters())
    trained = [p for p in net.parameters() if p.requires_grad]
    expected = torch.autograd.grad(by_definition(objective, net, *given), trained)
    for parameter, gradient in zip(trained, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_without_gradients_nothing_goes_back(calls):
    net = network()
    given = data(20, net)
    expected = Objective()(net, *given).detach()
    assert len(calls) == 1
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(Objective()(net, *given).clone(), expected)
    net.requires_grad_(False)
    assert not Objective()(net, *given).requires_grad
    assert len(calls) == 1


def test_the_same_message_where_numbers_are_not_finite():
    net = network(n_layers=6)
    x, target, _ = data(6, net)
    bad = x.clone()
    bad[2, 1] = math.nan
    with pytest.raises(NotFiniteError, match="the input must be finite"):
        Objective()(net, bad, target)
    with torch.no_grad():
        net.layers[3].b[1] = math.nan
    with pytest.raises(NotFiniteError, match=r"layer 3 \(DenseLayer\) made the state not finite"):
        Objective()(net, x, target)
    with net.joined(x), pytest.raises(NotFiniteError, match=r"layer 3 \(DenseLayer\) made the state not finite"):
        Objective()(net, x, target)


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_outputs_that_are_not_finite_make_a_loss_that_is_not(loss):
    net = network()
    given = data(6, net, loss)
    with torch.no_grad():
        net.W.weight[1, 0] = math.inf
    assert not math.isfinite(in_torch(Objective(loss), net, *given).detach())
    assert not math.isfinite(Objective(loss)(net, *given).detach())


def test_large_outputs_do_not_overflow(calls):
    net = network()
    given = data(30, net)
    with torch.no_grad():
        net.W.weight.mul_(1e4)
    check(Objective(), net, *given, usual=in_torch)
    assert calls


def test_labels_without_an_output_are_treated_as_usual():
    net = network()
    x, target, _ = data(6, net)
    target[2] = -100  # what cross_entropy ignores
    value = Objective()(net, x, target)
    torch.testing.assert_close(value, cross_entropy(net(x), target, reduction="none").mean())
    target[2] = 4
    with pytest.raises(IndexError, match="out of bounds"):
        Objective()(net, x, target)


def test_probabilities_as_targets(calls):
    net = network()
    x, _, _ = data(6, net)
    target = torch.full((6, 4), 0.25, dtype=torch.float64)
    torch.testing.assert_close(Objective()(net, x, target), cross_entropy(net(x), target))
    assert not calls


WATCHED = {
    "network": lambda net, seen: net.register_forward_hook(lambda *_: seen.append(1)),
    "class map": lambda net, seen: net.W.register_forward_hook(lambda *_: seen.append(1)),
    "class map, back": lambda net, seen: net.W.register_full_backward_hook(lambda *_: seen.append(1)),
    "layer": lambda net, seen: net.layers[1].register_forward_hook(lambda *_: seen.append(1)),
    "stack": lambda net, seen: net.stack.register_forward_pre_hook(lambda *_: seen.append(1)),
    "opening map": lambda net, seen: net.opening.register_forward_hook(lambda *_: seen.append(1)),
    "parameter": lambda net, seen: net.layers[1].K.register_hook(lambda _: seen.append(1)),
    "accumulated": lambda net, seen: net.W.weight.register_post_accumulate_grad_hook(lambda _: seen.append(1)),
    "everything": lambda net, seen: torch.nn.modules.module.register_module_forward_hook(lambda *_: seen.append(1)),
}


@pytest.mark.parametrize("what", WATCHED)
def test_hooks_still_run(what):
    net, seen = network(width=4), []
    handle = WATCHED[what](net, seen)
    try:
        Objective()(net, *data(6, net)).backward()
    finally:
        handle.remove()
    assert seen


class Twice(FractionalNetwork):
    def forward(self, x):
        return 2.0 * super().forward(x)


ASIDE = {
    "exact": lambda: network(history="exact"),
    "learned order": lambda: network(learn_order=True),
    "no skip connections": lambda: network(residual=False),
    "printed adjoint": lambda: network(adjoint="continuous", bias="scalar"),
    "stencil": lambda: network(4, operator="stencil", grid_shape=(2, 2)),
    "wide": lambda: network(17),
    "subclass": lambda: Twice(3, 4, n_layers=5).double(),
}


@pytest.mark.parametrize("case", ASIDE)
def test_it_steps_aside(calls, case):
    net = ASIDE[case]()
    given = data(6, net)
    value = Objective()(net, *given)
    torch.testing.assert_close(value, cross_entropy(net(given[0]), given[1]))
    value.backward()
    assert not calls


def test_it_steps_aside_where_operations_are_transformed(calls):
    net = network()
    x, target, weight = data(6, net, weighted=True)
    objective = Objective()
    torch.func.grad(lambda x: objective(net, x, target))(x)
    with torch.autograd.forward_ad.dual_level():
        objective(net, torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)), target)
    single = network(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        objective(single, x.float(), target)
    objective(net, x, target, weight.clone().requires_grad_()).backward()
    assert evaluated(objective, net, x[:0], target[:0], None) is None
    assert not calls


def test_joined_parameters_and_what_is_transformed_meanwhile(calls):
    net = network(bias="scalar")
    x, target, _ = data(20, net)
    objective = Objective(regularization=REGULARIZATION)
    expected = torch.autograd.grad(by_definition(objective, net, x, target, None), list(net.parameters()))
    with net.joined(x) as parameters:
        objective(net, x, target).backward()
        (step,) = torch.autograd.grad(objective(net, x, target), parameters[0], create_graph=True)
        torch.autograd.grad(step.square().sum(), parameters[0])
        torch.func.grad(lambda x: objective(net, x, target))(x)
    assert len(calls) == 2
    for parameter, gradient in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("training", [FullBatchTraining(optimizer="bfgs", max_iter=8), MiniBatchTraining(2, 4)])
def test_training_is_that_of_torch_operations(calls, training):
    trained = []
    for history in ("auto", "exact"):
        net = network(n_layers=9, history=history, bias="scalar")
        x, target, _ = data(60, net)
        record = training.fit(Task(net, Objective(regularization=REGULARIZATION), x, target))
        trained.append([torch.tensor(record.column("loss")), *net.parameters()])
    for mine, theirs in zip(*trained, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)


def test_tied_parameters_stay_one(calls):
    """What training reports is what the network then is, and the gradient of a tied K is that of all its places."""
    net = network(n_layers=6)
    for layer in net.stack.layers[1:]:
        layer.K = net.stack.layers[0].K
    x, target, _ = data(40, net)
    task = Task(net, Objective(), x, target)
    history = FullBatchTraining(max_iter=15).fit(task)
    assert len({id(layer.K) for layer in net.layers}) == 1
    assert float(task.loss().detach()) == pytest.approx(history.records[-1].loss, rel=1e-9)


def test_joined_networks_take_any_batch(calls):
    net = network()
    x, _, _ = data(8, net)
    expected = net(x).detach()
    with net.joined(x), torch.no_grad():
        assert net(x[:0]).shape == (0, 4)
        torch.testing.assert_close(net(x[0]), expected[0])
        torch.testing.assert_close(net(x[None]), expected[None])


def test_a_negative_view_is_taken_for_what_it_is(calls):
    net = network()
    x, target, _ = data(8, net)
    expected, _ = Objective().backward(net, -x, target)
    assert Objective().backward(net, torch._neg_view(x), target)[0] == pytest.approx(expected, rel=1e-14)
