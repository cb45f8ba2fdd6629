"""Adaptive grids: tolerances are met, and what a user sees of the grid."""

import math

import numpy as np
import pytest
import torch

from benchmarks import adaptive as six
from fracdnn.caputo import mittag_leffler
from fracdnn.caputo.modes import kernel_modes
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.solver import Graded, fdeint, graded_mesh, panel_search
from fracdnn.solver.panels import Weights
from tests.slow import each_once, slow_but
from tests.solver.calls import grouped
from tests.solver.problems import charging, oscillator, parabola, power_sum, relaxation

SIX = [power_sum(0.3), power_sum(1.25), relaxation(4.0), charging(0.6), parabola(0.5), oscillator()]


def in_tolerances(problem, rtol, **options):
    """The largest error at six times, in units of atol + rtol · |u|, and what the solve says of itself."""
    t = torch.linspace(0, problem.span, 6, dtype=torch.float64)
    atol = 0.1 * rtol
    found = fdeint(
        problem.func,
        problem.start(),
        t,
        order=problem.order,
        rtol=rtol,
        atol=atol,
        info=True,
        **grouped(**options),
    )
    exact = problem.at(t)
    return float(((found.states - exact).abs() / (atol + rtol * exact.abs())).max()), found


@pytest.mark.parametrize("problem", SIX, ids=lambda problem: problem.name)
def test_the_default_method_meets_tolerances(problem):
    for rtol in (1e-3, 1e-5, 1e-7, 1e-9):
        error, found = in_tolerances(problem, rtol)
        assert error < 5.0
        assert found.method == "collocation"
        assert found.n_accepted < 40


@pytest.mark.parametrize(
    ("problem", "dtype"),
    each_once([power_sum(0.3), oscillator()], [torch.float64, torch.float32]),
    ids=lambda value: getattr(value, "name", None),
)
def test_small_searches_run_in_numpy_and_find_what_torch_finds(problem, dtype, monkeypatch):
    start = problem.start()
    start = tuple(part.to(dtype) for part in start) if isinstance(start, tuple) else start.to(dtype)

    def func(t, u):
        return problem.func(t, u.double()).to(dtype)

    def found(gradient):
        t = torch.linspace(0, problem.span, 6, dtype=torch.float64)
        with torch.set_grad_enabled(gradient):
            return fdeint(func, start, t, order=problem.order, rtol=1e-5, atol=1e-6, info=True)

    kinds = []
    made = panel_search._weights
    monkeypatch.setattr(panel_search, "_weights", lambda *a: kinds.append(made(*a)) or kinds[-1])
    in_numpy = found(False)
    monkeypatch.setattr(
        panel_search,
        "_weights",
        lambda problem, count, *times: Weights.of(problem.orders, count, kernel_modes(*times, 1e-12)),
    )
    in_torch, walked = found(False), found(True)
    assert [isinstance(weights.rates, np.ndarray) for weights in kinds] == [True]
    assert (in_numpy.n_accepted, in_numpy.n_rejected) == (in_torch.n_accepted, in_torch.n_rejected)
    double = dtype == torch.float64
    if double:
        torch.testing.assert_close(in_numpy.grid, in_torch.grid, rtol=1e-8, atol=1e-8)
    within = 1e-10 if double else 1e-5  # rounding moves the nodes of float32
    torch.testing.assert_close(in_numpy.states, in_torch.states, rtol=within, atol=within)
    # Walked over again with a gradient, states are iterated to rounding.
    torch.testing.assert_close(in_numpy.states, walked.states, rtol=max(within, 1e-6), atol=max(within, 1e-6))


@pytest.mark.parametrize("problem", slow_but(six.SIX[::2], six.SIX), ids=lambda problem: problem.name)
def test_the_problems_of_the_table(problem):
    """That of docs/solver.md: errors are within the tolerances."""
    for rtol in six.RTOLS:
        assert problem.adaptive(rtol)[0] < 5.0


def test_what_is_counted():
    """Nodes from first to last time, steps taken and given up, and every call of func."""
    calls = []

    def func(t, y):
        calls.append(t.item())
        return -4.0 * y

    t = torch.tensor([1.0, 1.5, 3.0], dtype=torch.float64)
    found = fdeint(func, torch.ones(1, dtype=torch.float64), t, order=0.5, info=True)
    assert found.n_evaluations == len(calls) > 0
    assert len(found.grid) == found.n_accepted + 1
    assert found.grid[0] == 1.0
    assert found.grid[-1] == 3.0
    assert bool((found.grid.diff() > 0).all())
    assert found.states.shape == (3, 1)
    # The begin, the points of every panel that was tried, and times before the first point of the first one.
    assert len(set(calls)) == 1 + 8 * (found.n_accepted + found.n_rejected) + 7


def test_steps_that_are_given_up_are_counted():
    """Each panel, taken or not, tries eight new times."""
    calls = set()

    def abrupt(t, y):
        calls.add(t.item())
        return -y * (t > 2.0)

    t = torch.tensor([1.0, 1.5, 3.0], dtype=torch.float64)
    with torch.no_grad():
        found = fdeint(abrupt, torch.ones(1, dtype=torch.float64), t, order=0.5, info=True)
    assert found.n_rejected > 3
    assert 8 * (found.n_accepted + found.n_rejected) - 8 <= len(calls) <= 8 * (found.n_accepted + found.n_rejected) + 8


def test_output_times_are_no_nodes_and_change_nothing():
    problem = relaxation(1.0)
    few, many = (
        torch.tensor([0.0, 0.1, *more, 1.0], dtype=torch.float64) for more in ([], np.linspace(0.11, 0.97, 40))
    )
    found = [fdeint(problem.func, problem.start(), t, order=0.5, info=True) for t in (few, many)]
    torch.testing.assert_close(found[0].grid, found[1].grid)
    torch.testing.assert_close(found[1].states, problem.at(many), rtol=5e-5, atol=0)
    assert not set(many[1:-1].tolist()) & set(found[1].grid.tolist())


@pytest.mark.parametrize(
    ("method", "expected"), [("euler", 1.0), ("adams", 2.0), ("trapezoidal", 2.0), ("pece", 1.5), ("l1", 1.0)]
)
def test_dense_output_is_of_the_methods_order(method, expected):
    """Between nodes as at them, next to the begin, too: the largest error at times that are no nodes."""
    problem, steps = relaxation(1.0), (32, 64, 128)
    t = torch.cat([torch.zeros(1, dtype=torch.float64), torch.logspace(-5, 0, 12, dtype=torch.float64)])
    errors = []
    for n in steps:
        u = fdeint(problem.func, problem.start(), t, order=0.5, method=method, grid=Graded(n, 4.0))
        errors.append(float((u - problem.at(t)).abs().max()))
    assert -np.polyfit(np.log(steps), np.log(errors), 1)[0] > expected - 0.3


@pytest.mark.parametrize("method", ["adams", "trapezoidal"])
def test_dense_output_between_equal_steps(method):
    """Two-sided, for a smooth solution."""
    problem, steps = parabola(0.5), (32, 64, 128)
    t = torch.tensor([0.0, 0.31, 0.617, 0.853, 1.0], dtype=torch.float64)
    errors = []
    for n in steps:
        u = fdeint(problem.func, problem.start(), t, order=0.5, method=method, n_steps=n)
        errors.append(float((u - problem.at(t)).abs().max()))
    assert abs(-np.polyfit(np.log(steps), np.log(errors), 1)[0] - 2.0) < 0.25


def test_dense_output_of_panels():
    """To the accuracy of the panels' ends."""
    problem, t = relaxation(1.0), graded_mesh(1.0, 37, 3.0)
    u = fdeint(problem.func, problem.start(), t, order=0.5, method="collocation", grid=Graded(16, 8.0))
    torch.testing.assert_close(u, problem.at(t), rtol=0, atol=1e-9)


def test_a_rate_is_recovered_from_few_observations():
    """The habit of odeint's users: the times of the data are no grid."""
    t = torch.linspace(0, 2, 25, dtype=torch.float64)
    data = mittag_leffler(-1.3 * t**0.7, 0.7)
    rate = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([rate], max_iter=12, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        u = fdeint(lambda t, u: -rate * u, torch.ones((), dtype=torch.float64), t, order=0.7)
        loss = (u - data).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert abs(rate.item() - 1.3) < 1e-3


@pytest.mark.parametrize("order", slow_but([0.8, 1.8], [0.4, 0.8, 1.3, 1.8, 2.0]))
def test_jumps_that_nobody_told_of_cost_a_few_tolerances(order):
    """Wherever they lie in a panel: next to its begin they are seen in that slopes do not go on from the one before."""
    zero = torch.zeros((), dtype=torch.float64)
    t = torch.linspace(0.0, 4.0, 4, dtype=torch.float64)
    for number in range(1, 9):
        jump, rtol = 4.0 * number * 0.618 % 4.0, (1e-4, 1e-6)[number % 2]
        with torch.no_grad():
            found = fdeint(
                lambda t, u, at=jump: (t > at).to(u.dtype),
                zero,
                t,
                order=order,
                rtol=rtol,
                atol=rtol / 10,
                options={"slope": zero},
            )
        exact = (t - jump).clamp(min=0.0) ** order / math.gamma(1 + order)
        assert float((found - exact).abs().max() / (rtol / 10 + rtol * exact.max())) < 5.0


@pytest.mark.parametrize(
    ("order", "jump"), slow_but([(0.6, 0.5), (1.5, 1.1)], [(0.9, 0.7), (0.6, 0.5), (1.2, 0.7), (1.5, 1.1)])
)
def test_a_jump_of_the_slope_is_noticed(order, jump):
    """By chance one coefficient of a polynomial through it may be small, but not two."""
    zero = torch.zeros((), dtype=torch.float64)
    start = (zero, zero) if order > 1 else zero
    found = fdeint(lambda t, u: (t > jump).to(u.dtype).expand(u.shape), start, [0.0, 2.0], order=order)
    assert abs(found[-1].item() - (2 - jump) ** order / math.gamma(1 + order)) < 2e-5


@pytest.mark.parametrize(("order", "rate", "time"), [(0.3, 1e8, 0.1), (0.5, 1e8, 0.5), (0.7, 1e6, 0.1)])
def test_stiff_decay_between_nodes(order, rate, time):
    """U ~ t^(−order) / (rate Γ(1−order)), which an integral of slopes, off by rate times as much, would not give."""
    one = torch.ones((), dtype=torch.float64)
    found = fdeint(lambda t, u: -rate * u, one, [0.0, time, 1.0], order=order)
    assert found[1].item() == pytest.approx(time**-order / (rate * math.gamma(1 - order)), rel=2e-3)


def test_tolerances_by_component():
    """The one component is asked for in few digits, the other in many; a state of zeros needs no atol."""
    rates = torch.tensor([3.0, 1.0], dtype=torch.float64)
    one, t = torch.ones(2, dtype=torch.float64), [0.0, 1.0]
    exact = mittag_leffler(-rates, 0.5)

    def error(**options):
        found = fdeint(lambda t, u: -rates * u, one, t, order=0.5, info=True, **grouped(**options))
        return ((found.states[-1] - exact).abs() / exact).tolist(), found.n_accepted

    (loose, _), few = error(rtol=1e-3, atol=0)
    (_, tight), more = error(rtol=torch.tensor([1e-2, 1e-8]), atol=0)
    (_, again), same = error(rtol=1e-8, atol=torch.tensor([1.0, 0.0]))
    assert few < more
    assert loose < 1e-3
    assert max(tight, again) < 1e-8
    assert same <= more
    pair = fdeint(lambda t, u: (-u[0], 0 * u[1]), (1.0, [0.0, 0.0]), t, order=(0.5, 0.7), rtol=(1e-6, 1e-3), atol=0)
    assert pair[0][-1].item() == pytest.approx(mittag_leffler(-1.0, 0.5).item(), rel=1e-6)
    assert not pair[1].any()


def test_a_tolerance_below_the_digits_of_the_state():
    with pytest.raises(InvalidArgumentError, match=r"rtol must be at least 4.8e-07 for torch.float32, got 1e-09"):
        fdeint(lambda t, u: -u, torch.ones(1), [0.0, 1.0], order=0.3, rtol=1e-9)
