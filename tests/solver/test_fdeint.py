import math

import numpy as np
import pytest
import torch

import fracdnn
from fracdnn.caputo import mittag_leffler
from fracdnn.solver import (
    Given,
    fdeint,
    fdeint_delay,
    fdeint_event,
    fdeint_mass,
    fdeint_tempered,
    graded_mesh,
)
from fracdnn.solver.grids import is_uniform
from tests.solver.calls import grouped


def on_grid(func, y0, t, **options):
    """The paper's scheme, with the times themselves as the grid."""
    return fdeint(func, y0, t, method="l1", grid=Given(), **grouped(**options))


STEPS = (40, 80, 160, 320)
ALL = ("adams", "collocation", "euler", "l1", "l1-implicit", "pece", "trapezoidal")


def decay(t, u):
    return -u


def convergence(order, grading, exact_of, func, initial):
    errors = []
    for n in STEPS:
        t = graded_mesh(1.0, n, grading)
        u = on_grid(func, torch.tensor(initial, dtype=torch.float64), t, order=order)
        errors.append(abs(float(u[-1]) - exact_of(1.0)))
    return -np.polyfit(np.log(STEPS), np.log(errors), 1)[0]


@pytest.mark.parametrize("order", [0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("grading", [1.0, 2.0])
def test_first_order_for_a_solution_like_t_to_the_order(order, grading):
    rate = convergence(order, grading, lambda t: mittag_leffler(-(t**order), order), decay, 1.0)
    assert abs(rate - 1) < 0.15


@pytest.mark.parametrize("order", [0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("grading", [1.0, 2.0])
def test_first_order_for_a_smooth_solution(order, grading):
    def func(t, u):
        return 2 / math.gamma(3 - order) * t ** (2 - order) + t**2 - u

    assert abs(convergence(order, grading, lambda t: t**2, func, 0.0) - 1) < 0.15


@pytest.mark.parametrize("order", [0.2, 0.7, 1.0])
def test_a_constant_field_gives_t_to_the_order(order):
    errors = []
    for n in STEPS:
        t = graded_mesh(2.0, n)
        u = on_grid(lambda t, u: torch.ones_like(u), torch.tensor(0.5, dtype=torch.float64), t, order=order)
        errors.append(abs(float(u[-1]) - (0.5 + 2.0**order / math.gamma(1 + order))))
    assert errors[-1] < 2e-3
    assert errors[-1] <= errors[0] + 1e-13


def test_the_papers_example():
    t = graded_mesh(1.0, 200)
    u = on_grid(lambda t, u: -4 * u, torch.tensor(0.5, dtype=torch.float64), t, order=0.5)
    exact = 0.5 * mittag_leffler(-4 * t.numpy() ** 0.5, 0.5)
    assert abs(float(u[-1]) - exact[-1]) < 2.5e-4


def test_order_one_is_eulers_method():
    t = torch.tensor([0.0, 0.1, 0.4, 0.5], dtype=torch.float64)
    u = on_grid(lambda t, u: t - u, torch.ones(2, dtype=torch.float64), t, order=1.0)
    y = torch.ones(2, dtype=torch.float64)
    for start, step in zip(t, t.diff(), strict=False):
        y = y + step * (start - y)
    torch.testing.assert_close(u[-1], y, rtol=1e-14, atol=1e-14)


def test_equal_steps_given_as_times_agree_with_the_unequal_formula():
    t = torch.linspace(0, 1, 31, dtype=torch.float64)
    y0 = torch.tensor([1.0, 2.0], dtype=torch.float64)
    equal = on_grid(decay, y0, t, order=0.4)
    unequal = on_grid(decay, y0, t.clone().requires_grad_(), order=0.4)
    torch.testing.assert_close(equal, unequal.detach(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_shape_follow_the_initial_state(dtype):
    t = torch.linspace(0, 1, 11, dtype=dtype)
    u = on_grid(decay, torch.ones(3, 2, dtype=dtype), t, order=0.5)
    assert u.dtype == dtype
    assert u.shape == (11, 3, 2)
    exact = on_grid(decay, torch.ones(3, 2, dtype=torch.float64), np.linspace(0, 1, 11), order=0.5)
    torch.testing.assert_close(u.double(), exact, rtol=1e-5, atol=1e-5)


def test_gradients_with_respect_to_everything():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(2, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    y0 = torch.randn(3, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    order = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    t = torch.tensor([0.0, 0.1, 0.3, 0.35], dtype=torch.float64, requires_grad=True)

    def solve(weight, y0, order, t):
        return on_grid(lambda s, u: torch.tanh(u @ weight) * s.cos(), y0, t, order=order)

    assert torch.autograd.gradcheck(solve, (weight, y0, order, t))


def test_graded_mesh():
    mesh = graded_mesh(2.0, 4, 2.0)
    torch.testing.assert_close(mesh, torch.tensor([0, 0.125, 0.5, 1.125, 2], dtype=torch.float64))
    assert fracdnn.graded_mesh is graded_mesh
    assert fracdnn.fdeint is fdeint


def test_graded_mesh_mends_the_error_next_to_zero():
    """With grading 1/order the largest error over all times is of first order; on a uniform grid it is not."""
    errors = {1.0: [], 2.0: []}
    for grading, found in errors.items():
        for n in STEPS:
            t = graded_mesh(1.0, n, grading)
            u = on_grid(decay, torch.tensor(1.0, dtype=torch.float64), t, order=0.5)
            found.append(np.abs(u.numpy() - mittag_leffler(-(t.numpy() ** 0.5), 0.5)).max())
    rates = {grading: -np.polyfit(np.log(STEPS), np.log(found), 1)[0] for grading, found in errors.items()}
    assert abs(rates[2.0] - 1) < 0.15
    assert rates[1.0] < 0.5


@pytest.mark.parametrize("steps", [torch.linspace(0, 1, 9).tolist(), [0.0, 0.1, 0.3, 0.4, 0.8, 1.0]])
def test_a_later_start_and_the_clock(steps):
    """Only differences of times matter to the memory, while func sees the times as given."""
    t = torch.tensor(steps, dtype=torch.float64)
    y0 = torch.tensor(1.0, dtype=torch.float64)
    early = on_grid(lambda s, u: torch.cos(s + 3.0) - u, y0, t, order=0.4)
    late = on_grid(lambda s, u: torch.cos(s) - u, y0, t + 3.0, order=0.4)
    torch.testing.assert_close(early, late, rtol=1e-12, atol=1e-12)


def test_times_in_single_precision_count_as_equal_steps():
    single = torch.linspace(0, 1, 201, dtype=torch.float32)
    y0 = torch.tensor(1.0, dtype=torch.float64)
    expected = on_grid(decay, y0, torch.linspace(0, 1, 201, dtype=torch.float64), order=0.5)
    torch.testing.assert_close(on_grid(decay, y0, single, order=0.5), expected, rtol=1e-7, atol=0)
    assert on_grid(decay, y0, single, order=0.5, compress=True).shape == (201,)


def test_gradient_of_the_order_at_order_one():
    """Where all far weights are 0, but not their derivative."""
    t, y0 = torch.linspace(0, 1, 101, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    order = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    exact, compressed = (
        torch.autograd.grad(fdeint(decay, y0, t, order=order, options={"compress": compress})[-1].sum(), order)[0]
        for compress in (False, True)
    )
    torch.testing.assert_close(compressed, exact, rtol=1e-8, atol=0)


def test_gradient_of_the_times_on_an_equal_grid():
    y0 = torch.tensor(1.0, dtype=torch.float64)
    t = torch.linspace(0, 1, 5, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: on_grid(decay, y0, t, order=0.5), t)


def test_derivatives_of_the_papers_example_with_respect_to_rate_and_order():
    """Limits 0.0161918 and −0.082304, approached with first order."""
    found = []
    for n in (400, 800):
        rate = torch.tensor(-4.0, dtype=torch.float64, requires_grad=True)
        order = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        y0 = torch.tensor(0.5, dtype=torch.float64)
        u = on_grid(lambda t, u, rate=rate: rate * u, y0, graded_mesh(1.0, n), order=order)
        found.append(torch.stack(torch.autograd.grad(u[-1], (rate, order))))
    extrapolated = 2 * found[1] - found[0]
    expected = torch.tensor([0.0161918, -0.082304], dtype=torch.float64)
    torch.testing.assert_close(extrapolated, expected, rtol=2e-4, atol=0)
    assert (found[1] - expected).abs().max() < 3e-4


@pytest.mark.parametrize("n", [100, 1000])
def test_compressed_history_agrees_with_exact(n):
    y0, t = torch.tensor([1.0, 0.5], dtype=torch.float64), graded_mesh(1.0, n)
    results = []
    for compress in (False, True):
        order = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
        u = on_grid(decay, y0, t, order=order, compress=compress)
        results.append((u.detach(), *torch.autograd.grad(u.sum(), order)))
    for exact, compressed in zip(*results, strict=True):
        torch.testing.assert_close(compressed, exact, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("compress", [False, True])
def test_the_last_time_alone(compress, dtype):
    """The same value and gradients as the end of the trajectory, for small states and for those of compiled sums."""
    for size in (3, 3000):
        y0 = torch.linspace(-1, 1, size, dtype=dtype, requires_grad=True)
        rate = torch.tensor(-0.7, dtype=dtype, requires_grad=True)
        found = []
        for trajectory in (True, False):
            u = on_grid(
                lambda t, u, rate=rate: rate * u,
                y0,
                graded_mesh(1.0, 90),
                order=0.4,
                compress=compress,
                trajectory=trajectory,
            )
            end = u[-1] if trajectory else u
            assert end.shape == y0.shape
            found.append([end, *torch.autograd.grad(end.square().sum(), (y0, rate))])
        for mine, theirs in zip(*found, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-12 if dtype == torch.float64 else 1e-5, atol=0)


@pytest.mark.slow
def test_very_many_steps_of_a_number():
    """In O(steps) work; first order still at 40,000 steps, and the gradient with it."""
    rate = torch.tensor(-4.0, dtype=torch.float64, requires_grad=True)
    errors = []
    for n in (20_000, 40_000):
        t = torch.linspace(0, 1, n + 1, dtype=torch.float64)
        u = on_grid(lambda t, u: rate * u, torch.tensor(0.5, dtype=torch.float64), t, order=0.5, trajectory=False)
        (slope,) = torch.autograd.grad(u, rate)
        erfcx = float(mittag_leffler(-4.0, 0.5))  # u = 0.5 erfcx(4); its derivative by the rate
        errors.append((abs(u.item() / (0.5 * erfcx) - 1), abs(slope.item() / (math.pi**-0.5 - 4 * erfcx) - 1)))
    for coarse, fine in zip(*errors, strict=True):
        assert 1.9 < coarse / fine < 2.1
        assert fine < 2e-5


@pytest.mark.parametrize("compress", ["auto", False])
def test_forward_mode_sees_the_times_of_an_equal_grid(compress):
    """Derivatives by a time of an equal grid: nobody may take its steps for constants."""
    t, direction = torch.linspace(0, 1, 11, dtype=torch.float64), torch.zeros(11, dtype=torch.float64)
    direction[5] = 1.0

    def end(t):
        y0 = torch.ones(1, dtype=torch.float64)
        return on_grid(decay, y0, t, order=0.5, trajectory=False, compress=compress).sum()

    leaf = t.clone().requires_grad_()
    expected = torch.autograd.grad(end(leaf), leaf)[0][5]
    assert abs(float(expected)) > 1e-5
    torch.testing.assert_close(torch.func.jvp(end, (t,), (direction,))[1], expected)
    torch.testing.assert_close(torch.func.jacfwd(end)(t)[5], expected)
    with torch.autograd.forward_ad.dual_level():
        dual = end(torch.autograd.forward_ad.make_dual(t, direction))
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(dual).tangent, expected)


@pytest.mark.parametrize(
    "t",
    [
        45000 + torch.tensor([0, 1, 2, 12, 13, 23, 24, 34.0]) / 256,
        1.7e9 + torch.tensor([0, 1, 3, 4, 5, 11, 12], dtype=torch.float64) * 2.0**-21,
    ],
    ids=["single precision", "unix time"],
)
def test_unequal_steps_at_late_times_are_not_taken_for_equal(t):
    """Both grids are exact in their dtype; shifted to 0 they must give the same."""
    y0, scale = torch.ones(1, dtype=torch.float64), 1.0 / float(t[-1] - t[0])
    early = (t.double() - t[0].double()) * scale

    def late(time, u):
        return -(scale**0.5) * u

    expected = on_grid(decay, y0, early, order=0.5, trajectory=False)
    torch.testing.assert_close(on_grid(late, y0, t, order=0.5, trajectory=False), expected, rtol=1e-9, atol=0)


def test_equal_steps_up_to_rounding_are_equal():
    """Else a long grid in single precision would take all pairs of its times."""
    y0 = torch.ones(1)
    for t in (torch.linspace(0, 1, 100_001), torch.arange(1000) * 0.1, torch.linspace(5, 6, 2001, dtype=torch.float64)):
        assert is_uniform(t.double(), t.dtype)
    assert on_grid(decay, y0, torch.linspace(0, 1, 5_001), order=0.5, trajectory=False).shape == (1,)


def test_func_gets_the_times_in_their_own_dtype():
    t = 1.7e9 + torch.arange(20, dtype=torch.float64)
    seen = []

    def slope(time, u):
        seen.append(time)
        return torch.sin(time - 1.7e9) * torch.ones_like(u)

    single, double = (on_grid(slope, torch.zeros(1, dtype=d), t, order=0.5) for d in (torch.float32, torch.float64))
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5)
    assert torch.equal(torch.stack(seen[:19]), t[:-1])


@pytest.mark.slow  # `test_torch.py` compiles and maps solves, too
def test_compiled_and_batched_solves():
    t = torch.linspace(0, 1, 4, dtype=torch.float64)

    def solve(y0, t):
        return on_grid(decay, y0, t, order=0.5)

    y0 = torch.ones(2, dtype=torch.float64)
    expected = solve(y0, t)
    torch._dynamo.reset()
    compiled = torch.compile(solve, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(y0, t), expected, rtol=1e-9, atol=1e-9)
    several = torch.stack([t, 2 * t])
    batched = torch.func.vmap(solve, in_dims=(None, 0))(y0, several)
    torch.testing.assert_close(batched[1], solve(y0, 2 * t), rtol=1e-9, atol=1e-9)


def test_the_first_state_that_func_sees_carries_the_whole_gradient():
    seen = []

    def slope(t, u):
        seen.append(u)
        return -u * u

    y0 = torch.full((1,), 0.7, dtype=torch.float64, requires_grad=True)
    u = on_grid(slope, y0, torch.linspace(0, 1, 30), order=0.5, trajectory=False)
    first, start = torch.autograd.grad(u.sum(), [seen[0], y0])
    torch.testing.assert_close(first, start)


@pytest.mark.parametrize("way", [{"n_steps": 40, "method": "trapezoidal"}, {}])
@pytest.mark.parametrize("components", [8, 9])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_implicit_methods_take_states_of_any_size(way, components, checkpoint):
    """Jacobians come row by row up to 8 components, all rows at once beyond."""
    rates = torch.linspace(0.5, 2.0, components, dtype=torch.float64, requires_grad=True)
    y0 = torch.ones(components, dtype=torch.float64)
    u = fdeint(
        lambda t, u: -rates * u, y0, [0.0, 1.0], order=0.6, trajectory=False, **grouped(checkpoint=checkpoint, **way)
    )
    exact = mittag_leffler(-rates, 0.6)
    torch.testing.assert_close(u, exact, rtol=5e-3, atol=0)
    found, expected = (torch.autograd.grad(each.sum(), rates)[0] for each in (u, exact))
    torch.testing.assert_close(found, expected, rtol=5e-2, atol=0)


@pytest.mark.parametrize("shape", [(0,), (0, 3)])
@pytest.mark.parametrize("way", [{}, *({"method": name, "n_steps": 5} for name in ALL)])
def test_a_batch_of_nothing(shape, way):
    y0 = torch.zeros(shape, dtype=torch.float64)
    assert fdeint(decay, y0, [0.0, 0.5, 1.0], order=0.5, **grouped(**way)).shape == (3, *shape)


@pytest.mark.parametrize("method", ALL)
def test_a_batch_of_nothing_has_no_gradient_by_order(method):
    y0 = torch.zeros((0, 3), dtype=torch.float64)
    order = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    u = fdeint(decay, y0, [0.0, 1.0], order=order, method=method, n_steps=5)
    assert torch.autograd.grad(u.sum(), order)[0] == 0


@pytest.mark.parametrize("y0", [[1.0, 2.0], np.array([1, 2]), np.array([1.0, 2.0], dtype=np.float32)])
def test_numbers_lists_and_arrays_as_state(y0):
    """All are float64 tensors to func; a tuple of them is a tuple of states, or value and slope."""
    expected = fdeint(decay, torch.tensor([1.0, 2.0], dtype=torch.float64), [0.0, 1.0], order=0.5, n_steps=4)
    torch.testing.assert_close(fdeint(decay, y0, [0.0, 1.0], order=0.5, n_steps=4), expected)
    number = fdeint(decay, 1, [0.0, 1.0], order=0.5, n_steps=4)
    torch.testing.assert_close(number, expected[:, 0])
    both = fdeint(lambda t, u: (-u[0], -u[1]), (1.0, y0), [0.0, 1.0], order=0.5, n_steps=4)
    torch.testing.assert_close(both, (number, expected))


@pytest.mark.parametrize("options", [{}, {"n_steps": 8}, {"n_steps": 8, "method": "trapezoidal"}])
def test_a_slope_is_that_of_a_pair(options):
    value, slope = torch.tensor([1.0, -1.0], dtype=torch.float64), torch.tensor([0.5, 2.0], dtype=torch.float64)
    paired = fdeint(decay, (value, slope), [0.0, 1.0], order=1.5, **grouped(**options))
    torch.testing.assert_close(fdeint(decay, value, [0.0, 1.0], order=1.5, **grouped(slope=slope, **options)), paired)
    tuples = fdeint(
        lambda t, u: (-u[0], -u[1]),
        (value, value),
        [0.0, 1.0],
        order=(0.5, 1.5),
        **grouped(slope=(slope, slope), **options),
    )
    torch.testing.assert_close(tuples[1], paired, rtol=1e-5, atol=1e-6)
    rest = fdeint(decay, value, [0.0, 1.0], order=1.5, **grouped(slope=0.0, **options))
    torch.testing.assert_close(fdeint(decay, (value, 0 * slope), [0.0, 1.0], order=1.5, **grouped(**options)), rest)


def test_a_learned_order_crosses_one():
    """With `slope` a state means the same on both sides, and the solution from rest has one limit there."""
    values = []
    for order in (1.0 - 1e-9, 1.0, 1.0 + 1e-9):
        learned = torch.tensor(order, dtype=torch.float64, requires_grad=True)
        u = fdeint(decay, 1.0, [0.0, 1.0], order=learned, rtol=1e-9, atol=1e-11, options={"slope": 0.0})[-1]
        values.append((u.item(), torch.autograd.grad(u, learned)[0].item()))
    for value, gradient in values:
        assert value == pytest.approx(math.exp(-1.0), rel=1e-7)
        assert gradient == pytest.approx(values[1][1], rel=1e-5)
    below = fdeint(decay, 1.0, [0.0, 1.0], order=0.5, options={"slope": 7.0})
    torch.testing.assert_close(below, fdeint(decay, 1.0, [0.0, 1.0], order=0.5))


def test_the_dtype_of_the_time_that_func_sees():
    for t, dtype in (
        ([0.0, 1.0], torch.float32),
        (torch.tensor([0, 1]), torch.float32),
        (torch.tensor([0.0, 1.0]), torch.float32),
        (torch.tensor([0.0, 1.0], dtype=torch.float64), torch.float64),
    ):
        seen = []

        def func(t, u):
            seen.append(t.dtype)  # noqa: B023
            return -u

        fdeint(func, torch.ones(1), t, order=0.5)
        fdeint(func, torch.ones(1), t, order=0.5, n_steps=3)
        fdeint(func, torch.ones(2, 1), t, order=0.5, batched=True)
        fdeint(func, torch.ones(2, 1), t, order=0.5, batched=True, options={"breakpoints": [0.5]})
        torch.func.vmap(lambda y0: fdeint(func, y0, t, order=0.5))(torch.ones(2, 1))  # noqa: B023
        fdeint_delay(lambda t, u, past: func(t, u), torch.ones(1), t, order=0.5, delays=(0.3,))
        fdeint_mass(func, torch.ones(1), t, order=0.5, mass=torch.eye(1))
        fdeint_tempered(func, torch.ones(1), t, order=0.5, tempering=0.1)
        assert set(seen) == {dtype}


@pytest.mark.parametrize("options", [{}, {"n_steps": 8}, {"batched": True}], ids=str)
def test_the_dtype_of_the_time_that_an_event_sees(options):
    for t0, dtype in (
        (0.0, torch.float32),
        (torch.tensor(0), torch.float32),
        (torch.tensor(0.0), torch.float32),
        (torch.tensor(0.0, dtype=torch.float64), torch.float64),
    ):
        seen, y0 = [], torch.ones(2, 1) if "batched" in options else torch.ones(1)

        def note(t, u):
            seen.append(t.dtype)  # noqa: B023
            return u

        time, _ = fdeint_event(
            lambda t, u: -note(t, u),
            y0,
            t0,
            event_fn=lambda t, u: note(t, u).reshape(len(u)) - 0.5,
            t1=torch.tensor(3.0, dtype=torch.float64),
            order=0.8,
            **options,
        )
        assert set(seen) == {dtype}
        assert time.dtype == torch.float64


def test_a_late_sample_that_is_solved_alone_keeps_its_times():
    """In float32, which func sees, the times of the first sample would be one."""
    t = [[1e6, 1e6 + 1e-2, 1e6 + 2e-2], [0.0, 1.0, 2.0]]
    found = fdeint(lambda t, u: -u, torch.ones(2, 1), t, order=0.7, batched=True)
    for row, own in zip(found.unbind(1), t, strict=True):
        expected = mittag_leffler(-((torch.tensor(own, dtype=torch.float64) - own[0]) ** 0.7), 0.7)
        torch.testing.assert_close(row[:, 0].double(), expected, rtol=1e-4, atol=1e-6)
