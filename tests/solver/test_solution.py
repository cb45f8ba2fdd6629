"""What a solution offers: other times, its derivative, how it ended, and what there is of one that ends early."""

import math
import pickle

import pytest
import torch

from fracdnn import fdeint
from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError, NotConvergedError
from fracdnn.solver import MultiTerm, Status
from tests.references import mittag_leffler

F64 = torch.float64
TIMES = [0.0, 1.0, 2.0]
OTHER = [2.0, 0.3, 1.0, 0.3, 0.0]
WAYS = [
    {},
    {"n_steps": 400},
    {"method": "trapezoidal", "n_steps": 200},
    {"method": "collocation", "n_steps": 10},
]


def decay(t, u):
    return -u


@pytest.mark.parametrize("wants_gradient", [True, False])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_other_times_of_every_method(way, wants_gradient):
    with torch.set_grad_enabled(wants_gradient):
        solution = fdeint(decay, torch.ones(1, dtype=F64), TIMES, order=0.7, info=True, **way)
        found = solution.evaluate(OTHER)
        slopes = solution.derivative(OTHER)
    assert solution.status is Status.SOLVED
    assert found.shape == (5, 1)
    assert torch.allclose(found[[0, 2, 4]], solution.states[[2, 1, 0]], rtol=1e-14)
    assert found[1] == found[3]
    assert abs(float(found[1]) - float(mittag_leffler(-(0.3**0.7), 0.7, 1.0))) <= 1e-3
    assert torch.equal(slopes, decay(None, found))


def test_the_gradient_of_other_times():
    rate = torch.tensor(1.3, dtype=F64, requires_grad=True)
    time = torch.tensor([0.7], dtype=F64, requires_grad=True)
    solution = fdeint(lambda t, u: -rate * u, 1.0, TIMES, order=0.7, rtol=1e-9, info=True)
    by_rate, by_time = torch.autograd.grad(solution.evaluate(time).sum(), (rate, time))

    def value(rate, time):
        return float(mittag_leffler(-rate * time**0.7, 0.7, 1.0))

    assert abs(float(by_rate) - (value(1.3001, 0.7) - value(1.2999, 0.7)) / 2e-4) <= 1e-6
    assert abs(float(by_time) - (value(1.3, 0.7001) - value(1.3, 0.6999)) / 2e-4) <= 1e-6


def test_an_evaluation_without_a_graph_leaves_the_graph_of_others():
    start = torch.tensor(1.0, dtype=F64, requires_grad=True)
    solution = fdeint(decay, start, TIMES, order=0.7, n_steps=20, info=True)
    with torch.no_grad():
        solution.evaluate([0.7])
    (by_start,) = torch.autograd.grad(solution.evaluate([0.7]).sum(), start)
    assert torch.allclose(by_start, solution.evaluate([0.7])[0].detach())


def test_tuples_and_several_orders():
    pair = (torch.ones(2, dtype=F64), torch.zeros(3, dtype=F64))

    def func(t, pair):
        return -pair[0], torch.ones_like(pair[1])

    solution = fdeint(func, pair, TIMES, order=(0.5, 0.9), info=True)
    first, second = solution.evaluate([1.5])
    assert first.shape == (1, 2)
    assert torch.allclose(second, torch.full((1, 3), 1.5**0.9 / math.gamma(1.9), dtype=F64), rtol=1e-5)


@pytest.mark.parametrize("t", [[3.0], [-0.1], [], [[0.5]], [math.nan], "a"])
def test_times_outside_are_refused(t):
    solution = fdeint(decay, 1.0, TIMES, order=0.7, info=True)
    with pytest.raises((InvalidArgumentError, InvalidTypeError), match="t must "):
        solution.evaluate(t)


def test_the_last_time_as_it_was_given():
    solution = fdeint(decay, 1.0, [0.0, 0.1], order=0.7, info=True)
    assert torch.equal(solution.evaluate([0.1]), solution.states[1:])


@pytest.mark.parametrize("wants_gradient", [True, False])
def test_other_times_of_a_batch(wants_gradient):
    rates, orders = torch.tensor([1.0, 3.0], dtype=F64), torch.tensor([0.5, 0.9], dtype=F64)
    rates.requires_grad_(wants_gradient)
    times = torch.tensor([[0.0, 0.5, 2.0], [1.0, 1.5, 5.0]], dtype=F64)
    with torch.set_grad_enabled(wants_gradient):
        solution = fdeint(
            lambda t, u: -rates * u, torch.ones(2, dtype=F64), times, order=orders, info=True, batched=True
        )
        found = solution.evaluate(torch.tensor([[2.0, 0.7, 0.0], [3.0, 5.0, 1.5]], dtype=F64))
    elapsed = [[2.0, 0.7, 0.0], [2.0, 4.0, 0.5]]
    for sample, (rate, order) in enumerate(zip((1.0, 3.0), (0.5, 0.9), strict=True)):
        exact = [float(mittag_leffler(-rate * t**order, order, 1.0)) if t else 1.0 for t in elapsed[sample]]
        assert torch.allclose(found[:, sample], torch.tensor(exact, dtype=F64), rtol=1e-5, atol=1e-8)
    assert torch.allclose(found[0, 0], solution.states[2, 0], rtol=1e-13)
    with pytest.raises(InvalidArgumentError, match="t must not lie between the start or a breakpoint and the next"):
        solution.evaluate(torch.tensor([[0.1], [3.0]], dtype=F64))
    if wants_gradient:
        (slope,) = torch.autograd.grad(found[1].sum(), rates)
        step = 1e-5
        shifted = [float(mittag_leffler(-(1.0 + side) * 0.7**0.5, 0.5, 1.0)) for side in (step, -step)]
        assert abs(float(slope[0]) - (shifted[0] - shifted[1]) / (2.0 * step)) <= 1e-5


def test_samples_solved_alone_have_other_times_too():
    """One needs the care of a search of its own, one has no solution."""
    starts = torch.tensor([1.0, 1.0, 1.0], dtype=F64)
    powers = torch.tensor([1.0, 0.5, 3.0], dtype=F64)

    def func(t, u):
        growth = torch.tensor([-1.0, -1.0, 4.0], dtype=F64)
        return growth * u.abs() ** powers

    with torch.no_grad():
        way = {"order": 0.8, "batched": True, "info": True, "options": {"failures": "nan"}}
        solution = fdeint(func, starts, [0.0, 0.5, 1.0], **way)
        found = solution.evaluate([1.0, 0.5])
    assert torch.allclose(found, solution.states[[2, 1]], rtol=1e-10, equal_nan=True)
    assert found[:, 2].isnan().all()


def test_times_before_the_first_output():
    """Steps there are only as short as later states need; other times are solved for again."""
    for wants_gradient in (True, False):
        with torch.set_grad_enabled(wants_gradient):
            solution = fdeint(decay, 1.0, [0.0, 10.0], order=0.5, info=True)
            found = solution.evaluate([1e-3, 5.0, 1e-1])
        for time, state in zip((1e-3, 5.0, 1e-1), found, strict=True):
            exact = float(mittag_leffler(-(time**0.5), 0.5, 1.0))
            assert abs(float(state) - exact) <= 2.0 * (1e-8 + 1e-5 * exact)


@pytest.mark.parametrize("wants_gradient", [True, False])
def test_a_pickled_solution_evaluates_without_func(wants_gradient):
    rate = torch.tensor(1.0, dtype=F64, requires_grad=wants_gradient)
    times = [0.0, 0.1, 1.0, 2.0]
    pair = (torch.ones(2, dtype=F64), torch.zeros(3, dtype=F64))
    solution = fdeint(lambda t, u: (-rate * u[0], torch.ones_like(u[1])), pair, times, order=(0.5, 0.9), info=True)
    again = pickle.loads(pickle.dumps(solution))
    others = [0.3, 2.0, 0.7]
    for mine, theirs in zip(again.evaluate(others), solution.evaluate(others), strict=True):
        assert torch.equal(mine, theirs)
        assert not mine.requires_grad
    for mine, theirs in zip(again.derivative(others), solution.derivative(others), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-3, atol=1e-6)
    assert torch.equal(again.states[0], solution.states[0])
    with pytest.raises(InvalidArgumentError, match=r"t must not lie between .*, got 0.05; solve with an output soon"):
        again.evaluate([0.05])


def test_a_pickled_solution_of_fixed_steps_has_states_alone():
    again = pickle.loads(pickle.dumps(fdeint(decay, 1.0, TIMES, order=0.7, n_steps=20, info=True)))
    assert again.states.shape == (3,)
    with pytest.raises(InvalidArgumentError, match="evaluate must be called on a solution of fdeint or fdeint_delay"):
        again.evaluate([0.5])


def test_other_times_call_func_no_more():
    calls = []

    def func(t, u):
        calls.append(t)
        return -u

    solution = fdeint(func, 1.0, TIMES, order=0.7, info=True)
    before = len(calls)
    solution.evaluate([1.1, 2.0])
    assert len(calls) == before


def test_an_equation_of_several_terms_has_none_either():
    equation = MultiTerm([1.5, 0.0], [1.0, 1.0], lambda t, lower: 0.0 * t)
    solution = equation.solve((1.0, 0.0), TIMES, info=True)
    with pytest.raises(InvalidArgumentError, match="derivative must be called on a solution of fdeint or fdeint_delay"):
        solution.derivative([1.0])


def test_a_func_that_solves_equations_itself():
    """Its second derivatives are refused, so that nothing is known of its gradient's smoothness: the solve goes on."""
    rate = torch.tensor(1.0, dtype=F64, requires_grad=True)

    def func(t, u):
        inner = fdeint(lambda t, v: -rate * v, u, [0.0, 0.5], order=0.9)
        return -inner[-1]

    states = fdeint(func, torch.ones((), dtype=F64), [0.0, 1.0], order=0.8, rtol=1e-3)
    (gradient,) = torch.autograd.grad(states[-1], rate)
    assert gradient > 0.0


def blows_up(t, u):
    return 4.0 * u**2


@pytest.mark.parametrize("wants_gradient", [True, False])
def test_what_there_is_of_a_solution_that_ends(wants_gradient):
    times = [0.0, 0.05, 0.1, 1.0, 2.0]
    with torch.set_grad_enabled(wants_gradient):
        with pytest.raises(NotConvergedError, match="the solution may end there"):
            fdeint(blows_up, 1.0, times, order=0.9)
        solution = fdeint(blows_up, 1.0, times, order=0.9, info=True, options={"failures": "nan"})
        alone = fdeint(blows_up, 1.0, times[:3], order=0.9)
    assert solution.status is Status.NOT_CONVERGED
    assert torch.allclose(solution.states[:3], alone, rtol=1e-4)
    assert solution.states[3:].isnan().all()
    assert solution.states.shape == (5,)


def test_nothing_but_the_start():
    state = fdeint(blows_up, torch.ones(2, dtype=F64), [0.0, 2.0], order=0.9, options={"failures": "nan"})
    assert torch.equal(state[0], torch.ones(2, dtype=F64))
    assert state[1].isnan().all()
    last = fdeint(
        blows_up, torch.ones(2, dtype=F64), [0.0, 2.0], order=0.9, options={"failures": "nan"}, trajectory=False
    )
    assert last.shape == (2,)
    assert last.isnan().all()


def test_a_solve_that_succeeds_is_the_same():
    plain = fdeint(decay, 1.0, TIMES, order=0.7)
    assert torch.equal(fdeint(decay, 1.0, TIMES, order=0.7, options={"failures": "nan"}), plain)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (
            {"n_steps": 10, "options": {"failures": "nan"}},
            r"failures must be 'raise' for grid=Uniform\(n=10\), got 'nan'",
        ),
        ({"options": {"failures": "none"}}, "failures must be one of 'raise', 'nan', got 'none'"),
    ],
)
def test_bad_input(way, message):
    with pytest.raises(InvalidArgumentError, match=message):
        fdeint(decay, 1.0, TIMES, order=0.7, **way)


def test_decreasing_times_are_refused_with_the_reason():
    with pytest.raises(
        InvalidArgumentError, match=r"t must increase, got times that decrease from 2 to 0: .*t\[0\] - s"
    ):
        fdeint(decay, 1.0, [2.0, 1.0, 0.0], order=0.7)
