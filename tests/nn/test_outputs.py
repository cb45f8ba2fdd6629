"""A network's outputs and gradients against the definition and finite differences."""

import copy
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.overrides import TorchFunctionMode

from fracdnn.exceptions import NotFiniteError
from fracdnn.nn import Memory
from fracdnn.nn.operators import ACTIVATIONS
from tests.nn.problems import batch, network, outputs_by_definition
from tests.slow import each_once
from tests.training.problems import orders_of_remainders

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-4}


def weighted(result):
    return (result * torch.linspace(-1, 2, result.numel(), dtype=result.dtype).view_as(result)).sum()


def gradients(result, net, x):
    return torch.autograd.grad(weighted(result), [x, *net.parameters()])


def check(net, x, tolerance=None):
    """Values and all gradients against the definition, and the same values without a graph."""
    tolerance = TOLERANCE[x.dtype] if tolerance is None else tolerance
    result, expected = net(x), outputs_by_definition(net, x)
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)
    for mine, theirs in zip(gradients(result, net, x), gradients(expected, net, x), strict=True):
        assert mine.dtype == theirs.dtype
        assert (mine - theirs).norm() <= tolerance * theirs.norm().clamp(min=1.0)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(net(x).clone(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("size", "width", "dtype"),
    each_once([(1, 5), (2, 1), (31, 2), (33, 35), (63, 5)], [3, 1, 2, 8, 16], [torch.float32, torch.float64]),
)
def test_it_is_the_definition(dtype, width, size):
    n, n_layers = size
    check(network(width, 2, n_layers, dtype), batch(n, width, dtype))


@pytest.mark.parametrize(
    ("order", "bias", "activation"), each_once([1.0, 0.9, 0.5, 0.1], [True, "scalar", False], ["tanh", "relu"])
)
def test_orders_biases_and_activations(order, bias, activation):
    check(network(order=order, bias=bias, activation=activation, n_layers=9), batch(40))


@pytest.mark.parametrize("order", [0.5, 1.0, [0.2, 0.5, 0.9, 1.0, 0.3]])
def test_unequal_steps_and_orders(order):
    check(network(order=order, step_size=[0.1, 0.3, 0.2, 0.5, 0.05]), batch(20))


@pytest.mark.parametrize("activate", [True, False])
def test_an_input_projection(activate):
    net, x = network(2, width=5, activate_input=activate), batch(20, 2)
    check(net, x)
    net.zero_grad()
    net(x.detach()).sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in net.parameters())


@pytest.mark.parametrize(("activation", "dtype"), each_once(ACTIVATIONS, [torch.float32, torch.float64]))
def test_all_activations(activation, dtype):
    options = {"activation": activation, "step_size": 0.1, "width": 20, "activate_input": True}
    check(network(dtype=dtype, **options), batch(30, dtype=dtype))


LEARNED = [
    {"learn_order": True},
    {"learn_order": True, "n_layers": 1},
    {"learn_order": "layer"},
    {"learn_steps": True},
    {"learn_steps": True, "order": 1.0},
    {"learn_order": True, "learn_steps": True},
]


@pytest.mark.parametrize(("options", "dtype"), each_once(LEARNED, [torch.float32, torch.float64]), ids=str)
def test_learned_memories(options, dtype):
    check(network(20, dtype=dtype, **options), batch(30, 20, dtype))


@pytest.mark.parametrize(("size", "learn_order"), each_once([(False, 200), (True, 200), (True, 3)], [False, True]))
def test_deep_networks(size, learn_order):
    compress, n = size
    net = network(20, n_layers=70, learn_order=learn_order, step_size=0.01, compress=compress)
    check(net, batch(n, 20), tolerance=1e-7 if compress else None)
    assert net.compressed_ is compress


def test_networks_without_skip_connections():
    net, x = network(residual=False), batch(20)
    y = x
    for K, b in zip(net.K, net.b, strict=True):
        y = torch.tanh(y @ K.T + b)
    result, expected = net(x), y @ net.W.T
    torch.testing.assert_close(result, expected)
    for mine, theirs in zip(gradients(result, net, x), gradients(expected, net, x), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(("bias", "order"), each_once([True, "scalar", False], [0.5, 1.0]))
def test_first_and_second_derivatives(order, bias):
    net, x = network(2, 2, 3, order=order, bias=bias, width=2), batch(3, 2)
    names, parameters = zip(*net.named_parameters(), strict=True)

    def run(x, *parameters):
        return torch.func.functional_call(net, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, (x, *parameters))
    assert torch.autograd.gradgradcheck(run, (x, *parameters))


def test_second_derivatives_of_a_learned_order():
    net, x = network(2, 2, 3, learn_order=True), batch(3, 2)
    raw = net.memory.learned_order.raw

    def run(x, K, value):
        return torch.func.functional_call(net, {"K": K, "memory.learned_order.raw": value}, (x,))

    assert torch.autograd.gradcheck(run, (x, net.K, raw))
    assert torch.autograd.gradgradcheck(run, (x, net.K, raw))


def test_the_remainder_of_a_taylor_expansion_is_of_second_order():
    net, x = network(4, 3, 20), batch(50, 4).detach()

    def value(moved):
        return weighted(torch.tanh(moved(x)))

    start = value(net)
    slopes = torch.autograd.grad(start, list(net.parameters()))
    for order in orders_of_remainders(value, net, float(start.detach()), slopes, first=2e-3):
        assert abs(order - 2) < 0.15


def test_hooks_on_the_input_run_once_in_second_derivatives():
    net, x = network(), batch()
    y, seen = x * 1.0, []
    y.register_hook(lambda gradient: seen.append(1))
    torch.autograd.grad(net(y).square().sum(), x, create_graph=True)
    assert len(seen) == 1


def test_many_cotangents_at_once():
    net, x = network(), batch()
    result = net(x)
    basis = torch.eye(result.numel(), dtype=x.dtype).view(-1, *result.shape)
    together = torch.autograd.grad(result, x, basis, is_grads_batched=True, retain_graph=True)[0]
    for i, cotangent in enumerate(basis):
        torch.testing.assert_close(together[i], torch.autograd.grad(result, x, cotangent, retain_graph=True)[0])


def test_splitting_a_batch_changes_nothing():
    net, x = network(8, n_layers=9), batch(101, 8)
    torch.testing.assert_close(torch.cat([net(x[:37]), net(x[37:])]), net(x), rtol=1e-13, atol=1e-13)


def test_what_is_frozen_gets_no_gradient():
    net = network(width=4)
    net.K.requires_grad_(False)
    net.input_bias.requires_grad_(False)
    result = net(batch().detach())
    result.sum().backward()
    assert all((p.grad is None) != p.requires_grad for p in net.parameters())
    trained = [p for p in net.parameters() if p.requires_grad]
    expected = torch.autograd.grad(outputs_by_definition(net, batch().detach()).sum(), trained)
    for parameter, gradient in zip(trained, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    net.requires_grad_(False)
    assert not net(batch().detach()).requires_grad


@pytest.mark.parametrize("which", ["K", "W"])
def test_what_is_changed_between_the_passes_is_an_error(which):
    net, x = network(), batch() * 1.0
    loss = net(x).square().sum()
    with torch.no_grad():
        getattr(net, which).add_(1.0)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation|been modified inplace"):
        loss.backward()


def test_a_freed_graph_is_an_error_and_a_retained_one_is_not():
    net = network()
    loss = net(batch()).sum()
    loss.backward(retain_graph=True)
    first = net.K.grad.clone()
    loss.backward()
    assert torch.equal(net.K.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_gradients_lie_as_their_parameters_do():
    """Fused optimisers pair them by address."""
    net = network(width=4)
    for name in ("K", "W", "input_weight"):
        turned = getattr(net, name).detach().transpose(-1, -2).contiguous().transpose(-1, -2)
        setattr(net, name, torch.nn.Parameter(turned))
    check(net, batch(30))
    net(batch()).sum().backward()
    for parameter in net.parameters():
        assert parameter.grad.stride() == parameter.stride()


def test_views_of_any_kind():
    net, x = network(), batch(20).detach()
    turned = x.T.contiguous().T
    assert not turned.is_contiguous()
    torch.testing.assert_close(net(turned), net(x), rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(net(torch._neg_view(x)), net(-x), rtol=1e-14, atol=1e-14)


def test_weights_that_are_computed_get_their_gradient():
    """As in a hypernetwork: what is learned lies outside."""
    net = network()
    z = net.K.detach().clone().requires_grad_()
    del net.K
    net.K = 2 * z
    net(batch()).sum().backward()
    assert z.grad.norm() > 0


def test_one_network_in_many_threads():
    net = network(4, 3, 7)
    many = [batch(n, 4, seed=n) for n in (399, 400, 401, 31, 32, 33)]

    def run(x):
        return gradients(net(x), net, x)

    expected = [run(x) for x in many]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run, many * 4))
    for mine, theirs in zip(found, expected * 4, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_the_same_message_where_numbers_are_not_finite():
    net, x = network(n_layers=6), batch()
    bad = x.detach().clone()
    bad[2, 1] = math.nan
    with pytest.raises(NotFiniteError, match="the input must be finite"):
        net(bad)
    with torch.no_grad():
        net.b[3, 1] = math.nan
    with pytest.raises(NotFiniteError, match="layer 3 made the state not finite"):
        net(x)
    with pytest.raises(NotFiniteError, match="layer 3 made the state not finite"), torch.no_grad():
        net(x)


def test_a_sum_that_overflows_is_no_error():
    net, x = network(activation="relu"), torch.full((4, 3), 1e308, dtype=torch.float64)
    torch.nn.init.zeros_(net.K)
    torch.nn.init.eye_(net.W.detach())
    assert torch.isfinite(net(x)).all()


@pytest.mark.parametrize(
    ("options", "shape"),
    [({}, (3,)), ({}, (0, 3)), ({}, (2, 5, 3)), ({"dtype": torch.bfloat16}, (6, 3)), ({"width": 5}, (2, 5, 3))],
    ids=str,
)
def test_samples_of_any_shape(options, shape):
    net = network(**options)
    x = torch.zeros(shape, dtype=net.W.dtype)
    result = net(x)
    assert result.shape == (*shape[:-1], 4)
    result.sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_a_computed_weight():
    net = network()
    torch.nn.utils.parametrizations.orthogonal(net, "W")
    assert net(batch()).shape == (6, 4)


def test_before_the_first_pass_no_sum_ran():
    assert network().compressed_ is None


class TwiceTanh(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        return 2 * result if function is torch.tanh else result


def test_whoever_transforms_or_observes_sees_every_operation():
    net, x = network(), batch()
    jacobian = torch.func.jacrev(net)(x)
    torch.testing.assert_close(torch.func.vmap(net)(x.detach().unsqueeze(0))[0], net(x))
    direction = torch.ones_like(x)
    _, tangent = torch.func.jvp(net, (x,), (direction,))
    with torch.autograd.forward_ad.dual_level():
        dual = net(torch.autograd.forward_ad.make_dual(x, direction))
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(dual).tangent, tangent)
    cotangent = torch.zeros(6, 4, dtype=torch.float64)
    cotangent[4, 1] = 1.0
    result = net(x)
    torch.testing.assert_close(jacobian[4, 1], torch.autograd.grad(result, x, cotangent)[0])
    with TwiceTanh():
        assert not torch.equal(net(x), result)
    with torch.autograd.set_detect_anomaly(True):
        net(x)
    single = network(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        single(batch(dtype=torch.float32))


@pytest.mark.parametrize(
    "options",
    [
        {"width": 20},
        pytest.param({"learn_order": True}, marks=pytest.mark.slow),
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"residual": False}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_compiled_and_exported_networks(options):
    net, x = network(n_layers=3, **options), batch()
    expected = net(x)
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected, rtol=1e-9, atol=1e-9)
    for mine, theirs in zip(gradients(compiled(x), net, x), gradients(expected, net, x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-9)
    exported = torch.export.export(net, (x,)).module()
    torch.testing.assert_close(exported(x), expected, rtol=1e-9, atol=1e-9)


def test_copies_run_as_their_originals():
    net, x = network(), batch()
    expected = net(x)
    again = copy.deepcopy(net)
    assert torch.equal(again(x), expected)
    with torch.no_grad():
        again.K.zero_()
    assert torch.equal(net(x), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none")
@pytest.mark.parametrize("options", [{}, {"order": 1.0}, {"learn_order": True}, {"n_layers": 200}], ids=str)
def test_cuda_agrees_with_the_cpu(options):
    net, x = network(20, step_size=0.05, **options), batch(30, 20)
    expected = [net(x), *gradients(net(x), net, x)]
    net.cuda()
    there = x.detach().cuda().requires_grad_()
    result = net(there)
    weights = torch.linspace(-1, 2, result.numel(), dtype=result.dtype, device="cuda").view_as(result)
    found = [result, *torch.autograd.grad((result * weights).sum(), [there, *net.parameters()])]
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-7, atol=1e-9)


def test_plans_are_kept():
    memory, state = Memory(1000, order=0.5), torch.zeros(500, 64)
    assert memory.plan(state, 1000) is memory.plan(state, 1000)
    assert memory.plan(state, 1000).compressed
