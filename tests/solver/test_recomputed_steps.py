"""`options={"checkpoint": True}`: steps are computed again in the backward pass, with the same gradients."""

import pytest
import torch
from torch import nn

from fracdnn import fdeint
from fracdnn.exceptions import StateChangedError
from fracdnn.solver import Given
from fracdnn.solver.explicit import ExplicitChain
from fracdnn.solver.grids import Grid
from fracdnn.solver.methods import METHODS
from fracdnn.solver.problem import posed_problem
from tests.slow import each_once
from tests.solver.calls import grouped

FLOAT64 = torch.float64


def solved(field, y0, *, method="adams", order=0.6, n=200, checkpoint=True, **way):
    return fdeint(
        field,
        y0,
        [0.0, 0.3, 1.0],
        order=order,
        method=method,
        n_steps=n,
        **grouped(checkpoint=checkpoint, **way),
    )


def both(field, y0, inputs, **way):
    """Gradients with and without checkpoints, of the end and of a time between nodes."""
    found = []
    for checkpoint in (True, False):
        torch.manual_seed(0)
        states = solved(field, y0, checkpoint=checkpoint, **way)
        found.append(torch.autograd.grad((states**2).sum() + states[-1].sum(), inputs))
    return found


def same(field, y0, inputs, **way):
    ours, plain = both(field, y0, inputs, **way)
    for got, expected in zip(ours, plain, strict=True):
        assert bool(expected.abs().max() > 1e-9)
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-13)


@pytest.fixture
def y0():
    return torch.randn(3, dtype=FLOAT64, generator=torch.Generator().manual_seed(0)).requires_grad_()


@pytest.fixture
def rate():
    return torch.tensor(0.8, dtype=FLOAT64, requires_grad=True)


@pytest.mark.parametrize("method", ["pece", "adams", "euler", "trapezoidal"])
@pytest.mark.parametrize("order", [0.6, pytest.param(1.0, marks=pytest.mark.slow)])
def test_gradients_are_the_same(method, order, y0, rate):
    def field(t, y):
        return torch.sin(rate * y) + t

    n = 80 if method == "trapezoidal" else 200
    same(field, y0, [y0, rate], method=method, order=order, n=n)


def test_with_a_slope_at_the_begin_and_tuples(y0, rate):
    slope = torch.ones(3, dtype=FLOAT64, requires_grad=True)

    def field(t, y):
        return -rate * y[0] + y[1].sum(), torch.cos(y[0][:2] * rate)

    still = (slope, torch.zeros(2, dtype=FLOAT64))
    found = []
    for checkpoint in (True, False):
        start = (y0, y0[:2] * 0.5)
        first, second = solved(field, (start, still), order=(1.5, 0.5), checkpoint=checkpoint)
        found.append(torch.autograd.grad((first**2).sum() + second[-1].sum(), [y0, slope, rate]))
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-13)


def test_parameters_that_only_late_segments_need(y0, rate):
    late = torch.tensor(0.3, dtype=FLOAT64, requires_grad=True)
    same(lambda t, y: rate * y if t < 0.8 else torch.sin(late * y), y0, [y0, rate, late])


def test_random_numbers_are_drawn_again(y0, rate):
    drop = nn.Dropout(0.5)
    same(lambda t, y: rate * drop(torch.sin(y)) - y, y0, [y0, rate])


@pytest.mark.parametrize("learned", ["order", "times", "function of a leaf"])
def test_gradients_of_whatever_is_learned(learned, y0, rate):
    inner = rate.exp()
    order = torch.tensor(0.6, dtype=FLOAT64, requires_grad=learned == "order")
    t = torch.linspace(0, 1, 150, dtype=FLOAT64, requires_grad=learned == "times")
    used = inner if learned == "function of a leaf" else rate
    wanted = [y0, used, *(each for each in (order, t) if each.requires_grad)]
    found = []
    for checkpoint in (True, False):
        states = fdeint(
            lambda t, y: torch.sin(used * y),
            y0,
            t,
            order=order,
            method="pece",
            grid=Given(),
            options={"checkpoint": checkpoint},
        )
        found.append(torch.autograd.grad((states**2).sum(), wanted, retain_graph=True))
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-13)


def test_states_are_the_same_with_random_numbers(y0, rate):
    inner, drop = rate.exp(), nn.Dropout(0.5)
    ends = []
    for checkpoint in (True, False):
        torch.manual_seed(0)
        ends.append(solved(lambda t, y: inner * drop(torch.sin(y)), y0, checkpoint=checkpoint))
    assert torch.equal(*ends)


def test_hooks_on_parameters_run_once(y0, rate):
    calls = []
    rate.register_hook(lambda gradient: calls.append(1) or 2.0 * gradient)
    twice, expected = both(lambda t, y: torch.sin(rate * y), y0, [rate])
    torch.testing.assert_close(twice, expected)
    assert len(calls) == 2


def test_second_derivatives(y0, rate):
    def end(rate, y0):
        return solved(lambda t, y: torch.sin(rate * y), y0, n=70, trajectory=False)

    y0 = y0[:1].detach().requires_grad_()
    assert torch.autograd.gradgradcheck(end, (rate, y0))


class Failing:
    """A func that can be made to fail after t = 0.5, in which the rate is multiplied with random numbers."""

    def __init__(self, rate):
        self.rate, self.fails = rate, False

    def __call__(self, t, y):
        if self.fails and t > 0.5:
            raise KeyError("no such parameter")
        return -self.rate * y * torch.rand_like(y)


def test_a_func_that_fails_leaves_the_problem_as_it_was(y0, rate):
    """The next walk over the same problem has its gradients by y0 again."""
    field = Failing(rate)
    problem = posed_problem(field, y0, 0.6)
    times = torch.linspace(0, 1, 201, dtype=FLOAT64)
    scheme, grid = METHODS["adams"](problem, 1), Grid(times, times, times[1])

    def walk(checkpoint):
        torch.manual_seed(0)
        return ExplicitChain.of(scheme, grid).states(None, checkpoint=checkpoint)[-1].sum()

    expected = torch.autograd.grad(walk(False), [y0, rate])
    field.fails = True
    with pytest.raises(KeyError, match="no such parameter"):
        walk(True)
    field.fails = False
    found = torch.autograd.grad(walk(True), [y0, rate])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


def test_a_func_that_fails_in_the_backward_pass_can_be_asked_again(y0, rate):
    field = Failing(rate)
    torch.manual_seed(0)
    expected = torch.autograd.grad(solved(field, y0, checkpoint=False).sum(), [y0, rate])
    torch.manual_seed(0)
    loss = solved(field, y0).sum()
    random_numbers, field.fails = torch.get_rng_state(), True
    with pytest.raises(KeyError, match="no such parameter"):
        torch.autograd.grad(loss, [y0, rate], retain_graph=True)
    field.fails = False
    found = torch.autograd.grad(loss, [y0, rate])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    assert torch.equal(torch.get_rng_state(), random_numbers)


class Drifting:
    """A func that computes something else by and by: in each call, or, for methods that iterate, between the passes."""

    def __init__(self, rate, amount, weights=1.0):
        self.rate, self.amount, self.weights, self.calls, self.shift = rate, amount, weights, 0, 0.0

    def __call__(self, t, y):
        self.calls += 1
        return torch.sin(self.rate * y) * (1 + self.weights * (self.amount * self.calls + self.shift))


AGAIN = (
    "^func( at t = .*)? must compute the same when called again, as checkpointing does in the backward pass, got "
    "another state; "
)


IMPLICIT = {"collocation": 12, "trapezoidal": 60}
EXPLICIT = {"pece": 60, "adams": 60, "euler": 60}


def refused(field, y0, order, method):
    n_steps = {**IMPLICIT, **EXPLICIT}[method]
    states = fdeint(
        field, y0, [0.0, 0.3, 1.0], order=order, method=method, n_steps=n_steps, options={"checkpoint": True}
    )
    if method in IMPLICIT:
        field.shift = 1e-3
    with pytest.raises(StateChangedError, match=AGAIN):
        states.sum().backward()


@pytest.mark.parametrize(("method", "learned"), each_once([*IMPLICIT, *EXPLICIT], [False, True]))
def test_a_func_with_state_of_its_own_is_refused(method, learned, y0, rate):
    order = torch.tensor(0.6, dtype=FLOAT64, requires_grad=learned)
    refused(Drifting(rate, 0.0 if method in IMPLICIT else 1e-4), y0, order, method)


@pytest.mark.parametrize("method", ["collocation", "adams"])
def test_a_small_component_that_drifts_is_noticed(method, rate):
    y0 = torch.tensor([1.0, 1e-6, 1e6], dtype=FLOAT64, requires_grad=True)
    weights = torch.tensor([0.0, 1.0, 0.0], dtype=FLOAT64)
    refused(Drifting(rate, 0.0 if method in IMPLICIT else 1e-4, weights), y0, 0.6, method)


@pytest.mark.parametrize(("method", "dtype"), each_once(["collocation", "trapezoidal"], [torch.float64, torch.float32]))
@pytest.mark.filterwarnings("ignore:func is noisy")  # as it is in single precision: the sine of numbers up to 1e4
def test_solvers_begin_again_with_the_jacobians_they_had(method, dtype):
    """A stiff system in single precision is solved to a few digits only: with other Jacobians, to other ones."""
    rate = torch.tensor(0.8, dtype=dtype, requires_grad=True)
    y0 = torch.tensor([1.0, 1e-3, 0.5], dtype=dtype, requires_grad=True)
    matrix = torch.tensor([[-1e4, 1.0, 0.0], [0.3, -1.0, 0.2], [0.0, 5.0, -2.0]], dtype=dtype)
    found = []
    for checkpoint in (True, False):
        states = fdeint(
            lambda t, y: torch.sin(rate * (matrix @ y)) + matrix @ y,
            y0,
            torch.linspace(0, 20, 5, dtype=dtype),
            order=0.6,
            method=method,
            n_steps=30 if method == "collocation" else 60,
            options={"checkpoint": checkpoint},
        )
        found.append([states, *torch.autograd.grad((states**2).sum(), [y0, rate])])
    assert torch.equal(found[0][0], found[1][0])
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e3 * torch.finfo(dtype).eps, atol=1e-6 * got.abs().max().item())
