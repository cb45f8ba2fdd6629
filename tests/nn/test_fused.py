"""The compiled pass against the definition and against torch operations: values, gradients, and when to step aside."""

import copy
import itertools
import math
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch.nn.functional import cross_entropy

from fracdnn.exceptions import NotFiniteError
from fracdnn.memory import reference
from fracdnn.nn import FractionalNetwork, fused

pytest.importorskip("numba", reason="the compiled pass needs Numba")

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-4}


@pytest.fixture
def calls(monkeypatch):
    """How often the kernel ran forward, once it is compiled."""
    made = []
    for dtype in TOLERANCE:
        assert fused._kernel(dtype) is not None
    forward = fused.Tiles.forward
    monkeypatch.setattr(fused.Tiles, "forward", lambda self, *a: made.append(self) or forward(self, *a))
    return made


def network(n_features=3, n_layers=5, dtype=torch.float64, *, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    net = FractionalNetwork(n_features, 2, n_layers=n_layers, generator=generator, **options).to(dtype)
    with torch.no_grad():
        for layer in net.layers:
            if layer.b is not None:
                layer.b.normal_(0, 0.3, generator=generator)
    return net


def batch(n=6, width=3, dtype=torch.float64, seed=3):
    x = torch.randn(n, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return x.requires_grad_()


def by_definition(net, x):
    plan = net.stack._new_plan(1e-10)
    states = reference.propagate(plan.dense_matrix(), plan.factors, lambda j, y: net.layers[j](y), x)
    return net.W(states[-1])


def gradients(result, net, x):
    loss = (result * torch.linspace(-1, 2, result.numel(), dtype=result.dtype).view_as(result)).sum()
    return torch.autograd.grad(loss, [x, *net.parameters()])


def check(net, x, usual=by_definition):
    result, expected = net(x), usual(net, x)
    tolerance = TOLERANCE[x.dtype]
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)
    for mine, theirs in zip(gradients(result, net, x), gradients(expected, net, x), strict=True):
        assert (mine - theirs).norm() <= tolerance * theirs.norm().clamp(min=1.0)
    with torch.no_grad():
        torch.testing.assert_close(net(x), expected, rtol=tolerance, atol=tolerance)


def in_torch(net, x):
    other = copy.copy(net)  # the same parameters
    other._modules = {**net._modules, "stack": copy.copy(net.stack)}
    other.stack.history = "exact"
    return other(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 2, 3, 8, 16])
@pytest.mark.parametrize(("n", "n_layers"), [(1, 5), (2, 1), (31, 2), (33, 35), (63, 5)])
def test_it_is_the_definition(calls, dtype, width, n, n_layers):
    check(network(width, n_layers, dtype), batch(n, width, dtype))
    assert len(calls) == 2


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("bias", ["vector", "scalar", "none"])
@pytest.mark.parametrize("order", [1.0, 0.9, 0.5, 0.1])
def test_orders_biases_and_activations(calls, order, bias, activation):
    net, x = network(order=order, bias=bias, activation=activation, n_layers=9), batch(40)
    check(net, x)
    check(net, x, usual=in_torch)
    assert len(calls) == 4


@pytest.mark.parametrize("order", [0.5, 1.0, [0.2, 0.5, 0.9, 1.0, 0.3]])
def test_unequal_steps_and_orders(calls, order):
    check(network(order=order, step_size=[0.1, 0.3, 0.2, 0.5, 0.05]), batch(20))
    assert calls


def test_an_opening_map_and_no_gradient_for_the_input(calls):
    net = network(2, width=5)
    check(net, batch(20, 2), usual=in_torch)
    torch.autograd.backward(net(batch(20, 2).detach()).sum())
    assert all(p.grad is not None for p in net.parameters())
    net.stack.requires_grad_(False)
    assert torch.autograd.grad(net(batch(20, 2)).sum(), net.opening.weight)[0].abs().sum() > 0
    assert len(calls) == 4


def test_a_frozen_layer_gets_no_gradient():
    net = network()
    net.layers[1].K.requires_grad_(False)
    net(batch()).sum().backward()
    assert net.layers[1].K.grad is None
    assert net.layers[2].K.grad is not None


def test_results_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr("fracdnn.kernels.tiles.FEWEST_MULTIPLICATIONS_FOR_THREADS", 0)
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 3, 3, 7):
            torch.set_num_threads(count)
            net, x = network(4, 7), batch(3000, 4)
            states = fused.last_state(net.stack, x, net.stacked)
            found.append([states, *torch.autograd.grad(states.square().sum(), [x, *net.stack.parameters()])])
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(mine, first) for mine, first in zip(other, found[0], strict=True))


def test_splitting_a_batch_changes_nothing():
    net, x = network(8, 9), batch(101, 8)
    torch.testing.assert_close(torch.cat([net(x[:37]), net(x[37:])]), net(x), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("order", [1.0, 0.5])
@pytest.mark.parametrize("bias", ["vector", "scalar", "none"])
def test_first_and_second_derivatives(calls, order, bias):
    net, x = network(2, 3, order=order, bias=bias), batch(3, 2)
    names, parameters = zip(*net.named_parameters(), strict=True)

    def run(x, *parameters):
        return torch.func.functional_call(net, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, (x, *parameters))
    assert torch.autograd.gradgradcheck(run, (x, *parameters))
    assert calls


def test_hooks_on_the_input_run_once_in_second_derivatives():
    net, x = network(), batch()
    y = x * 1.0
    seen = []
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


def test_the_remainder_of_a_taylor_expansion_is_of_second_order():
    net, x = network(4, 20), batch(50, 4).detach()
    target = torch.arange(50) % 2
    parameters = list(net.parameters())
    value = cross_entropy(net(x), target)
    slopes = torch.autograd.grad(value, parameters)
    generator = torch.Generator().manual_seed(5)
    direction = [torch.randn(p.shape, dtype=p.dtype, generator=generator) for p in parameters]
    linear = sum(float((g * d).sum()) for g, d in zip(slopes, direction, strict=True))
    steps, remainders = [1e-2, 5e-3, 2.5e-3, 1.25e-3], []
    for step in steps:
        moved = copy.deepcopy(net)
        with torch.no_grad():
            for parameter, d in zip(moved.parameters(), direction, strict=True):
                parameter.add_(d, alpha=step)
            remainders.append(abs(float(cross_entropy(moved(x), target) - value) - step * linear))
    for coarse, fine in itertools.pairwise(remainders):
        assert abs(math.log2(coarse / fine) - 2) < 0.15


def test_the_same_message_where_numbers_are_not_finite():
    net, x = network(n_layers=6), batch()
    bad = x.detach().clone()
    bad[2, 1] = math.nan
    with pytest.raises(NotFiniteError, match="the input must be finite"):
        net(bad)
    with torch.no_grad():
        net.layers[3].b[1] = math.nan
    with pytest.raises(NotFiniteError, match=r"layer 3 \(DenseLayer\) made the state not finite"):
        net(x)
    grown = network(activation="relu", dtype=torch.float32)
    with torch.no_grad():
        grown.layers[2].K.fill_(3e38)
    with pytest.raises(NotFiniteError, match=r"layer [23] \(DenseLayer\)"):
        grown(batch(dtype=torch.float32))


def test_a_sum_that_overflows_is_no_error(calls):
    net, x = network(activation="relu"), torch.full((4, 3), 1e308, dtype=torch.float64)
    for layer in net.layers:
        torch.nn.init.zeros_(layer.K)
    assert torch.isfinite(net.stack(x)).all()
    torch.testing.assert_close(fused.last_state(net.stack, x, net.stacked), net.stack(x))


@pytest.mark.parametrize("which", ["K", "b"])
def test_a_parameter_changed_between_the_passes_is_an_error(which):
    net = network()
    loss = net(batch()).sum()
    with torch.no_grad():
        getattr(net.layers[2], which).add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_an_input_changed_between_the_passes_is_an_error():
    net, x = network(), batch()
    y = x * 1.0
    loss = net(y).sum()
    with torch.no_grad():
        y.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_freed_graph_is_an_error_and_a_retained_one_is_not():
    net = network()
    loss = net(batch()).sum()
    loss.backward(retain_graph=True)
    first = net.layers[0].K.grad.clone()
    loss.backward()
    assert torch.equal(net.layers[0].K.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_rows_need_not_be_contiguous():
    net, x = network(), batch(20)
    turned = x.detach().T.contiguous().T
    assert not turned.is_contiguous()
    assert torch.equal(net(turned), net(x))


def test_inference_mode(calls):
    net, x = network(), batch()
    with torch.inference_mode():
        result = net(x)
    torch.testing.assert_close(result.clone(), net(x).detach())
    assert len(calls) == 2


def hooked():
    net = network()
    net.layers[1].register_forward_hook(lambda *_: None)
    return net


def replaced():
    net = network()
    net.stack.layers[1] = torch.nn.Linear(3, 3).double()
    return net


def reparametrised():
    net = network()
    torch.nn.utils.parametrizations.orthogonal(net.layers[1], "K")
    return net


ASIDE = {
    "exact": lambda: network(history="exact"),
    "compressed": lambda: network(history="compressed"),
    "deep": lambda: network(n_layers=200),
    "learned order": lambda: network(learn_order=True),
    "learned steps": lambda: network(learn_steps=True),
    "activation": lambda: network(activation="gelu"),
    "hook": hooked,
    "replaced": replaced,
    "parametrised": reparametrised,
}


@pytest.mark.parametrize("case", ASIDE)
def test_it_steps_aside(calls, case):
    net = ASIDE[case]()
    net(batch()).sum().backward()
    assert not calls


def test_it_steps_aside_where_operations_are_transformed(calls):
    net, x = network(), batch()
    jacobian = torch.func.jacrev(net)(x)
    torch.func.vmap(net)(x.detach().unsqueeze(0))
    torch.func.jvp(net, (x,), (torch.ones_like(x),))
    with torch.autograd.forward_ad.dual_level():
        net(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
    net(x[0])
    net(x[:0])
    assert network(17)(batch(2, 17)).shape == (2, 2)
    single = network(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        single(batch(dtype=torch.float32))
    assert not calls
    cotangent = torch.zeros(6, 2, dtype=torch.float64)
    cotangent[4, 1] = 1.0
    torch.testing.assert_close(jacobian[4, 1], torch.autograd.grad(net(x), x, cotangent)[0])


def test_without_numba_it_is_as_it_was():
    code = """
        import sys

        class Blocker:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in ("numba", "llvmlite"):
                    raise ImportError(f"{name} is not here")

        sys.meta_path.insert(0, Blocker())
        import torch
        from fracdnn.nn import FractionalNetwork

        net = FractionalNetwork(2, 2, n_layers=4, generator=torch.Generator().manual_seed(0))
        net(torch.ones(3, 2)).sum().backward()
        exact = FractionalNetwork(2, 2, n_layers=4, history="exact", generator=torch.Generator().manual_seed(0))
        assert torch.equal(net(torch.ones(3, 2)), exact(torch.ones(3, 2)))
        assert "numba" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, env=os.environ)


def test_numba_is_imported_only_when_it_is_used():
    code = "import sys, fracdnn, fracdnn.nn; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


@pytest.mark.parametrize("bias", ["vector", "scalar", "none"])
@pytest.mark.parametrize("width", [None, 5])
def test_joined_parameters_are_the_layers_own(bias, width):
    generator = torch.Generator().manual_seed(0)
    network = FractionalNetwork(3, 2, n_layers=4, order=0.5, bias=bias, width=width, generator=generator).double()
    x = torch.randn(7, 3, dtype=torch.float64, generator=generator)
    names = [name for name, _ in network.named_parameters()]
    network(x).square().sum().backward()
    expected = [p.grad.clone() for p in network.parameters()]
    network.zero_grad()
    with network.joined(x) as parameters:
        assert sum(p.numel() for p in parameters) == sum(p.numel() for p in network.parameters())
        assert len(parameters) == 1 + 2 * (width is not None)
        network(x).square().sum().backward()
        with torch.no_grad():
            parameters[0][2 * network.width**2] += 1.0  # all K come first: this is the third layer's
        moved = network.layers[2].K.detach().clone()
    assert [name for name, _ in network.named_parameters()] == names
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-12, atol=1e-14)
    assert torch.equal(network.layers[2].K, moved)
    assert network.layers[0].K.untyped_storage().data_ptr() != network.layers[1].K.untyped_storage().data_ptr()


def test_a_copy_made_while_joined_is_on_its_own():
    net, x = network(), batch()
    with net.joined(x) as (row,):
        copied = copy.deepcopy(net)
        expected = net(x).detach()
        with torch.no_grad():
            row.zero_()
        assert torch.equal(copied(x), expected)
        copied(x).sum().backward()
        assert row.grad is None
    assert copied.layers[1].K.grad is not None


def test_joining_twice_is_joining_once():
    net, x = network(), batch()
    with net.joined(x) as outer:
        with net.joined(x) as inner:
            assert inner[0] is outer[0]
        net(x).sum().backward()
        assert outer[0].grad is not None


def test_watched_parameters_are_not_joined():
    net, x, seen = network(), batch(), []
    net.layers[1].K.register_hook(lambda _: seen.append(1))
    with net.joined(x):
        net(x).sum().backward()
    assert seen


def test_joining_where_the_kernel_does_not_apply_changes_nothing():
    network = FractionalNetwork(3, 2, n_layers=4, learn_order=True)
    with network.joined(torch.randn(7, 3)) as parameters:
        assert [id(p) for p in parameters] == [id(p) for p in network.parameters()]


def test_frozen_parameters_stay_when_joined():
    network = FractionalNetwork(3, 2, n_layers=4).double()
    network.layers[0].K.requires_grad_(False)
    with network.joined(torch.randn(7, 3, dtype=torch.float64)) as parameters:
        assert [id(p) for p in parameters] == [id(p) for p in network.parameters()]
