"""Jumps of func in time: with breakpoints to the tolerance, and what becomes of those that nobody told of."""

import math
import re
from itertools import product

import pytest
import torch

from fracdnn.caputo import mittag_leffler
from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError, NotConvergedError
from fracdnn.solver import Adaptive, MultiTerm, fdeint, fdeint_event, linear_input
from tests.slow import each_once, slow_but
from tests.solver.calls import grouped

ZERO = torch.zeros((), dtype=torch.float64)
T = torch.linspace(0, 2, 9, dtype=torch.float64)  # the jump at 1 among them
# The jump's side: the value at 1 itself belongs to what is before, or after.
SWITCHES = {"t >= 1": lambda t: t >= 1, "t > 1": lambda t: t > 1}


def since(t, jump, order):
    """The response to a unit step at a time."""
    return (t - jump).clamp(min=0) ** order / math.gamma(1 + order)


def test_a_breakpoint_a_rounding_before_an_output():
    jump = 0.7 + 0.7 + 0.7  # 2.0999999999999996
    t = torch.tensor([0.0, 2.1, 3.0], dtype=torch.float64)
    found = fdeint(lambda t, u: (t > jump).to(u.dtype), ZERO, t, order=0.6, rtol=1e-6, options={"breakpoints": [jump]})
    torch.testing.assert_close(found, since(t, jump, 0.6), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("order", "switch"), each_once([0.1, 0.3, 0.7, 1.0, 1.8, 2.0], SWITCHES))
def test_a_switched_input_to_the_tolerance(order, switch):
    """On both conventions the same, to rounding: the last point before the jump sees what is before."""
    found = fdeint(
        lambda t, u: SWITCHES[switch](t).to(u.dtype),
        ZERO,
        T,
        order=order,
        rtol=1e-9,
        info=True,
        options={"slope": 0.0, "breakpoints": [1.0]},
    )
    torch.testing.assert_close(found.states, since(T, 1.0, order), rtol=1e-12, atol=1e-12)
    assert 1.0 in found.grid.tolist()


@pytest.mark.parametrize("order", [0.5, 0.9, 1.8])
def test_a_pulse_of_a_ten_thousandth_of_the_span(order):
    t = torch.tensor([0.0, 4.0, 5.0005, 6.0, 10.0], dtype=torch.float64)
    exact = since(t, 5.0, order) - since(t, 5.001, order)

    def pulse(t, u):
        return ((t >= 5.0) & (t < 5.001)).to(u.dtype)

    missed = fdeint(pulse, 0.0, t, order=order, options={"slope": 0.0})
    assert not missed.any()
    u = fdeint(pulse, 0.0, t, order=order, options={"slope": 0.0, "breakpoints": [5.0, 5.001]})
    torch.testing.assert_close(u, exact, rtol=0, atol=1e-14)


@pytest.mark.parametrize("order", [0.4, 0.7, 1.8])
def test_the_gradient_of_a_switching_time(order):
    """Of ∫_b^T (T − s)^(γ−1)/Γ(γ) (1 + s) ds: −(T − b)^(γ−1)/Γ(γ) · (1 + b); and that of T, which moves no jump."""
    jump = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    t = torch.tensor([0.0, 2.0], dtype=torch.float64, requires_grad=True)
    u = fdeint(
        lambda t, u: (t >= jump).to(u.dtype) * (1 + t),
        0.0,
        t,
        order=order,
        trajectory=False,
        options={"slope": 0.0, "breakpoints": jump.reshape(1)},
    )
    by_jump, by_times = torch.autograd.grad(u, (jump, t))
    assert math.isclose(by_jump.item(), -2 / math.gamma(order), rel_tol=1e-7)
    assert math.isclose(by_times[1].item(), 2 / math.gamma(order) + 1 / math.gamma(order + 1), rel_tol=1e-7)
    assert abs(by_times[0].item()) < 1e-7


@pytest.mark.parametrize(
    ("span", "place"), each_once([9.23e-12, 3.7, 86400.0 * 7, 1.1e9], [0.7104, 0.1, 0.3377, 1 / 3])
)
def test_a_func_that_rescales_its_time_before_it_compares(span, place):
    """Rounding moves its jump by a digit, to before the breakpoint; the panel that ends there does not see it."""
    calls = []

    def func(t, u):
        calls.append(t)
        return span**-0.8 * (t / span >= place).to(u.dtype)

    u = fdeint(func, 0.0, [0.0, span], order=0.8, trajectory=False, options={"breakpoints": [place * span]})
    torch.testing.assert_close(
        float(u), float(since(torch.tensor(1.0, dtype=torch.float64), place, 0.8)), rtol=1e-9, atol=0
    )
    assert len(calls) < 400


def test_a_short_dose_on_a_long_span():
    """Steps after a breakpoint are as short as times there allow, not those at the end; area 1, order 0.95."""
    width, at, rate = 1e-6, 0.2, 0.1

    def func(t, u):
        return ((t >= at) & (t < at + width)) / width - rate * u

    u = fdeint(func, 0.0, [0.0, 100.0, 999.0], order=0.95, options={"breakpoints": [at, at + width]})
    exact = [0.00132471988934, 7.29016846890e-06]  # difference of two step responses
    torch.testing.assert_close(u[1:], torch.tensor(exact, dtype=torch.float64), rtol=5e-5, atol=5e-8)
    message = "of a pulse so short only the area counts: pass a longer, lower one"
    with pytest.raises(InvalidArgumentError, match=message):
        fdeint(func, 0.0, [0.0, 1001.0], order=0.95, options={"breakpoints": [at, at + width]})


def test_breakpoints_elsewhere_and_times_of_single_precision():
    """Those outside of the span, or at its ends, do nothing; a float32 clock is nudged by its own last digits."""
    seen = []

    def func(t, u):
        seen.append(t)
        return (t >= 0.3).to(u.dtype)

    way = {"order": 0.6, "rtol": 1e-5, "trajectory": False}
    u = fdeint(func, 0.0, [0.0, 1.0], **grouped(breakpoints=[-1.0, 0.0, 0.3, 1.0, 7.0], **way))
    torch.testing.assert_close(u, since(torch.tensor(1.0, dtype=torch.float64), 0.3, 0.6), rtol=1e-12, atol=0)
    assert any(0.0 < 0.3 - float(t) < 8e-16 for t in seen)
    assert 0.3 not in [float(t) for t in seen]
    u = fdeint(func, 0.0, torch.tensor([0.0, 1.0]), **grouped(breakpoints=[0.3], **way))
    assert seen[-1].dtype == torch.float32
    torch.testing.assert_close(u, since(torch.tensor(1.0, dtype=torch.float64), 0.3, 0.6), rtol=1e-6, atol=0)


def test_jumps_at_the_ends():
    """The first node sees what is after t[0], the last one what is before the end."""
    t = torch.tensor([0.5, 1.5], dtype=torch.float64)
    for inside in (lambda t: (t > 0.5) & (t < 1.5), lambda t: (t >= 0.5) & (t <= 1.5)):
        func = lambda t, u: inside(t).to(u.dtype)  # noqa: B023, E731
        u = fdeint(func, 0.0, t, order=0.7, options={"breakpoints": [0.5, 1.5]})
        assert math.isclose(u[-1].item(), 1 / math.gamma(1.7), rel_tol=1e-12)


def test_several_terms_events_and_kinks_take_breakpoints():
    relaxed = MultiTerm([0.6, 0.0], [1.0, 0.0], lambda t, lower: (t >= 1).double())
    y = relaxed.solve((0.0,), T, options={"breakpoints": [1.0]})
    torch.testing.assert_close(y, since(T, 1.0, 0.6), rtol=1e-12, atol=1e-12)
    time, _ = fdeint_event(
        lambda t, u: (t >= 1).to(u.dtype),
        0.0,
        0.0,
        event_fn=lambda t, u: u - 0.5,
        t1=3.0,
        order=0.6,
        options={"breakpoints": [1.0, 2.9]},
    )
    assert math.isclose(time.item(), 1 + (0.5 * math.gamma(1.6)) ** (1 / 0.6), rel_tol=1e-10)
    times = torch.tensor([0.0, 0.7, 2.0], dtype=torch.float64)
    kink = linear_input(times, [0.0, 0.0, 1.3])
    found = fdeint(lambda t, u: kink(t), 0.0, [0.0, 2.0], order=0.6, options={"breakpoints": times})
    assert math.isclose(found[-1].item(), 1.3**1.6 / math.gamma(2.6), rel_tol=1e-12)


def test_the_longest_step():
    found = fdeint(lambda t, u: 0 * u, 1.0, [0.0, 1.0], order=0.7, info=True, grid=Adaptive(max_step=0.03))
    assert float(found.grid.diff().max()) <= 0.03 + 1e-15
    assert found.n_accepted >= 34


@pytest.mark.parametrize(
    ("order", "jump"),
    slow_but([(0.1, 0.7), (0.3, 1.3), (0.8, 1.03)], product([0.1, 0.2, 0.3, 0.5, 0.8], [0.7, 1.03, 1.3])),
)
def test_jumps_that_nobody_told_of_end_no_solve(order, jump):
    """Below order 1 little is left of an error on a short step, so that steps need not become shorter than numbers."""
    after = (T - jump).clamp(min=0) ** order
    exact = after * mittag_leffler(-after, order, order + 1)
    u = fdeint(lambda t, u: (t > jump).to(u.dtype) - u, 0.0, T[[0, 4, 8]], order=order)
    assert float((u - exact[[0, 4, 8]]).abs().max()) < 2e-4


@pytest.mark.parametrize(
    ("order", "rate", "time"),
    slow_but([(0.3, 1e4, 1e-12)], [(0.3, 1e4, 1e-12), (0.3, 1e6, 1e-9), (0.5, 1e6, 1e-12)]),
)
def test_very_early_outputs_of_stiff_problems(order, rate, time):
    u = fdeint(lambda t, u: -rate * u, 1.0, [0.0, time, 1.0], order=order)
    exact = mittag_leffler(-rate * torch.tensor([time, 1.0], dtype=torch.float64) ** order, order)
    torch.testing.assert_close(u[1:], exact, rtol=2e-5, atol=2e-8)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"breakpoints": [0.5], "n_steps": 4},
            InvalidArgumentError,
            "breakpoints must not be given for grid=Uniform(n=4), got [0.5]; leave it out, or leave out n_steps",
        ),
        (
            {"breakpoints": [0.5], "grid": "given"},
            InvalidArgumentError,
            "breakpoints must not be given for grid=Given()",
        ),
        (
            {"breakpoints": [0.5, 0.4]},
            InvalidArgumentError,
            "breakpoints must increase strictly, got breakpoints[0] = 0.5",
        ),
        ({"breakpoints": 0.5}, InvalidArgumentError, "breakpoints must be one-dimensional, got shape ()"),
        ({"breakpoints": "noon"}, InvalidTypeError, "breakpoints must be numbers, got 'noon' of type str"),
        (
            {"breakpoints": [0.5, 0.5 + 1e-12]},
            InvalidArgumentError,
            "breakpoints must lie 1e-09 of the span or more from one another and from its ends, got 0.5 and",
        ),
        ({"max_step": 0.0}, InvalidArgumentError, "max_step must be positive and finite, got 0.0; the longest step"),
        (
            {"max_step": 1e-7},
            InvalidArgumentError,
            "max_step must leave at most max_evaluations = 100000 steps from t[0] to t[-1], got 1e-07, which takes "
            "1e+07; pass a longer one, or a larger max_evaluations",
        ),
        ({"max_step": 1e-20}, InvalidArgumentError, "got 1e-20, which takes 1e+20; pass a longer"),
        (
            {"max_step": 1e-2, "max_evaluations": 150},
            NotConvergedError,
            "max_step = 0.01 makes them so many: pass a longer one, or a larger max_evaluations",
        ),
        (
            {"max_step": 0.1, "n_steps": 4},
            InvalidArgumentError,
            "n_steps must not be given together with grid, got n_steps=4 and grid=Adaptive(rtol=1e-05, atol=1e-08, max",
        ),
    ],
)
def test_breakpoints_and_steps_that_are_refused(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        fdeint(lambda t, u: -u, 1.0, [0.0, 1.0], order=0.5, **grouped(**options))


LATE = 1e12
AT_THE_BEGIN = (
    "breakpoints must be equal to t[0] = 1000000000000.0 or lie more than 0.0018 from it, the rounding of times"
)
AT_THE_END = (
    "breakpoints must be equal to t[-1] = 1000000000001.0 or lie more than 0.0018 from it, the rounding of times"
)
TOO_COARSE = (
    "steps after a breakpoint must be 0.089 long or longer, 100 times the rounding of times such as t[0] = 1e+12"
)


@pytest.mark.parametrize(
    ("after", "error", "message"),
    [
        (1e-3, InvalidArgumentError, f"{AT_THE_BEGIN} so late, got 1000000000000.001; count t, breakpoints and the"),
        (0.999, InvalidArgumentError, f"{AT_THE_END} so late, got 1000000000000.999; count t, breakpoints and the"),
        (1.001, InvalidArgumentError, f"{AT_THE_END} so late, got 1000000000001.001; count t, breakpoints and the"),
        (0.5, NotConvergedError, f"{TOO_COARSE}, got shorter ones on the 0.5 after the breakpoint 1000000000000.5; co"),
    ],
)
def test_breakpoints_that_late_times_cannot_hold(after, error, message):
    with pytest.raises(error, match=re.escape(message)):
        fdeint(lambda t, u: -u, 1.0, [LATE, LATE + 1], order=0.5, options={"breakpoints": [LATE + after]})


@pytest.mark.parametrize("breakpoints", [[LATE, LATE + 1], [LATE - 3, LATE + 5]])
def test_breakpoints_at_or_beyond_the_ends_of_late_times_do_nothing(breakpoints):
    late, early = (
        fdeint(lambda t, u: -u, 1.0, [begin, begin + 1], order=0.5, options={"breakpoints": told})
        for begin, told in ((LATE, breakpoints), (0.0, None))
    )
    torch.testing.assert_close(late, early, rtol=1e-7, atol=0)


def test_steps_after_a_breakpoint_have_digits_of_a_clock_in_single_precision():
    t = torch.tensor([1e6, 1e6 + 1])
    message = r"100 times the rounding of times such as t\[0\] = 1e\+06, got .* the breakpoint 1000000.5; .* in float64"
    with pytest.raises(NotConvergedError, match=message):
        fdeint(lambda t, u: -u, 1.0, t, order=0.5, options={"breakpoints": [1e6 + 0.5]})
