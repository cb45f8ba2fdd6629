import copy
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fracdnn
from fracdnn import validation
from fracdnn.caputo import l1_step_factor, l1_weights, memory_matrix
from fracdnn.exceptions import FracdnnError
from fracdnn.nn import (
    DenseLayer,
    FractionalNetwork,
    FractionalStack,
    LearnedOrder,
    LearnedSteps,
    Memory,
    StencilLayer,
    WithoutSkip,
)


def network(n_features=2, n_outputs=3, *, seed=0, **options):
    options = {"n_layers": 8, "order": 0.5, "generator": torch.Generator().manual_seed(seed), **options}
    return FractionalNetwork(n_features, n_outputs, **options).double()


def batch(n=6, n_features=2, seed=0):
    return torch.randn(n, n_features, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def random_biases(net, seed=1):
    nn.init.normal_(net.b, 0.0, 0.3, generator=torch.Generator().manual_seed(seed))
    return net


@pytest.mark.parametrize("bias", [True, "scalar"])
def test_forward_is_the_papers_algorithm(bias):
    net, x = random_biases(network(bias=bias)), batch()
    a, c = l1_weights(0.5, 8), l1_step_factor(0.5, 0.2)
    states = [x]
    for j in range(1, 9):
        z = sum((a[j - k] * (states[k] - states[k - 1]) for k in range(1, j)), torch.zeros_like(x))
        states.append(states[-1] - z + c * torch.tanh(states[-1] @ net.K[j - 1].T + net.b[j - 1]))
    torch.testing.assert_close(net(x), states[-1] @ net.W.T, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(net(x, trajectory=True), torch.stack(states), rtol=1e-12, atol=1e-12)


def test_the_three_rivals_are_a_switch_apart():
    x = batch()
    fractional, residual, plain = network(), network(order=1.0), network(residual=False)
    for a, b in zip(fractional.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)  # the same initial values from the same generator
    y, z = x, x
    for K, b in zip(residual.K, residual.b, strict=True):
        y = y + 0.2 * torch.tanh(y @ K.T + b)
        z = torch.tanh(z @ K.T + b)
    torch.testing.assert_close(residual(x), y @ residual.W.T)
    torch.testing.assert_close(plain(x), z @ plain.W.T)
    torch.testing.assert_close(plain(x, trajectory=True)[-1], z)
    assert plain(x, trajectory=True).shape == fractional(x, trajectory=True).shape == (9, 6, 2)


@pytest.mark.parametrize(("activation", "factor"), [("tanh", math.sqrt(3)), ("relu", 1.0)])
def test_initial_values_are_the_papers(activation, factor):
    net = network(50, 40, n_layers=3, activation=activation)
    bound = factor / math.sqrt(50)
    for weight in (net.W, *net.K):
        assert 0.95 * bound < weight.abs().max() <= bound
        assert abs(float(weight.mean().detach())) < 0.05 * bound
    assert (net.b == 0).all()
    again = network(50, 40, n_layers=3, activation=activation)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))
    other = network(50, 40, n_layers=3, activation=activation, seed=1)
    assert not torch.equal(net.W, other.W)


def test_width_adds_an_input_projection():
    net, x = network(width=7), batch()
    assert net(x, trajectory=True).shape == (9, 6, 7)
    torch.testing.assert_close(net(x, trajectory=True)[0], x @ net.input_weight.T + net.input_bias)
    assert network().input_weight is None
    assert {name: tuple(p.shape) for name, p in net.named_parameters()} == {
        "K": (8, 7, 7),
        "b": (8, 7),
        "W": (3, 7),
        "input_weight": (7, 2),
        "input_bias": (7,),
    }
    assert network(bias="scalar").b.shape == (8,)
    assert network(bias=False).b is None


@pytest.mark.parametrize(("n", "compressed"), [(23, False), (24, True)])
def test_compression_is_chosen_for_states_of_the_width(n, compressed):
    """70 states of 20 features: 24 samples of them are more than 2¹⁵ numbers."""
    net = network(width=20, n_layers=70)
    net(batch(n))
    assert net.compressed_ is compressed


def test_a_new_tolerance_of_the_compression_takes_effect():
    net = network(n_layers=70, compress=True)
    fine = net(batch())
    net.memory.compress_tol = 1e-2
    coarse = net(batch())
    assert 1e-7 < float((coarse - fine).detach().norm() / fine.detach().norm()) < 1e-1


@pytest.mark.parametrize(("stencil", "points"), [("nine-point", 9), ("five-point", 5)])
def test_a_stencil_is_a_matrix_on_the_grid(stencil, points):
    net = random_biases(network(12, 2, operator=stencil, grid_shape=(3, 4)))
    assert net.psi.shape == (8, points)
    layer = net.as_modules().stack[0]
    kernel = torch.zeros(9, dtype=torch.float64)
    kernel[[1, 3, 4, 5, 7] if points == 5 else list(range(9))] = layer.psi.detach()
    matrix = torch.zeros(12, 12, dtype=torch.float64)
    for row in range(3):
        for column in range(4):
            for i in range(3):
                for j in range(3):
                    other = (row + i - 1, column + j - 1)
                    if 0 <= other[0] < 3 and 0 <= other[1] < 4:
                        matrix[4 * row + column, 4 * other[0] + other[1]] = kernel[3 * i + j]
    x = batch(5, 12)
    torch.testing.assert_close(layer(x), torch.tanh(x @ matrix.T + layer.b))
    net(x).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_a_five_point_laplacian_is_the_laplacian():
    net = network(9, 2, operator="five-point", grid_shape=(3, 3), activation="identity")
    with torch.no_grad():
        net.psi[0] = torch.tensor([1.0, 1.0, -4.0, 1.0, 1.0])
    bump = torch.zeros(1, 9, dtype=torch.float64)
    bump[0, 4] = 1.0
    assert net.as_modules().stack[0](bump).tolist() == [[0, 1, 0, 1, -4, 1, 0, 1, 0]]


@pytest.mark.parametrize("order", [0.1, 0.5, 0.9, 1.0])
def test_the_gradient_is_that_of_central_differences(order):
    """The paper's gradient test: for W, K and b, the exact adjoint meets central differences to 1e-8."""
    net, x = random_biases(network(order=order, n_layers=20)), batch(10)
    target = torch.arange(10) % 3
    gradients = torch.autograd.grad(cross_entropy(net(x), target), list(net.parameters()))
    for parameter, gradient in zip(net.parameters(), gradients, strict=True):
        direction = torch.randn(parameter.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
        values = []
        for sign in (1, -2, 1):
            with torch.no_grad():
                parameter.add_(direction, alpha=sign * 1e-5)
            values.append(float(cross_entropy(net(x), target).detach()))
        difference = (values[0] - values[1]) / 2e-5
        assert difference == pytest.approx(float((gradient * direction).sum()), rel=1e-6, abs=1e-9)


def flat_gradient(net, x, target):
    loss = cross_entropy(net(x), target)
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, [net.K, net.b])])


@pytest.mark.parametrize("order", [0.1, 0.3, 0.5])
def test_the_exact_adjoint_discretises_the_right_equation(order):
    """Without K the multiplier is τ (T − t)^(γ − 1) / Γ(γ), to first order in the step; the paper's is 1.

    Near order 1 a term of order 2 − γ is too close to show the first one's slope.
    """
    errors = []
    for n_layers in (20, 40, 80, 160):
        net = network(1, 1, n_layers=n_layers, order=order, step_size=1 / n_layers)
        with torch.no_grad():
            net.K.zero_()
            net.W.fill_(1.0)
        net(torch.zeros(1, 1, dtype=torch.float64)).sum().backward()
        t = torch.arange(n_layers, dtype=torch.float64) / n_layers
        wanted = (1 - t) ** (order - 1) / math.gamma(order) / n_layers
        errors.append(float((net.b.grad[:, 0] / wanted - 1)[: n_layers // 2].abs().max()))
    slopes = [math.log2(before / after) for before, after in itertools.pairwise(errors)]
    assert all(abs(slope - 1.0) < 0.15 for slope in slopes)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order": 1.0},
        {"width": 5, "activate_input": True, "activation": "gelu"},
        {"bias": "scalar", "learn_order": True},
        {"bias": False, "step_size": [0.1, 0.2, 0.3, 0.4, 0.1, 0.2, 0.3, 0.4]},
        {"residual": False},
        {"n_features": 6, "operator": "five-point", "grid_shape": (2, 3)},
    ],
    ids=str,
)
def test_the_same_network_as_modules(options):
    """Equal outputs and gradients, and parameters of its own."""
    net = network(**options)
    x = batch(6, net.architecture.n_features)
    opened = net.as_modules()
    torch.testing.assert_close(opened(x), net(x), rtol=1e-12, atol=1e-12)
    assert len(opened.stack) == 8
    assert isinstance(opened.stack, nn.Sequential if options.get("residual") is False else FractionalStack)
    opened(x).square().sum().backward()
    net(x).square().sum().backward()
    operators = net.psi if "operator" in options else net.K
    for j, layer in enumerate(opened.stack):
        mine = next(layer.parameters())
        torch.testing.assert_close(mine.grad, operators.grad[j], rtol=1e-10, atol=1e-12)
        with torch.no_grad():
            mine.zero_()
    assert (operators != 0).all()


def test_options_build_the_same_network_again():
    steps = torch.tensor([0.1] * 8)
    net = network(width=5, activation="gelu", order=np.float32(0.25), step_size=steps, compress=False)
    again = FractionalNetwork(**net.options).double()
    again.load_state_dict(net.state_dict())
    assert torch.equal(again(batch()), net(batch()))
    assert again.options == net.options


def test_what_a_network_says_of_itself():
    shown = repr(network(width=5, learn_order=True, order=0.7))
    assert "2 → 3, 8 layers of width 5, activation='tanh', bias=True, operator='dense'" in shown
    assert "order=0.7 (learned), step_size=0.2, compress='auto'" in shown


def test_a_state_dict_of_another_order_is_refused():
    with pytest.raises(
        FracdnnError, match=r"must be one of order 0.5 and step 0.2, got one of order 0.3 and step 0.2; build"
    ):
        network().load_state_dict(network(order=0.3).state_dict())


def test_learned_order_is_passed_on():
    net = network(learn_order=True)
    net(batch()).sum().backward()
    assert net.memory.learned_order.raw.grad is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_follows_the_network(dtype):
    assert network().to(dtype)(batch().to(dtype)).dtype == dtype


def test_autocast_keeps_the_states_of_a_wide_network_in_single_precision():
    net = network(width=8).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net(batch().float(), trajectory=True).dtype == torch.float32


BAD = [
    (lambda: network(residual=False, order=7.0), r"order must lie in \(0, 1\], got 7.0"),
    (lambda: network(0), "n_features must be at least 1, got 0"),
    (lambda: network(n_outputs=0), "n_outputs must be at least 1, got 0"),
    (lambda: network(n_layers=0), "n_layers must be at least 1, got 0"),
    (lambda: network(width=0), "width must be at least 1, got 0"),
    (lambda: network(activation="swish"), "activation must be one of 'tanh', 'relu'.*got 'swish'"),
    (lambda: network(bias="yes"), "bias must be True, False or 'scalar', got 'yes'"),
    (lambda: network(operator="sparse"), "operator must be one of 'dense', 'five-point', 'nine-point', got 'sparse'"),
    (lambda: network(operator="nine-point"), r"grid_shape must be two whole numbers above 0.*is the width 2.*got None"),
    (lambda: network(4, operator="nine-point", grid_shape=(-2, -2)), r"grid_shape must be.*got \(-2, -2\)"),
    (lambda: network(4, operator="nine-point", grid_shape=(1.6, 2.5)), r"grid_shape must be.*got \(1.6, 2.5\)"),
    (lambda: network(4, operator="nine-point", grid_shape=4), "grid_shape must be.*got 4"),
    (lambda: network(residual="no"), "residual must be True or False, got 'no' of type str; pass a bool"),
    (lambda: network(activate_input=1), "activate_input must be True or False, got 1"),
    (lambda: network(learn_steps="no"), "learn_steps must be True or False, got 'no'"),
    (lambda: network(compress_tol=1.0), "compress_tol must lie below 1, got 1.0; it is a relative error"),
    (lambda: network()([[1.0, 2.0]]), r"x must be a floating-point tensor, got list; .*torch.as_tensor\(x, dtype="),
    (lambda: network()(batch().numpy()), "x must be a floating-point tensor, got ndarray"),
    (lambda: network()(batch().long()), r"x must be a floating-point tensor, got torch.int64; .*x.float\(\)"),
    (lambda: network()(batch().long(), trajectory=True), "x must be a floating-point tensor, got torch.int64"),
    (
        lambda: network()(batch().to("meta")),
        r"x must be on the device of the network, cpu, got meta; use x.to\('cpu'\)",
    ),
    (
        lambda: network(learn_order=True).load_state_dict(network().state_dict()),
        "a state dict must be one of order learned and step 0.2, got one of order 0.5 and step 0.2; build the network",
    ),
    (lambda: network(6, operator="nine-point", grid_shape=(2, 2)), r"grid_shape must be.*width 6.*got \(2, 2\)"),
    (lambda: network(residual=False, learn_order=True), "residual must be True to learn the order or the steps"),
    (
        lambda: network()(batch(6, 3)),
        r"x must have 2 features along its last axis, got shape \(6, 3\); samples are rows",
    ),
    (lambda: network()(batch().float()), "x must have the dtype of the network, torch.float64, got torch.float32"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call, message):
    with pytest.raises(FracdnnError, match=message):
        call()


@pytest.mark.parametrize("linear", [False, True])
def test_modules_keep_what_is_frozen_and_the_mode(linear):
    net = network(width=3).eval()
    net.K.requires_grad_(False)
    net.input_bias.requires_grad_(False)
    modules = net.as_modules(linear_layers=linear)
    assert not any(module.training for module in modules.modules())
    frozen = {name for name, each in modules.named_parameters() if not each.requires_grad}
    layers = {f"stack.layers.{j}.{'0.weight' if linear else 'K'}" for j in range(net.architecture.n_layers)}
    assert frozen == {"input_projection.bias", *layers}


def test_a_trajectory_says_how_it_was_summed():
    net = network()
    net(batch(), trajectory=True)
    assert net.compressed_ is False


def test_layers_and_learned_orders_describe_themselves():
    shown = repr(network(bias="scalar", learn_order=True).as_modules())
    assert "DenseLayer(2 → 2, activation='tanh', bias='scalar')" in shown
    assert "LearnedOrder(one for all layers)" in shown


def test_it_trains_in_an_ordinary_loop():
    net = FractionalNetwork(2, 2, n_layers=10, order=0.3, generator=torch.Generator().manual_seed(0))
    x = torch.rand(200, 2, generator=torch.Generator().manual_seed(1))
    target = (x[:, 0] <= x[:, 1]).long()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x - 0.5), target).backward()
        optimizer.step()
    assert (net(x - 0.5).argmax(1) == target).float().mean() > 0.95


def test_a_refused_state_dict_changes_nothing():
    net, other = network(order=0.9), network(order=0.3, seed=1)
    before = net.K.clone()
    with pytest.raises(FracdnnError, match="must be one of order"):
        net.load_state_dict(other.state_dict())
    assert torch.equal(net.K, before)


@pytest.mark.parametrize(
    ("activation", "name"),
    [
        (nn.Tanh(), "tanh"),
        (torch.relu, "relu"),
        (nn.functional.silu, "silu"),
        (nn.GELU(), "gelu"),
        ("sigmoid", "sigmoid"),
    ],
)
def test_an_activation_is_a_name_a_module_or_a_function(activation, name):
    given, named = network(activation=activation), network(activation=name)
    assert given.options == named.options
    torch.testing.assert_close(given(batch()), named(batch()))


@pytest.mark.parametrize("bad", ["swish", 3, [], None, nn.PReLU])
def test_what_is_no_activation(bad):
    message = r"activation must be one of .*, a module or a function of a tensor, got .*; pass for example"
    with pytest.raises(FracdnnError, match=message):
        network(activation=bad)


class Unhashable:
    """A callable that cannot be a key."""

    __hash__ = None

    def __call__(self, y):
        return torch.sin(y)


@pytest.mark.parametrize(
    "activation",
    [nn.GELU("tanh"), nn.PReLU(init=0.1, dtype=torch.float64), torch.sin, Unhashable(), lambda y: y.clamp(-0.5, 0.5)],
    ids=["gelu", "prelu", "sin", "unhashable", "lambda"],
)
@pytest.mark.parametrize(
    "options", [{"width": 5, "activate_input": True}, {"operator": "nine-point", "grid_shape": (1, 2)}]
)
def test_any_function_of_a_tensor_is_an_activation(activation, options):
    """Against the layers by hand, values and gradients, also of what the activation learns."""
    net = network(activation=activation, n_layers=3, learn_order=True, **options).double()
    opened, x = net.as_modules(), batch().double().requires_grad_()
    outputs = net(x)
    y = activation(x @ net.input_weight.T + net.input_bias) if "width" in options else x
    states, steps = [y], [layer.double() for layer in opened.stack]
    for j in range(3):
        argument = states[j] @ net.K[j].T + net.b[j] if "width" in options else None
        change = steps[j](states[j]) if argument is None else activation(argument)
        weights = memory_matrix(net.order.item(), 3)[j, : j + 1]
        factor = float(l1_step_factor(net.order.item(), 0.2))
        states.append(torch.tensordot(weights, torch.stack(states), 1) + factor * change)
    torch.testing.assert_close(outputs, states[-1] @ net.W.T)
    torch.testing.assert_close(opened(x), outputs)
    again = FractionalNetwork(**net.options).double()
    again.load_state_dict(net.state_dict())
    torch.testing.assert_close(again(x), outputs)
    assert torch.autograd.gradcheck(lambda x: net(x), x)
    outputs.sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_layers_share_a_module_that_learns():
    net = network(activation=nn.PReLU(init=0.1), width=5, learn_steps=True)
    assert "activation.weight" in dict(net.named_parameters())
    copied = copy.deepcopy(net)
    with torch.no_grad():
        copied.activation.weight.fill_(0.7)
    assert (copied(batch()) - net(batch())).abs().max() > 1e-4
    opened = copied.as_modules()
    torch.testing.assert_close(opened(batch()), copied(batch()))
    assert len([name for name, _ in opened.named_parameters() if "activation" in name]) == 1
    copied.reset_parameters()
    assert copied.activation.weight.item() == pytest.approx(0.1)
    assert "activation='PReLU(num_parameters=1)'" in repr(net)


def test_an_activation_must_keep_the_shape():
    with pytest.raises(FracdnnError, match=r"return a tensor of the shape it is given, \(.*\), got \(\) from sum;"):
        network(activation=torch.sum)(batch())
    with pytest.raises(FracdnnError, match=r"got tuple from .*lambda"):
        network(activation=lambda y: (y, y))(batch())


PUBLIC_MODULES = {
    FractionalStack: lambda **place: FractionalStack([nn.Linear(4, 4)], learn_order=True, learn_steps=True, **place),
    FractionalNetwork: lambda **place: FractionalNetwork(2, 3, n_layers=2, learn_order=True, **place),
    Memory: lambda **place: Memory(3, learn_order="layer", learn_steps=True, **place),
    LearnedOrder: lambda **place: LearnedOrder(torch.tensor(0.3), **place),
    LearnedSteps: lambda **place: LearnedSteps(torch.tensor([0.3, 0.1]), **place),
    DenseLayer: lambda **place: DenseLayer(torch.eye(4), torch.zeros(4), "tanh", **place),
    StencilLayer: lambda **place: StencilLayer(
        torch.ones(9), None, "tanh", grid_shape=(2, 2), operator="nine-point", **place
    ),
}


def test_all_public_modules_are_listed():
    """`WithoutSkip` has no parameters but those of the layer that it is given."""
    public = {getattr(fracdnn.nn, name) for name in fracdnn.nn.__all__}
    modules = {each for each in public if isinstance(each, type) and issubclass(each, nn.Module)}
    assert modules == {*PUBLIC_MODULES, WithoutSkip}


@pytest.mark.parametrize("kind", PUBLIC_MODULES, ids=lambda kind: kind.__name__)
def test_modules_take_device_and_dtype_and_reset_as_those_of_torch_do(kind):
    make = PUBLIC_MODULES[kind]
    assert {each.dtype for each in make().parameters()} == {torch.get_default_dtype()}
    module = make(device="meta", dtype=torch.float64)
    assert {(each.device.type, each.dtype) for each in module.parameters()} == {("meta", torch.float64)}
    module.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(torch.nan)
    module.reset_parameters()
    assert all(bool(parameter.isfinite().all()) for parameter in module.parameters())


def test_learned_orders_are_as_exact_as_their_dtype():
    stack = FractionalStack([nn.Linear(4, 4)], order=0.3, learn_order=True, dtype=torch.float64)
    assert float(stack.order.detach()) == pytest.approx(0.3, rel=1e-15)
    assert FractionalNetwork(2, 3, n_layers=1, order=0.3, learn_order=True, dtype=torch.float64).order.item() == (
        pytest.approx(0.3, rel=1e-15)
    )


def test_a_stack_resets_attention_whole():
    layer = nn.TransformerEncoderLayer(4, 2, 8)
    stack = FractionalStack([WithoutSkip(layer)])
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(7.0)
    stack.reset_parameters()
    assert not any(bool((parameter == 7).any()) for parameter in layer.parameters())
    assert not bool(layer.self_attn.out_proj.bias.any())


def test_device_and_dtype_as_torch_has_them():
    net = FractionalNetwork(2, 3, n_layers=2, learn_order=True, device="meta", dtype=torch.float64)
    assert {(each.device.type, each.dtype) for each in net.parameters()} == {("meta", torch.float64)}
    assert "device" not in net.options
    assert FractionalNetwork(2, 3, n_layers=2, dtype=torch.bfloat16)(batch().bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("learned", [{"learn_order": "layer"}, {"learn_steps": True}], ids=str)
def test_what_is_fixed_goes_where_the_learned_is(learned, monkeypatch):
    """To a device whose numbers nobody may look at."""
    monkeypatch.setattr(validation, "values_are_unknown", lambda tensor: True)
    memory = Memory(3, order=[0.2, 0.5, 0.7], step_size=[0.1, 0.2, 0.3], device="meta", **learned)
    plan = memory.plan(torch.empty(2, 3, device="meta"), 3)
    assert all(each.is_meta for each in plan.weight_tensors)


@pytest.mark.parametrize(
    "options", [{}, {"operator": "five-point", "grid_shape": (1, 2), "bias": "scalar"}, {"width": 4}]
)
def test_parameters_are_drawn_anew(options):
    net = FractionalNetwork(2, 3, n_layers=4, learn_order=True, generator=torch.Generator().manual_seed(3), **options)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(7.0)
    net.reset_parameters(torch.Generator().manual_seed(3))
    torch.testing.assert_close(dict(net.state_dict()), before, equal_nan=True)
    net.reset_parameters()
    assert not torch.equal(net.W, before["W"])
