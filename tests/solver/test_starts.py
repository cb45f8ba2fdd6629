"""What func does before a solve first looks at it: transients, singularities, numbers that are none."""

import math
from functools import cache

import pytest
import torch

from fracdnn.exceptions import InvalidArgumentError, NotConvergedError, NotFiniteError
from fracdnn.solver import Given, fdeint
from tests.references import mittag_leffler
from tests.slow import each_once
from tests.solver.calls import grouped


@cache
def relaxed_transient(rate, fall, order, time):
    """D^γ u = e^(−fall t) − rate u from 0, by the convolution of the forcing with t^(γ−1) E_{γ,γ}(−rate t^γ)."""
    import mpmath

    def kernel(s):
        return s ** (order - 1) * mittag_leffler(-rate * s**order, order, order)

    edges = [0, *[10**k / fall for k in range(-4, 2)], time / 2, time]
    return float(mpmath.quad(lambda s: mpmath.exp(-fall * s) * kernel(time - s), [e for e in edges if e <= time]))


@pytest.mark.parametrize(
    ("transient", "context"),
    each_once([(50.0, 1e3, 0.6), (1.0, 1e4, 0.9)], [torch.no_grad, torch.enable_grad]),
)
def test_a_transient_much_shorter_than_the_span(transient, context):
    fall, span, order = transient
    with context():
        u = fdeint(lambda t, u: torch.exp(-fall * t) - 1e-3 * u, 0.0, [0.0, span], order=order)
    assert u[-1].item() == pytest.approx(relaxed_transient(1e-3, fall, order, span), rel=2e-5)


def test_a_transient_that_begins_with_nothing():
    """Func is 0 at t[0], and large soon after it."""
    func = lambda t, u: t * torch.exp(-t) - 1e-3 * u  # noqa: E731
    seen = fdeint(func, 0.0, [0.0, 1.0, 1e4], order=0.9, rtol=1e-8, atol=1e-12)[-1]
    torch.testing.assert_close(fdeint(func, 0.0, [0.0, 1e4], order=0.9)[-1], seen, rtol=2e-5, atol=0)


def test_a_transient_after_a_breakpoint():
    func = lambda t, u: (t >= 1) * torch.exp(-1e3 * (t - 1).clamp(min=0)) - 0.1 * u  # noqa: E731
    seen = fdeint(func, 0.0, [0.0, 1.001, 50.0], order=0.7, rtol=1e-9, atol=1e-13, options={"breakpoints": [1.0]})[-1]
    found = fdeint(func, 0.0, [0.0, 50.0], order=0.7, options={"breakpoints": [1.0]})[-1]
    torch.testing.assert_close(found, seen, rtol=5e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("power", "order", "rtol"),
    [(0.9, 1.0, 1e-5), (0.5, 1.0, 1e-5), (0.5, 1.0, 1e-7), (0.3, 0.6, 1e-5), (0.2, 1.4, 1e-6)],
)
def test_integrable_singularities_keep_the_tolerance(power, order, rtol):
    slope = 0.0 if order > 1 else None
    u = fdeint(lambda t, u: t**-power + 0 * u, 0.0, [0.0, 1.0], order=order, rtol=rtol, options={"slope": slope})
    exact = math.gamma(1 - power) / math.gamma(1 - power + order)
    assert u[-1].item() == pytest.approx(exact, rel=5 * rtol)


@pytest.mark.parametrize(
    ("power", "message"),
    [
        (1.0, "func grows at the start like 1/t or faster, so that no solution exists: check func, or start later"),
        (1.5, "func grows at the start like 1/t or faster, so that no solution exists: check func, or start later"),
    ],
)
def test_singularities_that_are_too_strong_are_refused(power, message):
    with pytest.raises(NotConvergedError, match=message):
        fdeint(lambda t, u: t**-power + 0 * u, 0.0, [0.0, 1.0], order=1.0)


def test_steps_that_cannot_be_shorter_do_not_confirm_each_other():
    """The part of the integral before the shortest step is 5 %: two goals gave the same steps, taken for agreement."""
    with pytest.raises(NotConvergedError, match=r"t = 17 .* func grows at the start like t\^-0.91: pass larger rtol"):
        fdeint(lambda t, u: t**-0.91 + 0 * u, 0.0, [0.0, 17.0], order=0.48)


@pytest.mark.parametrize("options", [{"method": "collocation", "n_steps": 4}, {"n_steps": 4}])
def test_a_function_that_is_no_number_at_the_start_of_a_fixed_grid(options):
    with pytest.raises(
        NotFiniteError, match="at t = 0 in y; check func there, or solve for times at which it is finite"
    ):
        fdeint(lambda t, u: torch.sin(t) / t - u, 1.0, [0.0, 1.0], order=0.8, **grouped(**options))


def test_short_pulses_at_a_small_order():
    begin, width, rate, order = 0.508, 2e-6, 0.153, 0.26

    def pulse(t, u):
        return ((t >= begin) & (t < begin + width)) / width - rate * u

    u = fdeint(pulse, 0.0, [0.0, 0.75, 1.0], order=order, atol=1e-12, options={"breakpoints": [begin, begin + width]})
    for time, found in zip((0.75, 1.0), u[1:].tolist(), strict=True):
        after = time - begin  # of all but a delta function
        exact = after ** (order - 1) * float(mittag_leffler(-rate * after**order, order, order))
        assert found == pytest.approx(exact, rel=5e-5)


def test_outputs_just_after_a_node_of_a_fixed_grid():
    func, order = (lambda t, u: torch.cos(3 * t) - u), 0.325
    times = torch.tensor([0.0, *(5 / 12 + d for d in (0.0, 1e-15, 1e-12, 1e-9)), 1.0], dtype=torch.float64)
    u = fdeint(func, 1.0, times, order=order, method="collocation", n_steps=12)
    torch.testing.assert_close(u[2:5], u[1].expand(3), rtol=1e-6, atol=0)


@pytest.mark.parametrize("span", [1e-300, 1e150])
def test_spans_whose_powers_are_no_numbers(span):
    with pytest.raises(
        InvalidArgumentError, match=r"t must span between 1e-100 and 1e\+100, got .*; measure time in an"
    ):
        fdeint(lambda t, u: -u, 1.0, [0.0, span], order=0.3)


@pytest.mark.parametrize("span", [1e-90, 1e90])
def test_long_and_short_spans(span):
    rate = span**-0.5
    u = fdeint(lambda t, u: -rate * u, 1.0, [0.0, span], order=0.5)
    assert u[-1].item() == pytest.approx(math.exp(1) * math.erfc(1), rel=1e-4)


@pytest.mark.parametrize("last", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_many_breakpoints_at_the_begin_of_a_long_span(last):
    days = torch.linspace(0, last, 5 * last + 1, dtype=torch.float64)[1:-1]
    doses = lambda t, u: (torch.floor(5 * t) % 2) * (t < last) - 0.1 * u  # noqa: E731
    found = fdeint(doses, 0.0, [0.0, 36500.0], order=0.9, info=True, options={"breakpoints": days})
    finer = fdeint(
        doses,
        0.0,
        [0.0, last + 1.0, 36500.0],
        order=0.9,
        rtol=1e-7,
        options={"breakpoints": [*days.tolist(), float(last)]},
    )
    assert found.n_evaluations < 2_000 * last
    torch.testing.assert_close(found.states[-1], finer[-1], rtol=0.05, atol=2e-8)


def test_late_times_in_single_precision_are_taken_as_given():
    late = 1e6 + torch.tensor([0, 2, 4.0625, 6, 8])
    early = (late.double() - 1e6).requires_grad_(False)
    found = fdeint(lambda t, u: -u, 1.0, late, order=0.5, grid=Given(), method="trapezoidal")
    expected = fdeint(lambda t, u: -u, 1.0, early, order=0.5, grid=Given(), method="trapezoidal")
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
