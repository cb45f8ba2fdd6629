"""Every engine against the definition, autograd and finite differences: values, gradients, and what it refuses.

A test that names an engine asserts that this engine ran.
"""

import copy
import math
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.overrides import TorchFunctionMode

from fracdnn.exceptions import InvalidArgumentError, NotFiniteError
from fracdnn.nn import Memory
from fracdnn.nn import network as network_module
from fracdnn.nn.operators import ACTIVATIONS
from tests.nn.problems import batch, bytes_held, network, outputs_by_definition
from tests.slow import each_once
from tests.training.problems import orders_of_remainders

pytest.importorskip("numba", reason="the compiled kernel is one of the engines")

ENGINES = ["autograd", "matmul", "numba"]
BY_HAND = ["matmul", "numba"]
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-4}


def weighted(result):
    return (result * torch.linspace(-1, 2, result.numel(), dtype=result.dtype).view_as(result)).sum()


def gradients(result, net, x):
    return torch.autograd.grad(weighted(result), [x, *net.parameters()])


def check(net, x, engine, tolerance=None):
    """Values and all gradients against the definition, and the same values without a graph."""
    tolerance = TOLERANCE[x.dtype] if tolerance is None else tolerance
    result, expected = net(x), outputs_by_definition(net, x)
    assert net.engine_ == engine
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)
    for mine, theirs in zip(gradients(result, net, x), gradients(expected, net, x), strict=True):
        assert mine.dtype == theirs.dtype
        assert (mine - theirs).norm() <= tolerance * theirs.norm().clamp(min=1.0)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(net(x).clone(), expected, rtol=tolerance, atol=tolerance)
        assert net.engine_ == engine


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("size", "width", "dtype"),
    each_once([(1, 5), (2, 1), (31, 2), (33, 35), (63, 5)], [3, 1, 2, 8, 16], [torch.float32, torch.float64]),
)
def test_it_is_the_definition(engine, dtype, width, size):
    n, n_layers = size
    check(network(width, 2, n_layers, dtype, engine=engine), batch(n, width, dtype), engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("order", "bias", "activation"), each_once([1.0, 0.9, 0.5, 0.1], [True, "scalar", False], ["tanh", "relu"])
)
def test_orders_biases_and_activations(engine, order, bias, activation):
    check(network(order=order, bias=bias, activation=activation, n_layers=9, engine=engine), batch(40), engine)


def test_between_the_passes_matmul_holds_two_states_for_each_layer():
    net, x = network(8, 4, 30, engine="matmul", activation="gelu"), batch(1000, 8)
    assert 60 <= bytes_held(lambda: net(x)) / (x.numel() * x.element_size()) < 65


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", [0.5, 1.0, [0.2, 0.5, 0.9, 1.0, 0.3]])
def test_unequal_steps_and_orders(engine, order):
    check(network(order=order, step_size=[0.1, 0.3, 0.2, 0.5, 0.05], engine=engine), batch(20), engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("activate", [True, False])
def test_an_input_projection(engine, activate):
    net, x = network(2, width=5, activate_input=activate, engine=engine), batch(20, 2)
    check(net, x, engine)
    net.zero_grad()
    net(x.detach()).sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in net.parameters())


@pytest.mark.parametrize("engine", ["autograd", "matmul"])
@pytest.mark.parametrize(("activation", "dtype"), each_once(ACTIVATIONS, [torch.float32, torch.float64]))
def test_all_activations(engine, activation, dtype):
    options = {"activation": activation, "step_size": 0.1, "width": 20, "activate_input": True}
    check(network(dtype=dtype, engine=engine, **options), batch(30, dtype=dtype), engine)


LEARNED = [
    {"learn_order": True},
    {"learn_order": True, "n_layers": 1},
    {"learn_order": "layer"},
    {"learn_steps": True},
    {"learn_steps": True, "order": 1.0},
    {"learn_order": True, "learn_steps": True},
]


@pytest.mark.parametrize("engine", ["autograd", "matmul"])
@pytest.mark.parametrize(("options", "dtype"), each_once(LEARNED, [torch.float32, torch.float64]), ids=str)
def test_learned_memories(engine, options, dtype):
    check(network(20, dtype=dtype, engine=engine, **options), batch(30, 20, dtype), engine)


@pytest.mark.parametrize("engine", ["autograd", "matmul"])
@pytest.mark.parametrize(("size", "learn_order"), each_once([(False, 200), (True, 200), (True, 3)], [False, True]))
def test_deep_networks(engine, size, learn_order):
    compress, n = size
    net = network(20, n_layers=70, learn_order=learn_order, step_size=0.01, compress=compress, engine=engine)
    check(net, batch(n, 20), engine, tolerance=1e-7 if compress else None)
    assert net.compressed_ is compress


@pytest.mark.parametrize("engine", ["autograd", "matmul"])
def test_networks_without_skip_connections(engine):
    net, x = network(residual=False, engine=engine), batch(20)
    y = x
    for K, b in zip(net.K, net.b, strict=True):
        y = torch.tanh(y @ K.T + b)
    result, expected = net(x), y @ net.W.T
    assert net.engine_ == engine
    torch.testing.assert_close(result, expected)
    for mine, theirs in zip(gradients(result, net, x), gradients(expected, net, x), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("bias", "order"), each_once([True, "scalar", False], [0.5, 1.0]))
def test_first_and_second_derivatives(engine, order, bias):
    net, x = network(2, 2, 3, order=order, bias=bias, width=2, engine=engine), batch(3, 2)
    names, parameters = zip(*net.named_parameters(), strict=True)

    def run(x, *parameters):
        return torch.func.functional_call(net, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, (x, *parameters))
    assert net.engine_ == engine
    assert torch.autograd.gradgradcheck(run, (x, *parameters))


def test_second_derivatives_of_a_learned_order():
    net, x = network(2, 2, 3, learn_order=True, engine="matmul"), batch(3, 2)
    raw = net.memory.learned_order.raw

    def run(x, K, value):
        return torch.func.functional_call(net, {"K": K, "memory.learned_order.raw": value}, (x,))

    assert torch.autograd.gradcheck(run, (x, net.K, raw))
    assert torch.autograd.gradgradcheck(run, (x, net.K, raw))
    assert net.engine_ == "matmul"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_remainder_of_a_taylor_expansion_is_of_second_order(engine):
    net, x = network(4, 3, 20, engine=engine), batch(50, 4).detach()

    def value(moved):
        return weighted(torch.tanh(moved(x)))

    start = value(net)
    slopes = torch.autograd.grad(start, list(net.parameters()))
    for order in orders_of_remainders(value, net, float(start.detach()), slopes, first=2e-3):
        assert abs(order - 2) < 0.15
    assert net.engine_ == engine


@pytest.mark.parametrize("engine", BY_HAND)
def test_hooks_on_the_input_run_once_in_second_derivatives(engine):
    net, x = network(engine=engine), batch()
    y, seen = x * 1.0, []
    y.register_hook(lambda gradient: seen.append(1))
    torch.autograd.grad(net(y).square().sum(), x, create_graph=True)
    assert len(seen) == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_many_cotangents_at_once(engine):
    net, x = network(engine=engine), batch()
    result = net(x)
    basis = torch.eye(result.numel(), dtype=x.dtype).view(-1, *result.shape)
    together = torch.autograd.grad(result, x, basis, is_grads_batched=True, retain_graph=True)[0]
    for i, cotangent in enumerate(basis):
        torch.testing.assert_close(together[i], torch.autograd.grad(result, x, cotangent, retain_graph=True)[0])


@pytest.mark.parametrize("engine", ENGINES)
def test_splitting_a_batch_changes_nothing(engine):
    net, x = network(8, n_layers=9, engine=engine), batch(101, 8)
    torch.testing.assert_close(torch.cat([net(x[:37]), net(x[37:])]), net(x), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_frozen_gets_no_gradient(engine):
    net = network(width=4, engine=engine)
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
    assert net.engine_ == engine


@pytest.mark.parametrize(
    ("engine", "which"),
    [(engine, which) for engine in ENGINES for which in ("K", "W", "x") if (engine, which) != ("autograd", "x")],
)  # operations keep a copy of x
def test_what_is_changed_between_the_passes_is_an_error(engine, which):
    net, x = network(engine=engine), batch() * 1.0
    loss = net(x).square().sum()
    with torch.no_grad():
        (x if which == "x" else getattr(net, which)).add_(1.0)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation|been modified inplace"):
        loss.backward()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_freed_graph_is_an_error_and_a_retained_one_is_not(engine):
    net = network(engine=engine)
    loss = net(batch()).sum()
    loss.backward(retain_graph=True)
    first = net.K.grad.clone()
    loss.backward()
    assert torch.equal(net.K.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_lie_as_their_parameters_do(engine):
    """Fused optimisers pair them by address."""
    net = network(width=4, engine=engine)
    for name in ("K", "W", "input_weight"):
        turned = getattr(net, name).detach().transpose(-1, -2).contiguous().transpose(-1, -2)
        setattr(net, name, torch.nn.Parameter(turned))
    check(net, batch(30), engine)
    net(batch()).sum().backward()
    for parameter in net.parameters():
        assert parameter.grad.stride() == parameter.stride()


@pytest.mark.parametrize("engine", ENGINES)
def test_views_of_any_kind(engine):
    net, x = network(engine=engine), batch(20).detach()
    turned = x.T.contiguous().T
    assert not turned.is_contiguous()
    torch.testing.assert_close(net(turned), net(x), rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(net(torch._neg_view(x)), net(-x), rtol=1e-14, atol=1e-14)
    assert net.engine_ == engine


@pytest.mark.parametrize("engine", BY_HAND)
def test_weights_that_are_computed_get_their_gradient(engine):
    """As in a hypernetwork: what is learned lies outside."""
    net = network(engine=engine)
    z = net.K.detach().clone().requires_grad_()
    del net.K
    net.K = 2 * z
    net(batch()).sum().backward()
    assert net.engine_ == engine
    assert z.grad.norm() > 0


@pytest.mark.parametrize("engine", BY_HAND)
def test_one_network_in_many_threads(engine):
    net = network(4, 3, 7, engine=engine)
    many = [batch(n, 4, seed=n) for n in (399, 400, 401, 31, 32, 33)]

    def run(x):
        return gradients(net(x), net, x)

    expected = [run(x) for x in many]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run, many * 4))
    for mine, theirs in zip(found, expected * 4, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_message_where_numbers_are_not_finite(engine):
    net, x = network(n_layers=6, engine=engine), batch()
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
    assert net.engine_ == engine


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sum_that_overflows_is_no_error(engine):
    net, x = network(activation="relu", engine=engine), torch.full((4, 3), 1e308, dtype=torch.float64)
    torch.nn.init.zeros_(net.K)
    torch.nn.init.eye_(net.W.detach())
    assert torch.isfinite(net(x)).all()


DONE_BY = {
    "numba": ({}, (6, 3)),
    "16 wide, 192 deep": ({"n_features": 16, "n_layers": 192}, (2, 16)),
    "exact": ({"compress": False}, (6, 3)),
}
DONE_BY_PRODUCTS = {
    "17 wide": ({"n_features": 17}, (2, 17)),
    "193 deep": ({"n_layers": 193}, (6, 3)),
    "compressed": ({"compress": True}, (6, 3)),
    "learned order": ({"learn_order": True}, (6, 3)),
    "learned steps": ({"learn_steps": True}, (6, 3)),
    "activation": ({"activation": "gelu"}, (6, 3)),
    "no skip connections": ({"residual": False}, (6, 3)),
    "half precision": ({"dtype": torch.bfloat16}, (6, 3)),
}
DONE_BY_OPERATIONS = {
    "stencil": ({"n_features": 4, "operator": "nine-point", "grid_shape": (2, 2)}, (6, 4)),
    "one sample": ({}, (3,)),
    "no sample": ({}, (0, 3)),
    "three axes": ({}, (2, 5, 3)),
}


@pytest.mark.parametrize(
    ("engine", "options", "shape"),
    [
        *(("numba", *case) for case in DONE_BY.values()),
        *(("matmul", *case) for case in DONE_BY_PRODUCTS.values()),
        *(("autograd", *case) for case in DONE_BY_OPERATIONS.values()),
    ],
)
def test_what_runs_where(engine, options, shape):
    net = network(**options)
    x = torch.zeros(shape, dtype=net.W.dtype)
    net(x).sum().backward()
    assert net.engine_ == engine


def test_before_the_first_pass_nothing_ran():
    assert network().engine_ is None
    assert network().compressed_ is None


@pytest.mark.parametrize("engine", BY_HAND)
@pytest.mark.parametrize("options", [case[0] for case in DONE_BY_OPERATIONS.values()][:1])
def test_an_engine_that_cannot_serve_is_refused(engine, options):
    with pytest.raises(InvalidArgumentError, match=f"engine='{engine}' cannot run this network: its oper"):
        network(**options, engine=engine)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("compressed", "it sums over all pairs of layers, and compress is True"),
        ("learned order", "its order or steps are learned"),
        ("learned steps", "its order or steps are learned"),
        ("activation", "its activation is 'gelu', none of"),
        ("no skip connections", "it has no skip connections"),
    ],
)
def test_a_kernel_that_can_serve_no_batch_is_refused_at_once(name, reason):
    with pytest.raises(InvalidArgumentError, match=f"engine='numba' cannot run this network: {reason}"):
        network(**DONE_BY_PRODUCTS[name][0], engine="numba")


def test_a_kernel_that_cannot_serve_a_batch_is_refused():
    options, shape = DONE_BY_PRODUCTS["half precision"]
    net = network(**options, engine="numba")
    with pytest.raises(
        InvalidArgumentError,
        match=r"engine='numba' cannot run this network: x is torch.bfloat16 on cpu, not float32 or float",
    ):
        net(torch.zeros(shape, dtype=net.W.dtype))


@pytest.mark.parametrize("engine", BY_HAND)
def test_a_batch_that_cannot_be_served_is_refused(engine):
    net = network(engine=engine)
    with pytest.raises(
        InvalidArgumentError, match=r"cannot run this network: x has shape \(3,\), no batch of rows; use engine='auto'"
    ):
        net(torch.zeros(3, dtype=torch.float64))
    with pytest.raises(
        InvalidArgumentError, match="cannot run this network: operations are traced, transformed or observed here"
    ):
        torch.func.vmap(net)(torch.zeros(2, 4, 3, dtype=torch.float64))
    torch.nn.utils.parametrizations.orthogonal(net, "W")
    assert net(batch()).shape == (6, 4)  # computed, but a plain tensor


def test_asked_for_is_what_runs_though_another_would_be_chosen():
    for engine in ENGINES:
        net = network(engine=engine)
        net(batch())
        assert net.engine_ == engine
    wide = network(17, n_layers=200, engine="numba")
    wide(batch(2, 17))
    assert wide.engine_ == "numba"


def test_the_kernel_sums_over_all_pairs_where_auto_would_sum_by_exponentials():
    x = batch(2)
    kernel, exact = (network(n_layers=200, engine=engine) for engine in ("numba", "matmul"))
    exact.memory.compress = False
    torch.testing.assert_close(kernel(x), exact(x))
    assert kernel.engine_ == "numba"
    assert kernel.compressed_ is False


class TwiceTanh(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        return 2 * result if function is torch.tanh else result


def test_whoever_transforms_or_observes_sees_every_operation():
    net, x = network(), batch()
    jacobian = torch.func.jacrev(net)(x)
    assert net.engine_ == "autograd"
    torch.testing.assert_close(torch.func.vmap(net)(x.detach().unsqueeze(0))[0], net(x))
    direction = torch.ones_like(x)
    _, tangent = torch.func.jvp(net, (x,), (direction,))
    with torch.autograd.forward_ad.dual_level():
        dual = net(torch.autograd.forward_ad.make_dual(x, direction))
        assert net.engine_ == "autograd"
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(dual).tangent, tangent)
    cotangent = torch.zeros(6, 4, dtype=torch.float64)
    cotangent[4, 1] = 1.0
    result = net(x)
    assert net.engine_ == "numba"
    torch.testing.assert_close(jacobian[4, 1], torch.autograd.grad(result, x, cotangent)[0])
    with TwiceTanh():
        assert not torch.equal(net(x), result)
    with torch.autograd.set_detect_anomaly(True):
        net(x)
        assert net.engine_ == "autograd"
    single = network(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        single(batch(dtype=torch.float32))
    assert single.engine_ == "autograd"


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


def test_without_numba_it_runs_on_products():
    code = """
        import sys, warnings
        sys.modules["numba"] = None
        warnings.simplefilter("error")
        import torch
        from fracdnn.exceptions import MissingExtraError
        from fracdnn.nn import FractionalNetwork

        net = FractionalNetwork(2, 2, n_layers=4)
        net(torch.ones(3, 2)).sum().backward()
        assert net.engine_ == "matmul"
        net.engine = "numba"
        try:
            net(torch.ones(3, 2))
        except MissingExtraError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("numba is missing: run pip install 'fracdnn[fast]'\n", "")


def test_numba_is_imported_only_when_it_is_used():
    code = "import sys, fracdnn, fracdnn.nn; fracdnn.nn.FractionalNetwork; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none")
@pytest.mark.parametrize("engine", ["autograd", "matmul"])
@pytest.mark.parametrize("options", [{}, {"order": 1.0}, {"learn_order": True}, {"n_layers": 200}], ids=str)
def test_cuda_agrees_with_the_cpu(engine, options):
    net, x = network(20, engine=engine, step_size=0.05, **options), batch(30, 20)
    expected = [net(x), *gradients(net(x), net, x)]
    net.cuda()
    there = x.detach().cuda().requires_grad_()
    result = net(there)
    assert net.engine_ == engine
    weights = torch.linspace(-1, 2, result.numel(), dtype=result.dtype, device="cuda").view_as(result)
    found = [result, *torch.autograd.grad((result * weights).sum(), [there, *net.parameters()])]
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("engine", BY_HAND)
def test_an_ordinary_backward_pass_builds_no_graph(engine, monkeypatch):
    net = network(engine=engine)
    result = net(batch())
    monkeypatch.setattr(type(net.architecture), "outputs", None)
    result.sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_a_batch_like_the_last_one_takes_its_route(monkeypatch):
    net = network()
    with torch.no_grad():
        first = net(batch())
        with monkeypatch.context() as patch:
            patch.setattr(network_module, "choose", None)
            assert torch.equal(net(batch()), first)
        # Where operations are observed, they are looked at anew.
        with TwiceTanh():
            net(batch())
        assert net.engine_ == "autograd"


def test_plans_are_kept_and_states_on_the_cpu_are_not_summed_by_triton():
    memory, state = Memory(1000, order=0.5), torch.zeros(500, 64)
    assert memory.plan(state, 1000) is memory.plan(state, 1000)
    assert memory.plan(state, 1000).compressed
    assert not memory.sums_by_triton(state, 1000)


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({}, True),
        ({"learn_order": True}, False),
        ({"learn_order": True, "compress": False}, True),
        ({"learn_order": "layer"}, True),
        ({"learn_steps": True}, True),
    ],
)
def test_a_cuda_graph_sums_as_other_passes_do_but_by_exponentials_of_a_learned_order(options, same):
    assert Memory(1000, **options).is_the_same_in_a_graph(torch.zeros(500, 64), 1000) is same
