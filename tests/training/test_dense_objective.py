"""The objective by a pass without a graph, against the definition, autograd and finite differences."""

import copy

import pytest
import torch
from torch.overrides import TorchFunctionMode

from fracdnn.exceptions import NotFiniteError
from fracdnn.nn import fused
from fracdnn.nn.dense_pass import DensePass
from fracdnn.nn.operators import ACTIVATIONS, DenseLayer
from fracdnn.training import AdamTraining, Objective, Regularization, Task, dense_objective
from tests.training.problems import OBJECTIVES, REGULARIZATION, by_definition, data, network, orders_of_remainders

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
WIDE = 20  # wider than what the compiled kernel takes


@pytest.fixture
def calls(monkeypatch):
    """How often gradients came without a graph."""
    made = []
    back = DensePass.back
    monkeypatch.setattr(DensePass, "back", lambda self, cotangent: made.append(self) or back(self, cotangent))
    return made


def gradients(objective, net, x, target, weight):
    """The value and the gradients that `Objective.backward` leaves."""
    net.zero_grad()
    value, outputs = objective.backward(net, x, target, weight)
    torch.testing.assert_close(outputs, net(x).detach())
    assert not outputs.requires_grad
    return value, [p.grad for p in net.parameters()]


def check(objective, net, x, target, weight):
    tolerance = TOLERANCE[x.dtype]
    value, found = gradients(objective, net, x, target, weight)
    for usual in (by_definition(objective, net, x, target, weight), objective._usual(net, x, target, weight)[0]):
        assert value == pytest.approx(float(usual.detach()), rel=tolerance)
        wanted = torch.autograd.grad(usual, list(net.parameters()), allow_unused=True)
        for mine, theirs in zip(found, wanted, strict=True):
            assert mine.dtype == theirs.dtype
            assert mine.shape == theirs.shape
            assert (mine - theirs).norm() <= tolerance * theirs.norm().clamp(min=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("bias", ["vector", "scalar", "none"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_and_biases(calls, activation, bias, opened, dtype):
    opening = {"width": WIDE, "activate_opening": True} if opened else {}
    net = network(3 if opened else WIDE, activation=activation, bias=bias, step_size=0.1, dtype=dtype, **opening)
    check(Objective(regularization=REGULARIZATION), net, *data(30, net, weighted=True))
    assert len(calls) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "options",
    [
        {"order": 1.0},
        {"order": 0.1},
        {"order": 0.9, "history": "exact"},
        {"learn_order": True},
        {"learn_order": True, "n_layers": 1},
        {"learn_order": "layer"},
        {"learn_steps": True},
        {"learn_steps": True, "order": 1.0},
        {"learn_order": True, "learn_steps": True},
        {"order": [0.2, 0.5, 0.9, 1.0, 0.3], "step_size": [0.1, 0.3, 0.2, 0.5, 0.05]},
        {"order": 1.0, "step_size": [0.1, 0.3, 0.2, 0.5, 0.05]},
    ],
    ids=str,
)
def test_orders_and_steps(calls, options, dtype):
    net = network(WIDE, dtype=dtype, **options)
    check(Objective(regularization=REGULARIZATION), net, *data(30, net))
    assert len(calls) == 1


@pytest.mark.parametrize("learn_order", [False, True])
@pytest.mark.parametrize(("n_layers", "n"), [(20, 200), (70, 200), (70, 3)])
def test_deep_networks(calls, n_layers, n, learn_order):
    net = network(WIDE, n_layers=n_layers, learn_order=learn_order, history="exact")
    check(Objective(), net, *data(n, net))
    deep = network(WIDE, n_layers=n_layers, learn_order=learn_order, step_size=0.01)
    assert deep.stack.history_ == ("compressed" if n_layers == 70 else "exact")
    given = data(n, deep)
    value, found = gradients(Objective(), deep, *given)
    usual = by_definition(Objective(), deep, *given)
    assert value == pytest.approx(float(usual.detach()), rel=1e-8)
    for mine, theirs in zip(found, torch.autograd.grad(usual, list(deep.parameters())), strict=True):
        assert (mine - theirs).norm() <= 1e-7 * theirs.norm().clamp(min=1e-2)
    assert len(calls) == 2


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_losses_weights_and_regularisation(calls, objective, weighted):
    net = network(width=WIDE, activation="gelu", activate_opening=True)
    check(objective, net, *data(50, net, objective.loss, weighted))
    assert len(calls) == 1


@pytest.mark.parametrize("learn_order", [False, True])
def test_the_remainder_of_a_taylor_expansion_is_of_second_order(calls, learn_order):
    net = network(width=WIDE, activation="gelu", activate_opening=True, learn_order=learn_order)
    given = data(50, net)
    objective = Objective(regularization=REGULARIZATION)
    start, slopes = gradients(objective, net, *given)
    for order in orders_of_remainders(objective, net, given, start, slopes, first=4e-3):
        assert abs(order - 2) < 0.1
    assert len(calls) == 1


def test_gradients_are_added_to_those_that_are_there(calls):
    net = network(WIDE, learn_order=True)
    given = data(30, net)
    _, once = gradients(Objective(), net, *given)
    once = [gradient.clone() for gradient in once]
    Objective().backward(net, *given)
    for parameter, gradient in zip(net.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)
    assert len(calls) == 2


def test_parameters_that_are_held_fixed_get_no_gradient(calls):
    net = network(width=WIDE, learn_order=True)
    free = {"W.weight", "stack.layers.2.K"}
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name in free)
    given = data(30, net)
    Objective().backward(net, *given)
    assert {name for name, parameter in net.named_parameters() if parameter.grad is not None} == free
    kept = [p for name, p in net.named_parameters() if name in free]
    for parameter, gradient in zip(
        kept, torch.autograd.grad(by_definition(Objective(), net, *given), kept), strict=True
    ):
        torch.testing.assert_close(parameter.grad, gradient)
    assert calls


def test_gradients_are_everyones_to_change(calls):
    """Not views that autograd refuses, nor a graph that grows."""
    net = network(width=WIDE)
    given = data(30, net)
    K = net.stack.layers[0].K
    K.grad = torch.zeros_like(K).requires_grad_()
    for _ in range(2):
        Objective().backward(net, *given)
    assert K.grad.norm() > 0
    assert K.grad.grad_fn is None
    net.zero_grad()
    Objective().backward(net, *given)
    expected = K.grad + 0.1 * K
    K.grad.add_(0.1 * K)
    torch.testing.assert_close(K.grad, expected)
    assert len(calls) == 3


@pytest.mark.parametrize("names", [("stack.layers.2", "K"), ("W", "weight"), ("opening", "weight")], ids=str)
def test_gradients_lie_as_their_parameters_do(calls, names):
    """Fused optimisers pair them by address."""
    net = network(width=WIDE)
    module, name = net.get_submodule(names[0]), names[1]
    setattr(module, name, torch.nn.Parameter(getattr(module, name).detach().T.contiguous().T))
    check(Objective(), net, *data(30, net))
    assert getattr(module, name).grad.stride() == getattr(module, name).stride()
    assert len(calls) == 1


def test_parameters_registered_in_another_order(calls):
    net = network(width=WIDE)
    parametrize = torch.nn.utils.parametrize
    parametrize.register_parametrization(net.opening, "weight", torch.nn.Identity())
    parametrize.remove_parametrizations(net.opening, "weight")
    assert [name for name, _ in net.opening.named_parameters()] == ["bias", "weight"]
    check(Objective(), net, *data(30, net))
    assert len(calls) == 1


def test_fewer_layers_than_it_was_made_with(calls):
    net = network(WIDE, order=1.0, step_size=[0.1, 0.3, 0.2, 0.5, 0.05])
    net.stack.layers = net.stack.layers[:3]
    given = data(30, net)
    value, _ = gradients(Objective(), net, *given)
    assert value == pytest.approx(float(Objective()._usual(net, *given)[0].detach()), rel=1e-12)
    assert len(calls) == 1


@pytest.mark.parametrize("options", [{}, {"width": WIDE}], ids=str)
def test_copies_go_the_same_way(calls, options):
    net = network(WIDE, **options)
    given = data(30, net)
    gradients(Objective(), net, *given)
    gradients(Objective(), copy.deepcopy(net), *given)
    assert len(calls) == 2


def test_tied_parameters_get_the_sum(calls):
    net = network(WIDE)
    net.stack.layers[3] = net.stack.layers[1]
    check(Objective(), net, *data(30, net))
    assert len(calls) == 1


class OtherLayer(DenseLayer):
    """One that does something else with its matrix."""

    def __init__(self):
        super().__init__(WIDE, activation="tanh", bias="vector", generator=None)
        self.double()

    def forward(self, y):
        return torch.sin(self.linear(y))


def doubled(parameter):
    parameter.grad.mul_(2)


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.stack.layers[1].register_forward_hook(lambda *a: None),
        lambda net: net.register_forward_pre_hook(lambda *a: None),
        lambda net: net.W.register_full_backward_hook(lambda *a: None),
        lambda net: net.opening.register_forward_hook(lambda *a: None),
        lambda net: net.stack.layers[2].K.register_hook(lambda gradient: 3 * gradient),
        lambda net: net.stack.layers[2].K.register_post_accumulate_grad_hook(doubled),
        lambda net: torch.nn.utils.parametrizations.orthogonal(net.stack.layers[0], "K"),
        lambda net: net.stack.layers.__setitem__(1, OtherLayer()),
        lambda net: setattr(net, "W", torch.nn.Linear(WIDE, 4, dtype=torch.float64)),
    ],
)
def test_whoever_looks_on_sees_every_operation(calls, change):
    net = network(width=WIDE)
    change(net)
    given = data(30, net)
    value, _ = Objective().backward(net, *given)
    found = [p.grad for p in net.parameters()]
    net.zero_grad()
    usual, _ = Objective()._usual(net, *given)
    usual.backward()
    assert value == float(usual.detach())
    for mine, parameter in zip(found, net.parameters(), strict=True):
        assert torch.equal(mine, parameter.grad)
    assert not calls


def test_weights_that_are_computed_get_their_gradient(calls):
    """As in a hypernetwork: what is learned lies outside."""
    net = network(WIDE)
    given = data(30, net)
    for name, module in (("weight", net.W), ("K", net.stack.layers[1])):
        net.zero_grad()
        parameter = getattr(module, name)
        z = parameter.detach().clone().requires_grad_()
        delattr(module, name)
        setattr(module, name, 2 * z)
        Objective().backward(net, *given)
        assert z.grad.norm() > 0
        delattr(module, name)
        setattr(module, name, parameter)
    assert not calls


class Doubled(Objective):
    def data_loss(self, output, target, weight):
        return 2 * super().data_loss(output, target, weight)


class Tripled(Regularization):
    def of(self, *parameters):
        return 3 * super().of(*parameters)


@pytest.mark.parametrize("width", [4, WIDE])
def test_subclasses_say_what_is_minimised(calls, width):
    net = network(width)
    given = data(30, net)
    loss, decay = Objective(), Objective(regularization=Regularization(decay=0.1))
    value, _ = loss.backward(net, *given)
    penalty = decay.backward(net, *given)[0] - value
    made = len(calls)
    assert Doubled().backward(net, *given)[0] == pytest.approx(2 * value)
    assert Objective(regularization=Tripled(decay=0.1)).backward(net, *given)[0] == pytest.approx(value + 3 * penalty)
    assert float(Doubled()(net, *given).detach()) == pytest.approx(2 * value)
    assert len(calls) == made


def test_joined_parameters_have_their_gradient_in_one_row(calls, monkeypatch):
    pytest.importorskip("numba", reason="parameters are joined for the compiled kernel")
    net = network(4)
    x, target, _ = data(30, net)
    monkeypatch.setattr(fused.Tiles, "loss", lambda *_, **__: None)  # as where it meets a number that is not finite
    with net.joined(x) as (row, *_):
        Objective().backward(net, x, target)
        assert row.grad is not None
    assert not calls


class TwiceTanh(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        return 2 * result if function is torch.tanh else result


def test_function_modes_and_default_devices(calls):
    net = network(WIDE)
    given = data(30, net)
    with TwiceTanh():
        value, _ = Objective().backward(net, *given)
        found = [p.grad for p in net.parameters()]
        wanted = torch.autograd.grad(Objective()._usual(net, *given)[0], list(net.parameters()))
    for mine, theirs in zip(found, wanted, strict=True):
        assert torch.equal(mine, theirs)
    with torch.device("meta"):
        assert Objective().backward(net, *given)[0] != value
    assert not calls


def test_nothing_to_learn_is_an_error(calls):
    net = network(WIDE).requires_grad_(False)
    with pytest.raises(RuntimeError, match="does not require grad"):
        Objective().backward(net, *data(30, net))
    assert not calls


@pytest.mark.parametrize("options", [{"residual": False}, {"adjoint": "continuous"}, {"operator": "stencil"}], ids=str)
def test_other_networks_take_the_usual_path(calls, options):
    if "operator" in options:
        options = {**options, "grid_shape": (4, 5)}
    net = network(WIDE, **options)
    Objective().backward(net, *data(30, net))
    assert all(p.grad is not None for p in net.parameters())
    assert not calls


def test_autocast_anomalies_and_inputs_with_gradients_take_the_usual_path(calls):
    net = network(WIDE, dtype=torch.float32)
    x, target, _ = data(30, net)
    with torch.autocast("cpu", torch.bfloat16):
        Objective().backward(net, x, target)
    with torch.autograd.set_detect_anomaly(True):
        Objective().backward(net, x, target)
    x.requires_grad_()
    Objective().backward(net, x, target)
    assert x.grad is not None
    assert not calls


def test_a_state_that_is_not_finite_is_named(calls):
    net = network(WIDE, activation="relu")
    with torch.no_grad():
        net.stack.layers[3].K.fill_(1e308)
        net.stack.layers[3].b.fill_(1e308)
    with pytest.raises(NotFiniteError, match="layer 3"):
        Objective().backward(net, *data(30, net))
    assert all(p.grad is None for p in net.parameters())
    assert not calls


@pytest.mark.parametrize("options", [{}, {"learn_order": True}, {"order": 1.0}], ids=str)
def test_training_ends_where_the_usual_path_does(calls, monkeypatch, options):
    def trained():
        net = network(width=WIDE, activation="gelu", activate_opening=True, **options)
        x, target, weight = data(90, net, weighted=True)
        history = AdamTraining(1e-2, 32, 5).fit(Task(net, Objective(regularization=REGULARIZATION), x, target, weight))
        return history.column("loss"), list(net.parameters())

    losses, parameters = trained()
    assert len(calls) == 15
    monkeypatch.setattr(dense_objective, "dense_pass", lambda *_: None)
    usual_losses, usual_parameters = trained()
    assert len(calls) == 15
    assert losses == pytest.approx(usual_losses, rel=1e-9)
    for mine, theirs in zip(parameters, usual_parameters, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-9)
