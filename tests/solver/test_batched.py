"""Samples of a batch: the values, gradients and failures of each are those of a solve of its own."""

import math
from itertools import product

import pytest
import torch

from fracdnn import fdeint
from fracdnn.exceptions import InvalidArgumentError, NotConvergedError
from fracdnn.solver import Status
from tests.slow import each_once, slow_but

F64 = torch.float64
SIZE = 7
generator = torch.Generator().manual_seed(3)
RATES = 0.2 + 3.0 * torch.rand(SIZE, dtype=F64, generator=generator)
ORDERS = 0.35 + 0.6 * torch.rand(SIZE, dtype=F64, generator=generator)
STARTS = 0.5 + torch.rand(SIZE, 2, dtype=F64, generator=generator)
TIMES = torch.tensor([0.0, 0.3, 1.1, 2.0], dtype=F64)
ROWS = TIMES * (1.0 + torch.rand(SIZE, 1, dtype=F64, generator=generator)) + torch.arange(SIZE, dtype=F64)[:, None]


def func_of(rates):
    """Two components, not linear, with an input."""

    def func(t, y):
        return torch.stack([-rates * y[..., 0] + 0.3 * y[..., 1], -0.5 * y[..., 1] ** 2 + torch.sin(t)], dim=-1)

    return func


def one_by_one(rates, starts, t, order, **options):
    times = t if t.dim() == 2 else t.expand(len(starts), -1)
    rows = zip(rates, starts, times, order, strict=True)
    return torch.stack([fdeint(func_of(k), y0, own, order=alpha, **options) for k, y0, own, alpha in rows], dim=1)


@pytest.mark.parametrize(
    "t", [pytest.param(TIMES, id="shared times", marks=pytest.mark.slow), pytest.param(ROWS, id="own times")]
)
def test_values_are_those_of_each_sample(t):
    with torch.no_grad():
        found = fdeint(func_of(RATES), STARTS, t, order=ORDERS, rtol=1e-7, batched=True)
        exact = one_by_one(RATES, STARTS, t, ORDERS, rtol=1e-11, atol=1e-13)
    assert found.shape == (4, SIZE, 2)
    assert ((found - exact).abs() <= 1e-8 + 1e-7 * exact.abs()).all()


def test_without_a_gradient_and_with_one():
    with torch.no_grad():
        noted = fdeint(func_of(RATES), STARTS, TIMES, order=ORDERS, batched=True)
    walked = fdeint(func_of(RATES), STARTS, TIMES, order=ORDERS, batched=True)
    assert torch.allclose(noted, walked, rtol=1e-5, atol=1e-8)
    assert not torch.equal(noted[1:], torch.zeros_like(noted[1:]))


def test_gradients_are_those_of_each_sample():
    size = 4
    weights = torch.linspace(1.0, 2.0, 4 * size * 2, dtype=F64).reshape(4, size, 2)
    found = []
    for solve in (
        lambda k, y0, t, order: fdeint(func_of(k), y0, t, order=order, rtol=1e-8, batched=True),
        lambda k, y0, t, order: one_by_one(k, y0, t, order, rtol=1e-8),
    ):
        arguments = [
            each.clone().requires_grad_() for each in (RATES[:size], STARTS[:size], ROWS[:size], ORDERS[:size])
        ]
        found.append(torch.autograd.grad((weights * solve(*arguments)).sum(), arguments))
    for batched, alone in zip(*found, strict=True):
        assert (batched - alone).abs().max() <= 1e-6 * alone.abs().max()


@pytest.mark.slow  # the test above has the gradients of solves of their own, which have witnesses of their own
def test_gradients_are_those_of_differences():
    rates, orders = RATES[:3].clone().requires_grad_(), ORDERS[:3].clone().requires_grad_()

    def total(rates, orders):
        return fdeint(func_of(rates), STARTS[:3], TIMES, order=orders, rtol=1e-11, atol=1e-13, batched=True).sum()

    exact = torch.autograd.grad(total(rates, orders), (rates, orders))
    with torch.no_grad():
        for place in range(3):
            step = torch.zeros(3, dtype=F64)
            step[place] = 1e-4
            by_rate = (total(rates + step, orders) - total(rates - step, orders)) / 2e-4
            by_order = (total(rates, orders + step) - total(rates, orders - step)) / 2e-4
            assert abs(by_rate - exact[0][place]) <= 1e-6
            assert abs(by_order - exact[1][place]) <= 1e-6


def test_a_checkpoint_changes_no_gradient():
    found = []
    for checkpoint in (False, True):
        rates = RATES[:3].clone().requires_grad_()
        states = fdeint(
            func_of(rates), STARTS[:3], TIMES, order=ORDERS[:3], batched=True, options={"checkpoint": checkpoint}
        )
        found.append(torch.autograd.grad(states.sum(), rates)[0])
    assert torch.allclose(*found, rtol=1e-13, atol=0.0)


def test_tolerances_of_each_sample():
    rtol = torch.tensor([1e-3] * 3 + [1e-9] * 4, dtype=F64)
    with torch.no_grad():
        solution = fdeint(
            func_of(RATES), STARTS, TIMES, order=ORDERS, rtol=rtol, atol=1e-3 * rtol, batched=True, info=True
        )
        exact = one_by_one(RATES, STARTS, TIMES, ORDERS, rtol=1e-11, atol=1e-13)
    error = ((solution.states - exact).abs() / exact.abs()).amax((0, 2))
    assert (error <= 2.0 * rtol).all()
    assert solution.n_accepted[:3].max() < solution.n_accepted[3:].min()


def test_components_of_very_different_size():
    sizes = torch.tensor([1e6, 1.0, 1e-6], dtype=F64)

    def func(t, y):
        return torch.stack([-0.1 * y[:, 0], -5.0 * y[:, 1] ** 3, -RATES * y[:, 2]], dim=1)

    with torch.no_grad():
        found = fdeint(func, sizes.expand(SIZE, 3), TIMES, order=0.8, rtol=1e-6, atol=0.0, batched=True)
        alone = fdeint(
            lambda t, y: torch.stack([-0.1 * y[0], -5.0 * y[1] ** 3, -RATES[2] * y[2]]),
            sizes,
            TIMES,
            order=0.8,
            rtol=1e-9,
            atol=0.0,
        )
    assert torch.allclose(found[:, 2], alone, rtol=3e-6, atol=0.0)


def test_a_transient_before_the_first_output_is_seen():
    decay = torch.tensor([1.0, 3.0, 10.0, 0.3], dtype=F64)
    with torch.no_grad():
        found = fdeint(
            lambda t, u: torch.exp(-decay * t) - 1e-3 * u,
            torch.zeros(4, dtype=F64),
            [0.0, 1e4],
            order=0.9,
            batched=True,
        )
        alone = [
            fdeint(lambda t, u, k=k: torch.exp(-k * t) - 1e-3 * u, 0.0, [0.0, 1e4], order=0.9, rtol=1e-9) for k in decay
        ]
    assert torch.allclose(found[-1], torch.stack(alone)[:, -1], rtol=3e-5, atol=0.0)


def test_float32():
    rates, starts, orders = RATES.float(), STARTS.float(), ORDERS
    with torch.no_grad():
        found = fdeint(func_of(rates), starts, TIMES.float(), order=orders, rtol=1e-4, batched=True)
        exact = one_by_one(RATES, STARTS, TIMES, ORDERS, rtol=1e-9)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), exact, rtol=3e-4, atol=1e-6)


def test_orders_above_one_take_a_slope():
    orders = torch.tensor([1.2, 1.5, 1.9, 0.7], dtype=F64)
    value, slope = torch.ones(4, 1, dtype=F64), torch.full((4, 1), -0.5, dtype=F64)
    with torch.no_grad():
        found = fdeint(lambda t, u: -u, (value, slope), TIMES, order=orders, rtol=1e-7, batched=True)
        for sample in range(3):
            alone = fdeint(
                lambda t, u: -u, (value[sample], slope[sample]), TIMES, order=orders[sample], rtol=1e-10, atol=1e-12
            )
            assert torch.allclose(found[:, sample], alone, rtol=1e-6, atol=1e-7)
        alone = fdeint(lambda t, u: -u, value[3], TIMES, order=0.7, rtol=1e-10, atol=1e-12)
    assert torch.allclose(found[:, 3], alone, rtol=1e-6, atol=1e-7)


def test_a_stiff_sample_beside_slow_ones():
    rates = torch.tensor([1.0, 1e6, 1e-3], dtype=F64)
    with torch.no_grad():
        found = fdeint(lambda t, u: -rates * u + 1.0, torch.ones(3, dtype=F64), TIMES, order=0.6, batched=True)
        for sample, rate in enumerate(rates):
            alone = fdeint(lambda t, u, k=rate: -k * u + 1.0, 1.0, TIMES, order=0.6, rtol=1e-9, atol=1e-14)
            assert torch.allclose(found[:, sample], alone, rtol=1e-5, atol=1e-8)


def test_a_failing_sample_does_not_stop_the_others():
    powers = torch.tensor([1.0, 2.0, 1.0], dtype=F64)  # u' = u² ends at t = 1
    starts = torch.ones(3, dtype=F64)

    def func(t, u):
        return torch.where(powers == 2.0, 4.0 * u**2, -u)

    with torch.no_grad():
        with pytest.raises(NotConvergedError, match=r"in sample 1 of 3: .*options=\{'failures': 'nan'\}"):
            fdeint(func, starts, TIMES, order=0.9, rtol=1e-3, batched=True)
        solution = fdeint(func, starts, TIMES, order=0.9, batched=True, info=True, options={"failures": "nan"})
        alone = fdeint(lambda t, u: -u, 1.0, TIMES, order=0.9)
    assert solution.status == [Status.SOLVED, Status.NOT_CONVERGED, Status.SOLVED]
    assert "rtol" in Status.NOT_CONVERGED.value
    assert solution.states[:, 1].isnan().all()
    assert torch.allclose(solution.states[:, 0], alone, rtol=1e-5, atol=1e-8)


def test_gradients_beside_a_sample_that_is_solved_alone():
    """It jumps, so that the search for all leaves it out."""
    rates = torch.tensor([1.0, 2.0, 0.5], dtype=F64, requires_grad=True)
    jumps = torch.tensor([0.0, 1.0, 0.0], dtype=F64)

    def func(t, u):
        return -rates * u + jumps * (t > 0.777)

    states = fdeint(func, torch.ones(3, dtype=F64), TIMES, order=0.8, batched=True, rtol=1e-6)
    (gradient,) = torch.autograd.grad(states.sum(), rates)
    for sample in range(3):
        rate = rates.detach()[sample].clone().requires_grad_()
        alone = fdeint(
            lambda t, u, k=rate, jump=jumps[sample]: -k * u + jump * (t > 0.777),
            torch.ones((), dtype=F64),
            TIMES,
            order=0.8,
            rtol=1e-6,
        )
        assert torch.allclose(states[:, sample], alone, rtol=1e-5, atol=1e-7)
        assert torch.allclose(gradient[sample], torch.autograd.grad(alone.sum(), rate)[0], rtol=1e-4)


def test_many_outputs_and_the_last_alone():
    t, size = torch.linspace(0.0, 3.0, 200, dtype=F64), 3
    rates, starts, orders = RATES[:size], STARTS[:size], ORDERS[:size]
    with torch.no_grad():
        every = fdeint(func_of(rates), starts, t, order=orders, rtol=1e-7, batched=True)
        last = fdeint(func_of(rates), starts, t, order=orders, rtol=1e-7, batched=True, trajectory=False)
        exact = one_by_one(rates, starts, t, orders, rtol=1e-10, atol=1e-12)
    assert torch.allclose(every, exact, rtol=3e-7, atol=1e-8)
    assert last.shape == (size, 2)
    assert torch.allclose(last, exact[-1], rtol=3e-7, atol=1e-8)


def test_inference_mode():
    with torch.inference_mode():
        found = fdeint(func_of(RATES), STARTS, TIMES, order=ORDERS, batched=True)
    with torch.no_grad():
        assert torch.allclose(found, fdeint(func_of(RATES), STARTS, TIMES, order=ORDERS, batched=True), rtol=1e-5)


def test_the_solution_tells_of_each_sample():
    with torch.no_grad():
        solution = fdeint(func_of(RATES), STARTS, ROWS, order=ORDERS, batched=True, info=True)
    assert solution.grid.shape[0] == SIZE
    assert torch.equal(solution.grid[:, 0], ROWS[:, 0])
    assert torch.allclose(solution.grid[:, -1], ROWS[:, -1], rtol=1e-14)
    for row, count in zip(solution.grid, solution.n_accepted, strict=True):
        assert len(row.unique()) == count + 1
    assert solution.n_evaluations > int(solution.n_accepted.max())


@pytest.mark.parametrize(
    "func",
    [
        lambda t, y: -y + 0.1 * y.mean(0),
        lambda t, y: -y + t[:, None] * y.mean(0),  # nothing to see at t = 0
        lambda t, y: -y - 0.5 * y.roll(2, 0),
        lambda t, y: -y - 0.5 * y.roll(3, 0),
        lambda t, y: -y * t.mean(),
    ],
)
def test_samples_that_depend_on_one_another_are_refused(func):
    with pytest.raises(InvalidArgumentError, match="func must treat samples apart with batched=True, got a slope of"):
        fdeint(func, STARTS, TIMES, order=0.7, batched=True)


def test_times_along_another_dimension_are_refused():
    """In a square state they broadcast without an error."""
    with pytest.raises(InvalidArgumentError, match=r"as in t\[:, None\]"):
        fdeint(lambda t, y: -y * t, torch.ones(3, 3, dtype=F64), TIMES, order=0.7, batched=True)


@pytest.mark.parametrize(("order", "wants_gradient"), each_once([0.6, 1.0], [True, False]))
def test_every_last_time_is_reached(order, wants_gradient):
    """A panel's start and its length add up to its end but for rounding: outputs there were left out."""
    ends = 0.01 + 5.0 * torch.rand(500, dtype=F64, generator=torch.Generator().manual_seed(0))
    with torch.set_grad_enabled(wants_gradient):
        solution = fdeint(
            lambda t, y: 1.0 - 1e-3 * y,
            torch.ones(500, dtype=F64),
            torch.stack([0.0 * ends, ends / 3.0, ends], dim=1),
            order=order,
            batched=True,
            info=True,
        )
    assert solution.states.isfinite().all()
    assert solution.grid.isfinite().all()  # none had to be solved alone


def test_the_number_of_evaluations_is_limited():
    with pytest.raises(NotConvergedError, match="at most max_evaluations = 500 evaluations"):
        fdeint(
            lambda t, y: torch.cos(1e5 * t) - y,
            torch.zeros(2, dtype=F64),
            [0.0, 4.0],
            order=0.7,
            batched=True,
            options={"max_evaluations": 500},
        )


def test_times_in_float32_with_a_sample_that_is_solved_alone():
    rates = torch.tensor([1.0, 1e6])
    with torch.no_grad():
        found = fdeint(lambda t, y: -rates * y, torch.ones(2), torch.tensor([0.0, 4.0]), order=0.9, batched=True)
    exact = fdeint(lambda t, y: -y, 1.0, [0.0, 4.0], order=0.9)[-1]
    assert abs(float(found[-1, 0] / exact) - 1.0) < 1e-4
    assert abs(float(found[-1, 1])) < 1e-5


@pytest.mark.parametrize("wrong", [1.0, torch.ones(1, dtype=F64), torch.ones(SIZE, 2)])
def test_what_func_returns(wrong):
    with pytest.raises(InvalidArgumentError, match=r"func must return .* at t = "):
        fdeint(lambda t, y: wrong, STARTS, TIMES, order=0.7, batched=True)


def test_lists_of_numbers():
    found = fdeint(lambda t, y: -y, [1.0, 2.0], [0, 1], order=0.5, batched=True)
    assert torch.allclose(found[:, 1], 2.0 * found[:, 0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y0": (STARTS, STARTS[:3])}, r"y0 must be a tensor .*got shapes \(7, 2\), \(3, 2\); give each tensor"),
        ({"y0": (STARTS, "a")}, r"y0 must be a tensor .*got shapes \(7, 2\), \(\)"),
        ({"y0": ()}, r"y0 must be a tensor .*got an empty tuple"),
        ({"y0": (STARTS, STARTS), "func": lambda t, y: y[0]}, "func must return a tuple of 2 tensors"),
        ({"y0": torch.tensor(1.0)}, "y0 must be a tensor"),
        ({"y0": 1.0}, "y0 must be a tensor"),
        ({"y0": torch.ones(3, 0)}, r"y0 must be a tensor .*got shapes \(3, 0\)"),
        ({"y0": STARTS.half()}, "y0 must be float32 or float64"),
        ({"t": [[0.0, 1.0], [0.0, 1.0, 2.0]]}, "t must "),
        ({"t": ROWS[None]}, r"t must hold times \[T\] for all samples"),
        ({"order": torch.tensor([0.5, 0.6])}, "order must be one number or one for each of the 7 samples"),
        ({"t": ROWS[:3]}, r"t must hold times \[T\] for all samples, or a row for each of the 7"),
        ({"t": ROWS.flip(1)}, r"t\[0\] must increase strictly"),
        ({"method": "adams"}, "batched=True must go with the default method"),
        ({"n_steps": 10}, "batched=True must go with the default method"),
        ({"options": {"breakpoints": [0.5, 0.2]}}, "breakpoints must increase strictly"),
        ({"options": {"corrections": 2}}, "batched=True must go with .*got corrections"),
        ({"options": {"failures": "ignore"}}, "failures must be one of 'raise', 'nan', got 'ignore'"),
        ({"rtol": torch.tensor([1e-3, 1e-4, 1e-5])}, "rtol must broadcast against the state's shape"),
        ({"batched": "yes"}, "batched must be True or False"),
    ],
)
def test_bad_input(change, message):
    arguments = {"func": func_of(RATES), "y0": STARTS, "t": TIMES, "order": ORDERS, "batched": True} | change
    with pytest.raises((InvalidArgumentError, TypeError), match=message):
        fdeint(**arguments)


def test_a_start_of_nan_is_refused():
    starts = STARTS.clone()
    starts[2, 0] = math.nan
    with pytest.raises(InvalidArgumentError, match="y0 must be finite"):
        fdeint(func_of(RATES), starts, TIMES, order=ORDERS, batched=True)


def pairs_of(rates):
    """The same as a tuple of two tensors of different shapes, with a third component."""

    def func(t, y):
        own = rates.reshape(-1, *[1] * (y[0].dim() - 1))
        first = torch.stack([-rates * y[0][:, 0] + 0.3 * y[0][:, 1], -0.5 * y[0][:, 1] ** 2 + torch.sin(t)], dim=1)
        return first, 1e6 * y[0][:, :1, None] - own[..., None] * y[1]

    return func


@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_a_tuple_of_tensors_of_very_different_size(dtype):
    starts = STARTS.to(dtype), (1e6 * STARTS[:, :1, None]).to(dtype)
    rates = RATES.to(dtype).requires_grad_()
    rtol, loss = 1e-7 if dtype == F64 else 1e-4, torch.tensor([1.0, 2.0, 3.0])
    found = fdeint(pairs_of(rates), starts, TIMES.to(dtype), order=ORDERS, rtol=rtol, batched=True)
    assert [tuple(part.shape) for part in found] == [(4, SIZE, 2), (4, SIZE, 1, 1)]
    last = fdeint(pairs_of(rates), starts, TIMES.to(dtype), order=ORDERS, rtol=rtol, batched=True, trajectory=False)
    for whole, end in zip(found, last, strict=True):
        torch.testing.assert_close(whole[-1], end, rtol=3 * rtol, atol=0.0)
    (gradient,) = torch.autograd.grad((torch.cat([found[0], found[1][..., 0]], 2) * loss.to(dtype)).sum(), rates)
    for sample in (0, 6):
        rate = RATES[sample : sample + 1].clone().requires_grad_()
        own = tuple(part[sample : sample + 1].double() for part in starts)
        alone = fdeint(pairs_of(rate), own, TIMES, order=ORDERS[sample], rtol=rtol / 100, atol=0.0)
        for mine, right in zip(found, alone, strict=True):
            torch.testing.assert_close(mine[:, sample].double(), right[:, 0], rtol=3 * rtol, atol=0.0)
        (exact,) = torch.autograd.grad((torch.cat([alone[0], alone[1][..., 0]], 2) * loss).sum(), rate)
        torch.testing.assert_close(gradient[sample].double(), exact[0], rtol=30 * rtol, atol=0.0)


def test_vmap_takes_tuples_and_pairs():
    def solve(rate, start):
        return fdeint(lambda t, y: (-rate * y[0], y[0] - y[1]), (start, 2.0 * start), [0.0, 1.0], order=0.7)

    found = torch.func.vmap(solve)(RATES, STARTS)
    for part, alone in zip(found, solve(RATES[2], STARTS[2]), strict=True):
        assert torch.allclose(part[2], alone, rtol=1e-4)
    rest = torch.zeros(2, dtype=F64)
    thrown = torch.func.vmap(lambda y0: fdeint(lambda t, y: -y, (y0, rest), [0.0, 1.0], order=1.5))(STARTS)
    assert torch.allclose(thrown[2], fdeint(lambda t, y: -y, (STARTS[2], rest), [0.0, 1.0], order=1.5), rtol=1e-4)


def switched(rates):
    """An input of 2 up to t = 0.7, and a pulse from 1.2 to 1.21."""
    return lambda t, y: (2.0 * (t <= 0.7) + 100.0 * ((t > 1.2) & (t < 1.21)))[..., None] - rates[..., None] * y


def test_the_derivative_by_a_time_at_a_breakpoint():
    """Panels end there, but not because of that time."""
    times = torch.tensor([0.0, 0.3, 1.0], dtype=F64, requires_grad=True)
    options = {"order": 0.7, "rtol": 1e-9, "options": {"breakpoints": [0.3]}}
    whole, alone = (
        fdeint(lambda t, y: 1.0 - y, torch.full((1, 1), 2.0, dtype=F64), times, batched=batched, **options)
        for batched in (True, False)
    )
    found, expected = (torch.autograd.grad(states[1].sum(), times)[0] for states in (whole, alone))
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-12)
    assert abs(found[1]) > 0.1


@pytest.mark.parametrize(
    ("own_times", "dtype", "wants_gradient"),
    slow_but(
        [(False, F64, True), (True, torch.float32, False)],
        product([False, True], [F64, torch.float32], [False, True]),
    ),
)
def test_breakpoints(own_times, dtype, wants_gradient):
    """Some are before the start of some samples."""
    t = TIMES + 0.2 * torch.arange(SIZE, dtype=F64)[:, None] if own_times else TIMES
    options, rtol = {"breakpoints": [0.7, 1.2, 1.21, 9.0]}, 1e-8 if dtype == F64 else 1e-5
    with torch.set_grad_enabled(wants_gradient):
        found = fdeint(
            switched(RATES.to(dtype)),
            STARTS.to(dtype),
            t,
            order=ORDERS,
            rtol=rtol,
            batched=True,
            options=options,
            info=True,
        )
    assert found.grid.isfinite().all(1).sum() >= SIZE - 2  # few had to be solved alone
    times = t if t.dim() == 2 else t.expand(SIZE, -1)
    for sample in (0, 6):
        alone = fdeint(
            switched(RATES[sample]),
            STARTS[sample],
            times[sample],
            order=ORDERS[sample],
            rtol=rtol / 100,
            atol=rtol / 10_000,
            options=options,
        )
        torch.testing.assert_close(found.states[:, sample].double(), alone, rtol=5 * rtol, atol=1e-8)


def test_a_breakpoint_is_learned():
    off = torch.tensor([0.7], dtype=F64, requires_grad=True)

    def gradient(**options):
        func = lambda t, y: 2.0 * (t < off) - RATES * y  # noqa: E731
        options |= {"order": 0.7, "rtol": 1e-9, "options": {"breakpoints": off}}
        return torch.autograd.grad(fdeint(func, STARTS[:, 0], [0.0, 2.0], **options)[-1].sum(), off)[0]

    torch.testing.assert_close(gradient(batched=True), gradient(), rtol=1e-6, atol=0.0)


@pytest.mark.slow
def test_hard_samples_side_by_side():
    """Components 1e6 apart, stiff, failing, of order 1, jumping, with a singular start, each with its own times."""
    orders = torch.tensor([0.6, 0.8, 0.9, 1.0, 0.7, 0.5, 0.9], dtype=F64)
    times = torch.stack([k + (1.0 + k) * torch.tensor([0.0, 0.2, 1.0], dtype=F64) for k in range(SIZE)])
    scale = torch.tensor([1e6, 1.0], dtype=F64)
    rates = torch.tensor([1.0, 1e6, 1.0, 2.0, 1.0, 0.5, 1e-3], dtype=F64)
    fails, jumps, steep = (torch.arange(SIZE) == number for number in (2, 4, 5))

    def func(t, y, rates=rates, fails=fails, jumps=jumps, steep=steep, begin=times[:, 0]):
        y = y / scale
        slope = -rates[..., None] * y
        slope = torch.where(fails[..., None], 9.0 * y**2, slope)
        slope = slope + (1.0 * (jumps & (t > begin + 0.777)))[..., None]
        later = torch.where(steep, t - begin, 1.0).clip(min=1e-300)
        return scale * (slope + torch.where(steep, later**-0.3, 0.0)[..., None])

    others, leaf = [0, 1, 3, 4, 5, 6], rates.clone().requires_grad_()
    options = {"rtol": 1e-5, "atol": 1e-11, "options": {"failures": "nan"}}
    solution = fdeint(
        lambda t, y: func(t, y, leaf), scale.expand(SIZE, 2), times, order=orders, batched=True, info=True, **options
    )
    assert [status is Status.SOLVED for status in solution.status] == [number in others for number in range(SIZE)]
    assert solution.states[1:, 2].isnan().all()
    (gradient,) = torch.autograd.grad(solution.states[:, others].sum(), leaf)
    assert gradient[2] == 0.0
    for sample in others:
        rate = rates[sample].clone().requires_grad_()
        own = fails[sample], jumps[sample], steep[sample], times[sample, 0]
        jump = [float(times[sample, 0]) + 0.777] if sample == 4 else []
        options = {"rtol": 1e-7, "atol": 1e-13, "options": {"breakpoints": jump}}
        solve = lambda t, y, rate=rate, own=own: func(t, y, rate, *own)  # noqa: E731
        alone = fdeint(solve, scale, times[sample], order=orders[sample], **options)
        torch.testing.assert_close(solution.states[:, sample], alone, rtol=5e-5, atol=1e-10)
        right = torch.autograd.grad(alone.sum(), rate)[0]
        torch.testing.assert_close(gradient[sample], right, rtol=1e-3, atol=1e-8)
