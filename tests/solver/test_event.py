import math

import pytest
import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.solver import Graded, fdeint, fdeint_event
from tests.slow import slow_but
from tests.solver.calls import grouped

# E_γ(−t^γ) = 1/2, by mpmath with 30 digits.
HALF_LIVES = {0.4: 0.580268692531850851, 0.6: 0.605685408697701098, 0.8: 0.643440598968053285}

METHODS = [
    {"method": "adams", "n_steps": 30},
    {"method": "trapezoidal", "grid": Graded(20, 2.0)},
    {"method": "l1", "n_steps": 30},
    {},
]
NAMES = ["adams", "trapezoidal", "l1", "adaptive"]


def number(value):
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def at_one(t, y):
    return y - 1.0


def half(t, y):
    return y - 0.5


def ones(t, y):
    return torch.ones_like(y)


@pytest.mark.parametrize("order", [0.3, 0.8, 1.0])
def test_a_constant_slope_reaches_one(order):
    """The solution is c t^γ / Γ(1+γ), so that T = (Γ(1+γ)/c)^(1/γ), and its derivatives by c and y0."""
    rate, y0 = number(1.0), number(0.0)
    time, state = fdeint_event(
        lambda t, y: rate * ones(t, y), y0, 0.0, event_fn=at_one, t1=2.0, order=order, n_steps=20
    )
    exact = math.gamma(1 + order) ** (1 / order)
    assert math.isclose(time.item(), exact, rel_tol=1e-11)
    assert math.isclose(state.item(), 1.0, rel_tol=1e-14)
    for gradient in torch.autograd.grad(time, (rate, y0)):
        assert math.isclose(float(gradient), -exact / order, rel_tol=1e-9)


@pytest.mark.parametrize("order", HALF_LIVES)
def test_the_half_life_of_a_decay(order):
    """T scales like rate^(−1/γ)."""
    rate = number(1.0)
    y0 = torch.ones((), dtype=torch.float64)
    time, _ = fdeint_event(lambda t, y: -rate * y, y0, 0.0, event_fn=half, t1=3.0, order=order, rtol=1e-9, atol=1e-12)
    assert math.isclose(time.item(), HALF_LIVES[order], rel_tol=1e-8)
    assert math.isclose(float(torch.autograd.grad(time, rate)[0]), -HALF_LIVES[order] / order, rel_tol=1e-6)


@pytest.mark.parametrize("options", slow_but([{}], METHODS), ids=NAMES)
def test_gradients_of_time_and_state_by_finite_differences(options):
    """In rate, start, order, begin and a threshold of the event, for the discrete solution itself."""
    point = [number(value) for value in (0.9, 1.1, 0.7, 0.2, 0.45)]

    def found(rate, start, order, begin, threshold):
        y0 = torch.stack([start, -start])
        time, state = fdeint_event(
            lambda t, y: -rate * y + 0.1 * torch.sin(t),
            y0,
            begin,
            event_fn=lambda t, y: y[0] - threshold * torch.cos(0.1 * t),
            t1=4.0,
            order=order,
            n_checks=8,
            **grouped(**options),
        )
        return torch.stack([time, state[0], state[1]])

    gradients = torch.autograd.functional.jacobian(found, tuple(point))
    # An adaptive grid follows the parameters, while the gradient holds its nodes fixed: as far as its error, 1e-5.
    tolerance = 1e-6 if options else 1e-4
    step = 1e-4
    for place, gradient in enumerate(gradients):
        with torch.no_grad():
            moved = [[each.clone() for each in point] for _ in range(2)]
            moved[0][place] -= step
            moved[1][place] += step
            differences = (found(*moved[1]) - found(*moved[0])) / (2 * step)
        torch.testing.assert_close(gradient, differences, rtol=tolerance, atol=tolerance)


def test_the_state_at_the_event_is_that_of_a_solve_up_to_it():
    y0 = (torch.tensor([1.0], dtype=torch.float64), torch.tensor([0.0, 0.5], dtype=torch.float64))

    def func(t, y):
        return -y[0], y[0] - y[1]

    time, state = fdeint_event(func, y0, 0.0, event_fn=lambda t, y: y[0] - 0.6, t1=2.0, order=(0.5, 0.9), rtol=1e-8)
    t = torch.stack([torch.zeros_like(time), time])
    expected = fdeint(func, y0, t, order=(0.5, 0.9), rtol=1e-8, trajectory=False)
    assert not time.requires_grad
    for mine, theirs in zip(state, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)


def test_an_order_above_one_and_a_start_on_the_event():
    """A throw upward from the ground, order 2: it is back at t = 2 v / g, and the start does not count."""
    start = (torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64))
    time, state = fdeint_event(
        lambda t, y: -2.0 * ones(t, y), start, 0.0, event_fn=lambda t, y: y, t1=3.0, order=2.0, n_steps=16
    )
    assert math.isclose(time.item(), 1.0, rel_tol=1e-12)
    assert abs(state.item()) < 1e-12


def test_an_event_between_begin_and_first_look():
    y0 = torch.ones((), dtype=torch.float64)
    time, _ = fdeint_event(lambda t, y: -y, y0, 5.0, event_fn=lambda t, y: y - 0.999, t1=1005.0, order=1.0, n_checks=4)
    assert math.isclose(time.item() - 5.0, -math.log(0.999), rel_tol=1e-4)


def test_what_is_told_of_a_solve_to_an_event():
    calls = []

    def func(t, y):
        calls.append(t)
        return -y

    time, told = fdeint_event(func, 1.0, 0.0, event_fn=half, t1=3.0, order=0.6, info=True)
    assert told.method == "collocation"
    assert told.n_evaluations == len(calls)
    assert told.grid[-1] == 3.0
    assert told.states.item() == pytest.approx(0.5, rel=1e-12)
    assert time.item() == pytest.approx(HALF_LIVES[0.6], rel=1e-5)


def test_one_solve_finds_an_event():
    _, told = fdeint_event(lambda t, y: -y, 1.0, 0.0, event_fn=half, t1=3.2, order=0.6, info=True)
    t = torch.linspace(0.0, 3.2, 65, dtype=torch.float64)
    assert told.n_evaluations == fdeint(lambda t, y: -y, 1.0, t, order=0.6, info=True).n_evaluations


def test_an_event_next_to_a_breakpoint():
    """The slope turns from 1 to −1 at 1, so that the event at 1.001 lies before the first check after the turn."""
    time, state = fdeint_event(
        lambda t, y: torch.where(t <= 1.0, 1.0, -1.0) * ones(t, y),
        0.0,
        0.0,
        event_fn=lambda t, y: 0.0 * y + t - 1.001,
        t1=2.0,
        order=1.0,
        options={"breakpoints": [1.0]},
    )
    assert math.isclose(time.item(), 1.001, rel_tol=1e-12)
    assert math.isclose(state.item(), 0.999, rel_tol=1e-8)


def test_no_event_within_the_span():
    y0 = torch.ones((), dtype=torch.float64)
    message = r"event_fn must change its sign between t0 = 0 and t1 = 0.1, got 0.5 and 0.2\d*? there, .* pass a later"
    with pytest.raises(InvalidArgumentError, match=message):
        fdeint_event(lambda t, y: -y, y0, 0.0, event_fn=half, t1=0.1, order=0.5)


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (
            1.0,
            r"and then -0.664 at t1 = 2 with no change of sign \(64 checks\); if that is the event, its time is t0",
        ),
        (0.0, r"and then 0 at all checks \(64 checks\); if that is the event, its time is t0; else pass a later t1"),
    ],
)
def test_an_event_at_the_begin_alone(rate, message):
    with pytest.raises(InvalidArgumentError, match=rf"sign after t0 = 0, got 0 at t0 itself, where .*, {message}"):
        fdeint_event(lambda t, y: -rate * y, 1.0, 0.0, event_fn=at_one, t1=2.0, order=0.5)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"event_fn": 1.0},
            InvalidTypeError,
            r"event_fn must be callable as event_fn\(t, y\), got float; pass a function",
        ),
        (
            {"event_fn": lambda t, y: y.expand(2)},
            InvalidArgumentError,
            r"tensor of one number, got shape \(2,\); combine",
        ),
        (
            {"event_fn": lambda t, y: 1.0},
            InvalidArgumentError,
            r"one number, got float; return what it .* without .item",
        ),
        (
            {"event_fn": lambda t, y: y > 1},
            InvalidArgumentError,
            "changes its sign, got dtype torch.bool; return a diff",
        ),
        (
            {"event_fn": lambda t, y: y / 0 * t},
            InvalidArgumentError,
            "must return finite numbers, got nan at t = 0; check",
        ),
        ({"t1": "noon"}, InvalidTypeError, "t1 must be a number, got str; pass a float"),
        ({"t1": torch.ones(2)}, InvalidArgumentError, r"t1 must be one number, got shape \(2,\); pass one time"),
        ({"info": 1}, InvalidTypeError, "info must be True or False, got 1"),
        ({"t1": 0.0}, InvalidArgumentError, "t1 must be later than t0 and finite, got 0 for t0 = 0; pass"),
        ({"t1": math.inf}, InvalidArgumentError, "t1 must be later than t0 and finite, got inf for t0 = 0"),
        ({"n_checks": 3}, InvalidArgumentError, "n_checks must be at least 4, got 3"),
        ({"trajectory": False}, InvalidArgumentError, "trajectory must not be given to fdeint_event, got False"),
        ({"grid": "given", "n_steps": None}, InvalidArgumentError, r"grid must not be Given\(\) for fdeint_event"),
        ({"batched": "yes"}, InvalidTypeError, "batched must be True or False"),
        ({"event_fn": lambda t, y: y - 1.0 + 0 * t, "order": 1.5}, InvalidArgumentError, "y0 must be a pair"),
    ],
)
def test_arguments_that_do_not_fit(options, error, message):
    options = {"event_fn": at_one, "t1": 2.0, "order": 0.5, "n_steps": 4, **options}
    with pytest.raises(error, match=message):
        fdeint_event(ones, torch.zeros((), dtype=torch.float64), 0.0, **grouped(**options))


def test_an_event_without_a_slope_has_no_gradient():
    rate = number(1.0)
    message = "event_fn must cross zero with a slope, got 0 at t = .*; its time has no gradient"
    with pytest.raises(InvalidArgumentError, match=message):
        fdeint_event(
            lambda t, y: rate * ones(t, y),
            torch.zeros((), dtype=torch.float64),
            0.0,
            event_fn=lambda t, y: torch.where(y < 1.0, y * 0 - 1.0, y * 0 + 1.0),
            t1=2.0,
            order=0.5,
            n_steps=8,
        )


BATCH = torch.tensor([0.5, 1.0, 2.0, 0.8], dtype=torch.float64)
ORDERS = torch.tensor([0.6, 0.6, 0.9, 1.0], dtype=torch.float64)


def decays(rates, starts, thresholds, begin, **options):
    """A decay with a second component, to an event of each sample."""
    return fdeint_event(
        lambda t, y: -rates[:, None] * y,
        torch.stack([starts, 1e6 * starts], dim=1),
        begin,
        event_fn=lambda t, y: y[:, 0] - thresholds * torch.cos(0.1 * t),
        batched=True,
        **options,
    )


BEGIN = torch.tensor([0.0, 1.0, 0.0, 0.5], dtype=torch.float64)
GIVEN = [torch.ones(4, dtype=torch.float64), torch.tensor([0.5, 0.6, 0.995, 0.4], dtype=torch.float64)]


@pytest.fixture(scope="module")
def alone():
    """Of each sample by itself, to many digits: time and state of its event, and gradients of their sum."""
    found = []
    for sample in range(4):
        leaves = [each[sample].clone().requires_grad_() for each in (BATCH, *GIVEN, BEGIN)]
        rate, start, threshold, first = leaves
        time, end = fdeint_event(
            lambda t, y, rate=rate: -rate * y,
            torch.stack([start, 1e6 * start]),
            first,
            event_fn=lambda t, y, threshold=threshold: y[0] - threshold * torch.cos(0.1 * t),
            t1=9.0,
            order=ORDERS[sample],
            rtol=1e-9,
            atol=1e-11,
        )
        gradients = torch.autograd.grad(time + end[0] + 1e-6 * end[1], leaves)
        found.append((time.detach(), end.detach(), gradients))
    return found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_each_sample_of_a_batch_has_its_event(dtype, alone):
    """One of them before the first check; times, states and their gradients are those of each sample alone."""
    rates, starts, thresholds, t0 = (each.clone().requires_grad_() for each in (BATCH, *GIVEN, BEGIN))
    rtol = 1e-8 if dtype == torch.float64 else 1e-4
    sizes = {"t1": 9.0, "order": ORDERS, "rtol": rtol, "atol": rtol / 100}
    time, state = decays(rates.to(dtype), starts.to(dtype), thresholds.to(dtype), t0, **sizes)
    assert time.dtype == torch.float64
    assert state.shape == (4, 2)
    total = time.sum() + state[:, 0].sum() + 1e-6 * state[:, 1].sum()
    found = torch.autograd.grad(total, (rates, starts, thresholds, t0))
    for sample, (exact, end, right) in enumerate(alone):
        torch.testing.assert_close(time[sample], exact, rtol=30 * rtol, atol=0.0)
        torch.testing.assert_close(state[sample].double(), end, rtol=30 * rtol, atol=0.0)
        for mine, theirs in zip(found, right, strict=True):
            torch.testing.assert_close(mine[sample], theirs, rtol=1e3 * rtol, atol=1e3 * rtol)


def test_events_of_a_batch_with_tuples_and_info():
    y0 = torch.ones(4, dtype=torch.float64), torch.zeros(4, 2, dtype=torch.float64)
    with torch.no_grad():
        time, told = fdeint_event(
            lambda t, y: (-BATCH * y[0], y[0][:, None] - y[1]),
            y0,
            0.0,
            event_fn=lambda t, y: y[0] - 0.5,
            t1=torch.tensor([9.0, 3.0, 3.0, 8.0], dtype=torch.float64),
            order=0.6,
            batched=True,
            info=True,
        )
    torch.testing.assert_close(time, HALF_LIVES[0.6] * BATCH ** (-1 / 0.6), rtol=1e-4, atol=0.0)
    assert told.states[0].tolist() == pytest.approx([0.5] * 4, rel=1e-9)
    assert told.states[1].shape == (4, 2)
    assert told.grid[:, -1].tolist() == [9.0, 3.0, 3.0, 8.0]


def test_samples_without_an_event():
    thresholds, begin = torch.tensor([0.5, 0.5, 0.5, -1.0], dtype=torch.float64), 0.0
    rates, starts = BATCH.clone().requires_grad_(), torch.ones(4, dtype=torch.float64)
    sizes = {"t1": 3.0, "order": 0.6, "options": {"failures": "nan"}}
    with pytest.raises(InvalidArgumentError, match=r"must change its sign .* there in sample 3 of 4, and no change"):
        decays(rates, starts, thresholds, begin, t1=3.0, order=0.6)
    time, state = decays(rates, starts, thresholds, begin, **sizes)
    assert time.isnan().tolist() == [False, False, False, True]
    assert state[3].isnan().all()
    (gradient,) = torch.autograd.grad(time[:3].sum(), rates)
    right = -HALF_LIVES[0.6] / 0.6 * BATCH ** (-1 / 0.6 - 1)
    assert gradient[3] == 0.0
    assert (gradient[:3] / right[:3] - 1.0).abs().max() < 0.3  # the event moves a little with the cosine


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"event_fn": lambda t, y: y}, r"one number for each sample, got shape \(4, 2\); combine"),
        ({"event_fn": lambda t, y: y[:, 0] / 0 * t}, r"finite numbers, got nan at t = 0 in sample 0 of 4; check"),
        ({"t1": torch.ones(2, 2)}, r"t1 must be one number, got shape \(2, 2\); .*one for each sample"),
        ({"t1": torch.ones(3)}, "t must hold times"),
        ({"t1": torch.tensor([1.0, 1.0, 0.0, 1.0])}, "t1 must be later than t0 and finite, got 0 for t0 = 0"),
        ({"n_steps": 4}, "batched=True must go with the default method"),
    ],
)
def test_arguments_of_batches_that_do_not_fit(options, message):
    given = {"event_fn": lambda t, y: y[:, 0] - 0.5, "t1": 2.0, "order": 0.5, **options}
    y0 = torch.ones(4, 2, dtype=torch.float64)
    with pytest.raises(InvalidArgumentError, match=message):
        fdeint_event(lambda t, y: -BATCH[:, None] * y, y0, 0.0, batched=True, **given)
