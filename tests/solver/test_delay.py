"""Delays: against solutions by the method of steps, gradients by three witnesses, and what is refused."""

import math

import numpy as np
import pytest
import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError, StateChangedError
from fracdnn.solver import Adaptive, Status, fdeint, fdeint_delay
from fracdnn.solver.delay import breaking_points
from tests.slow import each_once

ONE = torch.ones((), dtype=torch.float64)


def tensor(value, **options):
    return torch.tensor(value, dtype=torch.float64, **options)


def by_steps(t, *, delay, order, rate=1.0, start=1.0, past=None):
    """D^order u = −rate · u(t − delay) with constant states before and at the start, differentiable in all of them.

    With the fractional integral I and powers P_k(s) = (t − s · delay)^(k · order)/Γ(k · order + 1) from s · delay on,
    u = start − rate · I[past up to the delay, u(t − delay) after it]. Inserted over and over, as I P_k = P_{k+1},
    u = start + Σ_k (−rate)^k · (past · P_k(k − 1) + (start − past) · P_k(k)).
    """
    past = start if past is None else past

    def power(k, shift):
        later = t - shift * delay
        order_k = torch.as_tensor(k * order, dtype=torch.float64)
        grown = torch.where(later > 0, torch.where(later > 0, later, 1.0) ** order_k, 0.0)
        return grown / torch.exp(torch.lgamma(order_k + 1.0))

    total, count = start + 0.0 * t, int(t.max() / torch.as_tensor(delay).detach()) + 2
    for k in range(1, count + 1):
        total = total + (-rate) ** k * (past * power(k, k - 1) + (start - past) * power(k, k))
    return total


@pytest.mark.parametrize(  # 3 · 0.7 is the output 2.1 but for rounding
    ("order", "times", "rtol"), each_once([1.0, 0.6, 0.3, 1.5], [(1.0, 2), (0.7, 11)], [1e-4, 1e-6, 1e-9])
)
@torch.no_grad()
def test_closed_solutions_to_the_tolerance(order, times, rtol):
    delay, n_times = times
    t = torch.linspace(0, 3 / 0.7 * delay, n_times, dtype=torch.float64)
    found = fdeint_delay(
        lambda t, y, delayed: -delayed,
        1.0,
        t,
        order=order,
        delays=delay,
        rtol=rtol,
        atol=1e-3 * rtol,
        options={"slope": 0.0},
    )
    exact = by_steps(t, delay=delay, order=order)
    assert bool(((found - exact).abs() <= 10 * (rtol * exact.abs() + 1e-3 * rtol)).all())


def test_order_one_is_a_polynomial_between_multiples_of_the_delay():
    """u′ = −u(t − 1) from 1: 1 − t, then 1 − t + (t − 1)²/2, then with − (t − 2)³/6; to rounding."""
    t = tensor([0.0, 0.5, 1.5, 2.5])
    found = fdeint_delay(lambda t, y, delayed: -delayed, 1.0, t, order=1.0, delays=1.0, past=1.0, rtol=1e-4)
    exact = tensor([1.0, 0.5, -0.5 + 0.125, -1.5 + 1.125 - 0.125 / 6])
    torch.testing.assert_close(found, exact, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("order", [1.0, 0.5])
def test_a_past_that_ends_beside_the_start(order):
    t = torch.linspace(0, 4, 9, dtype=torch.float64)
    found = fdeint_delay(lambda t, y, z: -0.5 * z, 1.0, t, order=order, delays=1.0, past=-2.0, rtol=1e-8, atol=1e-10)
    exact = by_steps(t, delay=1.0, order=order, rate=0.5, past=-2.0)
    assert float((found - exact).abs().max()) < 1e-7


def manufactured(delays, order=0.6):
    """Solved by 1 + t² after and before the start; nonlinear, with a delayed state for each delay."""

    def func(t, y, *delayed):
        given = 2 * t ** (2 - order) / math.gamma(3 - order)
        for delay, state in zip(delays, delayed, strict=True):
            given = given + (state**2 - (1 + (t - delay) ** 2) ** 2) / len(delays)
        return given - (y - 1 - t**2)

    return func


@pytest.mark.parametrize(
    "delays",
    [
        (1.0, 2.5),
        pytest.param((0.04, 1.0), marks=pytest.mark.slow),
        pytest.param((0.3, 0.3 * math.sqrt(2), 50.0), marks=pytest.mark.slow),
        (1.0, 1.0 + 1e-7),
    ],
)
@torch.no_grad()
def test_several_delays(delays):
    t = torch.linspace(0, 2, 5, dtype=torch.float64)
    found = fdeint_delay(
        manufactured(delays), 1.0, t, order=0.6, delays=delays, past=lambda t: 1 + t**2, rtol=1e-7, atol=1e-9
    )
    assert float((found / (1 + t**2) - 1).abs().max()) < 1e-6


def last_of_five(delay, rate, order, start, past):
    """What depends on delay, rate, order, start and past, to many digits."""
    return fdeint_delay(
        lambda t, y, z: -rate * z,
        start,
        tensor([0.0, 1.6, 3.3]),
        order=order,
        delays=[delay],
        past=past,
        rtol=1e-9,
        atol=1e-11,
        options={"slope": 0.0},
    )[-1]


def gradients_by_five(order):
    given = [tensor(value, requires_grad=True) for value in (0.9, 0.7, order, 1.0, 1.5)]
    return given, torch.autograd.grad(last_of_five(*given), given)


@pytest.mark.parametrize("order", [1.0, 0.6])
def test_gradients_are_the_closed_derivative(order):
    """Two further witnesses are below."""
    given, gradients = gradients_by_five(order)
    delay, rate, order, start, past = given
    exact = by_steps(tensor(3.3), delay=delay, rate=rate, order=order, start=start, past=past)
    for mine, closed in zip(gradients, torch.autograd.grad(exact, given), strict=True):
        assert abs(float(mine - closed)) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("order", [1.0, 0.6])
def test_gradients_are_those_of_torch_func_and_of_differences(order):
    given, gradients = gradients_by_five(order)
    numbers = [each.detach() for each in given]
    by_func = torch.func.grad(last_of_five, argnums=tuple(range(5)))(*numbers)
    torch.testing.assert_close(by_func, gradients, rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        for place, gradient in enumerate(gradients):
            ends = []
            for sign in (1.0, -1.0):
                moved = list(numbers)
                moved[place] = moved[place] + sign * 1e-4
                ends.append(float(last_of_five(*moved)))
            assert abs((ends[0] - ends[1]) / 2e-4 - float(gradient)) < 1e-6


@pytest.mark.slow
def test_the_gradient_of_a_nonlinear_equation_with_learned_times():
    """By parameters of func and past, two delays and the times; forward mode gives the same as reverse mode."""

    def solve(numbers):
        rate, shift, first, second, end = numbers

        def func(t, y, a, b):
            return rate * a / (1 + b**2) - y

        t = torch.stack([0 * end, end / 2, end])
        return fdeint_delay(
            func, torch.cos(shift), t, order=0.8, delays=(first, second), past=lambda t: torch.cos(t + shift), rtol=1e-6
        )[-1]

    numbers = tensor([2.0, 0.3, 0.8, 1.2, 1.9], requires_grad=True)
    (gradient,) = torch.autograd.grad(solve(numbers), numbers)
    _, along = torch.func.jvp(solve, (numbers.detach(),), (torch.ones_like(numbers),))
    torch.testing.assert_close(along, gradient.sum(), rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        for place in range(5):
            step = torch.zeros(5, dtype=torch.float64)
            step[place] = 1e-4
            difference = (solve(numbers + step) - solve(numbers - step)) / 2e-4
            assert abs(float(difference - gradient[place])) < 1e-5


def test_breaking_points_are_sums_of_delays_after_the_start_and_after_jumps():
    times, jumps = tensor([0.0, 3.2]), tensor([-0.5, 0.3])
    points = breaking_points(times, jumps, [tensor(1.0), tensor(2.0)], 1.0)
    expected = [0.3, 0.5, 1.0, 1.3, 1.5, 2.0, 2.3, 2.5, 3.0]
    torch.testing.assert_close(torch.stack(points), tensor(expected), rtol=0, atol=1e-12)
    delay = tensor(0.7, requires_grad=True)
    assert [
        float(torch.autograd.grad(point, delay)[0]) for point in breaking_points(times, times[:0], [delay], 0.6)
    ] == [
        1.0,
        2.0,
        3.0,
        4.0,
    ]


def test_jumps_of_past_and_of_func():
    """Breakpoints before the start are those of past; a jump that func has comes back a delay later."""
    t = torch.linspace(0, 3, 7, dtype=torch.float64)
    found = fdeint_delay(
        lambda t, y, z: z + (t > 0.6),
        0.0,
        t,
        order=0.6,
        delays=1.0,
        past=lambda t: (t < -0.4).double(),
        rtol=1e-8,
        atol=1e-10,
        options={"breakpoints": [-0.4, 0.6]},
    )

    def power(k, shift):
        return (t - shift).clamp(min=0) ** (0.6 * k) / math.gamma(0.6 * k + 1)

    first = {0.0: 1.0, 0.6: -1.0 + 1.0}  # past's 1 from 0 to 0.6, where func's own begins
    exact = sum(weight * power(k, shift + k - 1) for shift, weight in first.items() for k in range(1, 5))
    torch.testing.assert_close(found, exact, rtol=1e-7, atol=1e-9)


def test_float32_keeps_its_digits():
    t = torch.linspace(0, 3, 7)
    found = fdeint_delay(lambda t, y, z: -z, torch.ones(()), t, order=0.6, delays=0.9)
    assert found.dtype == torch.float32
    assert float((found - by_steps(t.double(), delay=0.9, order=0.6)).abs().max()) < 1e-5


@pytest.mark.parametrize("order", [0.6, (0.6, 0.9)])
def test_tuples_and_components(order):
    """Of two tensors, one decays by the delayed other; one past for all, and one order for all or one for each."""
    t = torch.linspace(0, 3, 4, dtype=torch.float64)
    start = (torch.ones(2, dtype=torch.float64), torch.ones(1, dtype=torch.float64))

    def func(t, y, z):
        return -z[0], -z[0][:1]

    (first, second) = fdeint_delay(func, start, t, order=order, delays=1.0, past=1.0, rtol=1e-7, atol=1e-9)
    exact = by_steps(t, delay=1.0, order=0.6)
    assert first.shape == (4, 2)
    torch.testing.assert_close(first[:, 1], exact, rtol=1e-6, atol=1e-8)
    if order == 0.6:
        torch.testing.assert_close(second[:, 0], exact, rtol=1e-6, atol=1e-8)


def test_a_large_state_and_its_gradient():
    rates = torch.linspace(0.1, 1.0, 600, dtype=torch.float64).requires_grad_()
    t = tensor([0.0, 2.5])
    end = fdeint_delay(
        lambda t, y, z: -rates * z - 0.1 * (y - z), torch.ones_like(rates), t, order=0.6, delays=1.0, trajectory=False
    )
    small = fdeint_delay(
        lambda t, y, z: -rates[::150] * z - 0.1 * (y - z),
        torch.ones(4, dtype=torch.float64),
        t,
        order=0.6,
        delays=1.0,
        trajectory=False,
    )
    torch.testing.assert_close(end[::150], small, rtol=1e-4, atol=1e-6)
    (of_large,) = torch.autograd.grad(end[::150].sum(), rates)
    (of_small,) = torch.autograd.grad(small.sum(), rates)
    torch.testing.assert_close(of_large, of_small, rtol=1e-3, atol=1e-5)


def test_without_using_the_delayed_state_it_is_fdeint():
    t = torch.linspace(0, 2, 5, dtype=torch.float64)
    found = fdeint_delay(lambda t, y, z: -y, 1.0, t, order=0.5, delays=0.4, rtol=1e-8, info=True)
    torch.testing.assert_close(
        found.states, fdeint(lambda t, y: -y, 1.0, t, order=0.5, rtol=1e-8), rtol=1e-7, atol=1e-9
    )
    assert found.method == "collocation"
    assert float(found.grid.diff().max()) <= 0.4


@pytest.mark.parametrize("grad", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_solution_at_other_times(grad):
    delay = tensor(0.9, requires_grad=grad)
    t, other = tensor([0.0, 1.5, 3.0]), tensor([2.2, 0.4])
    found = fdeint_delay(lambda t, y, z: -z, 1.0, t, order=0.6, delays=[delay], rtol=1e-8, info=True)
    torch.testing.assert_close(found.evaluate(other), by_steps(other, delay=0.9, order=0.6), rtol=1e-7, atol=1e-8)
    slopes = -by_steps(other - 0.9, delay=0.9, order=0.6)
    slopes[1] = -1.0  # the past
    torch.testing.assert_close(found.derivative(other), slopes, rtol=1e-7, atol=1e-8)
    if grad:
        (mine,) = torch.autograd.grad(found.evaluate(other)[0] + found.states[-1], delay)
        exact = by_steps(torch.stack([other[0], t[-1]]), delay=delay, order=0.6).sum()
        assert abs(float(mine - torch.autograd.grad(exact, delay)[0])) < 1e-6


@torch.no_grad()
def test_a_solution_that_ends_gives_what_there_is():
    """u′ = u² ends at t = 1, whatever it looks back at."""
    t = torch.linspace(0, 2, 6, dtype=torch.float64)
    found = fdeint_delay(
        lambda t, y, z: y**2 + 0 * z, 1.0, t, order=1.0, delays=0.1, info=True, options={"failures": "nan"}
    )
    torch.testing.assert_close(found.states[:3], 1 / (1 - t[:3]), rtol=1e-4, atol=1e-4)
    assert bool(found.states[3:].isnan().all())
    assert found.status is Status.NOT_CONVERGED


def test_delays_as_arrays_and_in_inference_mode():
    t, func = torch.linspace(0, 2, 3, dtype=torch.float64), lambda t, y, a, b: -a - b
    found = [
        fdeint_delay(func, 1.0, t, order=0.6, delays=delays)
        for delays in ([1, 0.5], np.array([1.0, 0.5]), tensor([1.0, 0.5]), (tensor(1.0), torch.tensor([0.5])))
    ]
    with torch.inference_mode():
        found.append(fdeint_delay(func, 1.0, t, order=0.6, delays=(1.0, 0.5)))
    for each in found[1:]:
        torch.testing.assert_close(each, found[0], rtol=1e-6, atol=1e-8)


def test_func_that_writes_into_a_delayed_state():
    with pytest.raises(StateChangedError, match=r"func must not change the delayed states it is given"):
        fdeint_delay(lambda t, y, z: z.mul_(-1.0), ONE, [0.0, 1.0], order=0.5, delays=0.4, past=lambda t: ONE.clone())


def refused(**changed):
    given = {"func": lambda t, y, z: -z, "y0": ONE, "t": [0.0, 1.0], "order": 0.5, "delays": 0.5} | changed
    return fdeint_delay(given.pop("func"), given.pop("y0"), given.pop("t"), **given)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"delays": -1.0}, r"delays\[0\] must be positive and finite, got -1.0; pass how far back func looks"),
        ({"delays": [0.5, 0.0]}, r"delays\[1\] must be positive and finite, got 0.0"),
        ({"delays": tensor([math.nan])}, r"delays\[0\] must be positive and finite, got nan"),
        ({"delays": math.inf}, r"delays\[0\] must be positive and finite, got inf"),
        ({"delays": ()}, "delays must hold at least one number, got none; without a delay use fdeint"),
        ({"delays": [tensor([1.0, 2.0])]}, r"delays\[0\] must be one number, got shape \(2,\)"),
        ({"delays": 1e-6}, r"delays must be at least 1e-05 of the span from t\[0\] to t\[-1\], got 1e-06 for 1"),
        (
            {"delays": (0.5, 0.6)},
            r"func must be callable as func\(t, y, delayed_1, delayed_2\), with one state for each",
        ),
        ({"func": lambda t, y: -y}, r"of the 1 delays, got func\(t, y\); take as many arguments"),
        ({"past": torch.ones(3)}, r"past must have the shape of y0, \[\(\)\], got \[\(3,\)\]; pass one like the value"),
        ({"past": lambda t: torch.ones(3)}, r"past\(-0\.\d+\) must have the shape of y0, \[\(\)\], got \[\(3,\)\]"),
        ({"past": lambda t: t.float()}, r"must have the dtype of y0, torch.float64, got torch.float32; convert one"),
        ({"past": lambda t: t.log()}, r"past\(-0\.\d+\) must be finite, got nan"),
        ({"options": {"linear": 1}}, "options must be a dict of breakpoints, .* for fdeint_delay, got 'linear'"),
        (
            {"options": {"checkpoint": True}},
            "options must be a dict of breakpoints, .* for fdeint_delay, got 'checkpoint'",
        ),
    ],
)
def test_bad_input(changed, message):
    with pytest.raises(InvalidArgumentError, match=message):
        refused(**changed)


def test_types_of_bad_input():
    with pytest.raises(InvalidTypeError, match=r"func must be callable as func\(t, y, delayed_1\), got int"):
        refused(func=1)
    with pytest.raises(InvalidTypeError, match=r"past\(-0\.\d+\) must be a torch tensor, a tuple .*, got NoneType"):
        refused(past=lambda t: None)
    with pytest.raises(InvalidTypeError, match=r"delays\[0\] must be a positive number"):
        refused(delays="1")
    with pytest.raises(InvalidTypeError, match=r"max_step must be a positive number, got"):
        refused(grid=Adaptive(max_step="1"))
