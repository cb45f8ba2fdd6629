"""Networks as func: the time's dtype, randomness, 16 bits, normalization, compiled networks and inference mode."""

import math

import pytest
import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.solver import fdeint
from tests.slow import each_once
from tests.solver.ways import by_definition

EXPLICIT = ["l1", "adams", "euler"]


def network(width=8, inner=None):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 16), inner or nn.Tanh(), nn.Linear(16, width))


class WithTime(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(9, 16), nn.Tanh(), nn.Linear(16, 8))

    def forward(self, t, y):
        return self.net(torch.cat([y, t.expand(len(y), 1)], dim=1))


@pytest.mark.parametrize("way", [{}, {"n_steps": 8}, {"n_steps": 8, "method": "l1"}])
def test_the_time_has_the_dtype_of_the_state(way):
    seen = set()

    def func(t, y):
        seen.add(t.dtype)
        return -y * t.to(y.dtype)

    for dtype, expected in ((torch.float32, torch.float32), (torch.float64, torch.float64)):
        fdeint(func, torch.ones(2, dtype=dtype), [0.0, 1.0], order=0.6, **way)
        assert seen == {expected}
        seen.clear()
    fdeint(func, torch.ones(2), torch.tensor([0.0, 1.0], dtype=torch.float64), order=0.6, **way)
    assert seen == {torch.float64}


def test_the_time_of_16_bit_states_has_32():
    seen = set()
    func = lambda t, y: seen.add(t.dtype) or -y  # noqa: E731
    fdeint(func, torch.ones(2, dtype=torch.bfloat16), [0.0, 1.0], order=0.6, n_steps=8)
    assert seen == {torch.float32}


@pytest.mark.parametrize("way", [{}, {"n_steps": 8}])
def test_a_network_may_concatenate_the_time(way):
    found = fdeint(WithTime(), torch.ones(3, 8), [0.0, 0.5, 1.0], order=0.6, **way)
    assert found.dtype == torch.float32


def test_a_random_func_on_an_adaptive_grid_is_named():
    net = network(inner=nn.Dropout(0.5))
    message = r"func must return the same values .* called twice at t = .*; pass n_steps= .* or call eval\(\)"
    with pytest.raises(InvalidArgumentError, match=message):
        fdeint(lambda t, y: net(y), torch.ones(4, 8), [0.0, 1.0], order=0.6)
    fdeint(lambda t, y: net(y), torch.ones(4, 8), [0.0, 1.0], order=0.6, n_steps=20)
    net.eval()
    fdeint(lambda t, y: net(y), torch.ones(4, 8), [0.0, 1.0], order=0.6)


@pytest.mark.parametrize("func", [network(), lambda y: -y, nn.Linear(8, 8)])
def test_a_func_of_the_state_alone_is_named(func):
    with pytest.raises(
        InvalidTypeError, match=r"func must take a time and a state, as func\(t, y\), got .*lambda t, y"
    ):
        fdeint(func, torch.ones(4, 8), [0.0, 1.0], order=0.6)


def gradients(func, parameters, y0, **way):
    """Return the last state and its gradient; random numbers begin anew."""
    torch.manual_seed(3)
    end = fdeint(func, y0, [0.0, 1.0], order=0.6, trajectory=False, **way)
    return [end.detach(), *torch.autograd.grad(end.float().square().sum(), parameters)]


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


WAYS = [None, torch.bfloat16, torch.float16]


@pytest.mark.parametrize(("method", "store"), each_once(EXPLICIT, WAYS))
def test_states_that_are_kept_in_16_bits(method, store):
    """The error is that of one rounding of each state, and does not grow with the number of steps."""
    net, y0 = network(), torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    for n_steps in (100, 400):
        plain = gradients(lambda t, y: net(y), [*net.parameters()], y0, n_steps=n_steps, method=method)
        options = {"checkpoint": True, "store": store}
        found = gradients(lambda t, y: net(y), [*net.parameters()], y0, n_steps=n_steps, method=method, options=options)
        tolerance = {None: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}[store]
        assert max(relative(*each) for each in zip(found, plain, strict=True)) < tolerance


@pytest.mark.parametrize(("method", "dtype"), each_once(EXPLICIT, [torch.bfloat16, torch.float16]))
@pytest.mark.parametrize("options", [{}, {"checkpoint": True}])
def test_autocast(method, dtype, options):
    """Sums stay in float32: errors of value and gradient are those of func and do not grow with the steps."""
    net, y0 = network(), torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    values = []
    for n_steps in (100, 400):
        way = {"n_steps": n_steps, "method": method}
        exact = gradients(lambda t, y: net(y), [*net.parameters()], y0, **way)
        with torch.autocast("cpu", dtype):
            found = gradients(lambda t, y: net(y), [*net.parameters()], y0, options=options, **way)
        in_16_bits = torch.autocast("cpu", dtype)(net)
        end = by_definition(lambda t, y, f=in_16_bits: f(y).float(), y0, [0.0, 1.0], order=0.6, trajectory=False, **way)
        plain = [end.detach(), *torch.autograd.grad(end.square().sum(), [*net.parameters()])]
        assert found[0].dtype == torch.float32
        for got, same, right in zip(found, plain, exact, strict=True):
            assert relative(got, right) < 2.0 * relative(same, right) + 1e-6
        values.append(relative(found[0], exact[0]))
    assert values[1] < 1.5 * values[0]


def test_a_loss_scale():
    net, y0 = network(), torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    way = {"order": 0.6, "n_steps": 50, "method": "l1", "trajectory": False, "options": {"checkpoint": True}}
    found = []
    for scale in (1.0, 2.0**12):
        with torch.autocast("cpu", torch.float16):
            end = fdeint(lambda t, y: net(y), y0, [0.0, 1.0], **way)
        found.append([each / scale for each in torch.autograd.grad(scale * end.mean(), net.parameters())])
    with torch.no_grad():
        assert all(bool(each.isfinite().all()) for each in found[1])
    assert max(relative(*each) for each in zip(*found, strict=True)) < 0.1


@pytest.mark.parametrize("method", EXPLICIT)
def test_dropout_draws_the_same_numbers_again(method):
    net, y0 = network(inner=nn.Dropout(0.5)), torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
    ways = ({}, {"checkpoint": True})
    plain, again = (
        gradients(lambda t, y: net(y), [*net.parameters()], y0, n_steps=30, method=method, options=options)
        for options in ways
    )
    for got, expected in zip(again, plain, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


def test_batch_normalization():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 8))
    found = gradients(lambda t, y: net(y), [*net.parameters()], torch.randn(16, 8), n_steps=20, method="l1")
    assert all(bool(each.isfinite().all()) for each in found)
    assert int(net[1].num_batches_tracked) == 20


def test_inference_mode():
    net, y0 = network(), torch.randn(16, 8)
    with torch.no_grad():
        expected = [fdeint(lambda t, y: net(y), y0, [0.0, 1.0], order=0.6, **way) for way in ({"n_steps": 20}, {})]
    with torch.inference_mode():
        found = [fdeint(lambda t, y: net(y), y0, [0.0, 1.0], order=0.6, **way) for way in ({"n_steps": 20}, {})]
    for got, states in zip(found, expected, strict=True):
        assert torch.equal(got, states)


# torch's own warning, of a state that is no leaf.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_network():
    net, y0 = network(), torch.randn(16, 8)
    compiled = torch.compile(net, backend="eager")
    plain, found = (
        gradients(lambda t, y, f=f: f(y), [*net.parameters()], y0, n_steps=20, method="adams") for f in (net, compiled)
    )
    for got, expected in zip(found, plain, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"store": torch.float16}, r"store must go with checkpoint, got torch.float16 without it; pass options="),
        (
            {"store": torch.float32, "checkpoint": True},
            "store must be torch.float16 or torch.bfloat16, got torch.float",
        ),
        (
            {"store": torch.float16, "checkpoint": True, "compress": True},
            "store must be left out for this solve, got torch.float16; it takes an explicit method of one order",
        ),
    ],
)
def test_stores_that_are_refused(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        fdeint(lambda t, y: -y, torch.ones(2), [0.0, 1.0], order=0.6, n_steps=20, options=options)


def test_a_second_backward_pass():
    net, y0 = network(), torch.randn(16, 8)
    end = fdeint(lambda t, y: net(y), y0, [0.0, 1.0], order=0.6, n_steps=30, options={"checkpoint": True})[-1]
    first, second = (torch.autograd.grad(end.sum(), net.parameters(), retain_graph=True) for _ in range(2))
    for got, expected in zip(first, second, strict=True):
        torch.testing.assert_close(got, expected)
    assert not math.isnan(float(first[0].sum()))
