"""What a solve refuses, in a solver's words: the argument or the time, the rule, the value, the remedy."""

import math
import re

import pytest
import torch

from fracdnn.exceptions import (
    InvalidArgumentError,
    InvalidTypeError,
    NotConvergedError,
    NotFiniteError,
    StateChangedError,
)
from fracdnn.solver import Adaptive, Given, Graded, MultiTerm, Uniform, fdeint
from tests.solver.calls import grouped

Y0 = torch.ones(2, dtype=torch.float64)
T = torch.linspace(0, 1, 5, dtype=torch.float64)


def decay(t, y):
    return -y


def broken(t, y):
    """NaN in the second component, after t = 0.5."""
    return torch.where((t > 0.5) & (torch.arange(2) == 1), math.nan, -y)


def rootless(t, y):
    return 10 + y * y


def solve(func=decay, y0=Y0, t=T, order=0.5, **options):
    return fdeint(func, y0, t, order=order, **grouped(**options))


ARGUMENTS = [
    (lambda: solve(order=0), "order must lie in (0, 2], got 0.0; order=1 is an ordinary differential equation"),
    (lambda: solve(order=2.5), "order must lie in (0, 2], got 2.5; order=1 is an ordinary differential equation"),
    (lambda: solve(order=torch.tensor(1)), "order must be a floating-point tensor in (0, 2], got dtype torch.int64"),
    (lambda: solve(order=math.nan), "order must lie in (0, 2], got nan"),
    (lambda: solve(order=torch.tensor([0.5, -1.0])), "order must lie in (0, 2], got -1.0"),
    (lambda: solve(y0=(Y0, Y0), order=(0.5, 2.5)), "order[1] must lie in (0, 2], got 2.5"),
    (
        lambda: solve(order=torch.tensor([0.5] * 3)),
        "order must broadcast against the state's shape (2,), got shape (3,)",
    ),
    (
        lambda: solve(y0=(Y0, Y0), order=torch.tensor([0.5] * 2)),
        "a sequence of one for each of its tensors, got a tensor",
    ),
    (
        lambda: solve(y0=(Y0, Y0), order=(0.5,) * 3),
        "got 3 for a tuple of 2 tensors; pass as many orders as y0 has tensors",
    ),
    (lambda: solve(order=[0.5, 0.6, 0.7]), "order must broadcast against the state's shape (2,), got shape (3,)"),
    (
        lambda: solve(order=1.5),
        "y0 must be a pair (value, slope) for an order above 1, got one Tensor; pass (y0, torch.",
    ),
    (lambda: solve(y0=(Y0, Y0, Y0), order=1.5), "for an order above 1, got a tuple of 3 tensors; pass (y0, torch."),
    (
        lambda: solve(y0=(Y0, Y0), order=(0.5, 1.5)),
        "y0 must be a pair of tuples, values and slopes, for several orders",
    ),
    (lambda: solve(y0=(Y0, Y0[:1]), order=1.5), "y0[1], the slope, must have the shape of y0[0], [(2,)], got [(1,)]"),
    (lambda: solve(y0=(Y0, Y0.float()), order=1.5), "must have the dtype of y0[0], torch.float64, got torch.float32"),
    (lambda: solve(y0=(Y0, Y0.float())), "y0 must have one dtype and device, got"),
    (lambda: solve(y0=()), "y0 must hold at least one tensor, got an empty tuple; pass a tensor"),
    (lambda: solve(t=[0.0, 1.0, 0.5]), "t must increase strictly, got t[1] = 1.0 and t[2] = 0.5; sort the times"),
    (lambda: solve(t=[0.0, 1.0, 1.0]), "t must increase strictly, got t[1] = 1.0 and t[2] = 1.0; sort the times"),
    (lambda: solve(rtol=0), "rtol must be positive and finite, got 0; 1e-5 is usual"),
    (lambda: solve(atol=-1e-8), "atol must be positive and finite, got -1e-08; 1e-8 is usual"),
    (lambda: solve(rtol=1e-3, n_steps=3), "rtol must not be given for grid=Uniform(n=3), got 0.001; leave it out, or"),
    (
        lambda: solve(atol=1e-3, grid=Given()),
        "atol must not be given for grid=Given(), got 0.001; leave it out, or pass",
    ),
    (lambda: solve(compress_tol=0.0), "compress_tol must be positive and finite, got 0.0"),
    (
        lambda: solve(n_steps=3, grid=Graded(4)),
        "n_steps must not be given together with grid, got n_steps=3 and grid=Graded(n=4, power=None); leave out one: "
        "n_steps=3 is short for grid=Uniform(3)",
    ),
    (lambda: Graded(4, 0.5), "power must be at least 1, got 0.5; 1 is uniform, larger is finer near 0"),
    (lambda: Graded(0), "n must be at least 1, got 0"),
    (lambda: Uniform(0), "n must be at least 1, got 0"),
    (lambda: solve(n_steps=0), "n_steps must be at least 1, got 0"),
    (lambda: Adaptive(rtol=0.0), "rtol must be positive and finite, got 0.0; 1e-5 is usual"),
    (lambda: solve(options={"step_size": 0.1}), "got 'step_size'; pass n_steps=, the number of equal steps from t[0]"),
    (lambda: solve(options={"max_step": 0.1}), "got 'max_step'; pass grid=Adaptive(max_step=…), from fracdnn.solver"),
    (lambda: solve(options={"grid": "given"}), "options must be a dict of breakpoints, slope, "),
    (lambda: solve(options={"grid": "given"}), "failures, got 'grid'; correct its names"),
    (lambda: solve(options=[1]), "got [1]; correct its names"),
    (lambda: solve(corrections=0), "corrections must be at least 1, got 0"),
    (
        lambda: solve(corrections=3),
        "corrections must be 1 for method 'collocation', which corrects no prediction, got 3; leave it out, or pass",
    ),
    (lambda: solve(rtol=torch.tensor([1e-3, 0.0])), "rtol must hold positive numbers, got tensor"),
    (lambda: solve(rtol=torch.ones(3)), "rtol must broadcast against the state's shape (2,), got shape (3,)"),
    (lambda: solve(atol=(1e-3, 1e-3)), "atol must hold one entry for each of the state's 1 tensors, got 2"),
    (
        lambda: solve(y0=(Y0, Y0), order=(0.5, torch.tensor([0.5, 0.6]))),
        "order[1] must be one number, got shape (2,); make each component with an order of its own a tensor",
    ),
    (lambda: solve(order=torch.tensor([])), "order must hold at least one number, got shape (0,); pass one number"),
    (lambda: solve(order=2.1), "and for derivatives above 2 use MultiTerm"),
    (lambda: solve(slope=Y0[:1], order=1.5), "slope must have the shape of y0, [(2,)], got [(1,)]; pass one like"),
    (lambda: solve(slope=Y0.float(), order=1.5), "slope must have the dtype of y0, torch.float64, got torch.float32"),
    (lambda: solve(slope=math.nan, order=1.5), "slope must be finite, got nan"),
    (lambda: solve(y0=[1.0, math.inf]), "y0 must be finite, got inf"),
    (
        lambda: solve(y0=torch.eye(2).to_sparse()),
        "y0 must be a dense tensor with values, got one of the layout torch.sparse_coo; pass y0.to_dense(), or a",
    ),
    (
        lambda: solve(y0=torch.ones(2, device="meta")),
        "y0 must be a dense tensor with values, got one on the device 'meta'",
    ),
    (lambda: solve(y0=[1j, 1.0]), "y0 must be real numbers, got [1j, 1.0]; split them into two components"),
    (lambda: solve(method="best"), "method must be one of 'auto', 'collocation', 'adams', 'euler'"),
    (lambda: solve(method="dopri5"), "'trapezoidal', got 'dopri5'; leave out method=, see the table of methods"),
    (lambda: solve(method="rk4"), "'trapezoidal', got 'rk4'; pass method='adams' and n_steps="),
    (lambda: solve(method="predictor"), "got 'predictor'; pass method='euler' and n_steps="),
    (
        lambda: solve(method="l1"),
        "grid must be Uniform(n), Graded(n) or Given() for method 'l1', got an adaptive one; pass n_steps=",
    ),
    (lambda: solve(y0=(Y0, Y0), order=1.5, method="l1", n_steps=3), "order must not exceed 1 for method 'l1', got 1.5"),
    (lambda: solve(lambda t, y: y[:1]), "func must return a tensor of the state's shape (2,), got (1,) at t = "),
    (lambda: solve(lambda t, y: None), "func must return a tensor of the state's shape (2,), got NoneType at t = "),
    (
        lambda: solve(lambda t, y: y.float()),
        "func must return the state's dtype torch.float64, got torch.float32 at t = ",
    ),
    (
        lambda: solve(lambda t, y: y[0], (Y0, Y0)),
        "func must return a tuple of 2 tensors, as y0 is, got one Tensor at t = ",
    ),
    (lambda: solve(lambda t, y: (y[0], y[1][:1]), (Y0, Y0)), "of the state's shape (2,) in place 1, got (1,) at t = "),
]


@pytest.mark.parametrize(("call", "message"), ARGUMENTS, ids=[message[:60] for _, message in ARGUMENTS])
def test_arguments(call, message):
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        call()


OTHER_NAMES = [
    ({"alpha": 0.5}, r"got alpha=0\.5; the order of the derivative is order="),
    ({"beta": 0.5}, r"got beta=0\.5; the order of the derivative is order="),
    ({"step_size": 0.1}, r"got step_size=0\.1; pass n_steps=, the number of equal steps from t\[0\] to t\[-1\]"),
    ({"h": 0.1}, r"got h=0\.1; pass n_steps="),
    ({"dt": 0.1}, r"got dt=0\.1; pass n_steps="),
    ({"max_step": 0.1}, r"got max_step=0\.1; pass grid=Adaptive\(max_step=…\), from fracdnn.solver"),
    ({"checkpoint": True}, r"got checkpoint=True; it belongs in options, as in options={'checkpoint': …}"),
    ({"colour": 1}, r"fdeint takes func, y0, t and the keywords order, rtol, .* got colour=1; leave it out"),
]


@pytest.mark.parametrize(("keywords", "message"), OTHER_NAMES)
def test_names_of_other_packages_get_ours(keywords, message):
    with pytest.raises(InvalidTypeError, match=message):
        fdeint(decay, Y0, T, **keywords)


def test_func_may_return_lists_and_arrays_and_order_may_be_a_list():
    orders = torch.tensor([0.5, 0.7], dtype=torch.float64)
    ways = ({"n_steps": 8}, {})
    expected = [fdeint(decay, Y0, T, order=orders, **way) for way in ways]
    for func in (
        lambda t, y: [-y[0], -y[1]],
        lambda t, y: (-y).tolist(),
        lambda t, y: -y.detach().numpy(),
    ):
        for way, states in zip(ways, expected, strict=True):
            found = fdeint(func, Y0, T, order=[0.5, 0.7], **way)
            torch.testing.assert_close(found, states, rtol=1e-6, atol=0)
    found = fdeint(lambda t, y: -float(y), 1.0, T, order=0.5, n_steps=8)
    torch.testing.assert_close(found, expected[0][:, 0])
    rate = torch.ones((), dtype=torch.float64, requires_grad=True)
    end = fdeint(lambda t, y: [-rate * y[0], -y[1]], Y0, T, order=[0.5, 0.7], n_steps=8)[-1]
    (slope,) = torch.autograd.grad(end[0], rate)
    assert float(slope) < 0.0


def test_types():
    with pytest.raises(
        InvalidTypeError, match=r"order must be a number or a tensor in \(0, 2\], got 'half' of type str"
    ):
        solve(order="half")
    with pytest.raises(
        InvalidTypeError, match=r"grid must be Adaptive\(…\), Uniform\(n\), .* got 'given'; import them"
    ):
        fdeint(decay, Y0, T, order=0.5, grid="given")
    with pytest.raises(InvalidTypeError, match="y0 must be a torch tensor, a tuple of tensors, or numbers, got str"):
        solve(y0="one")


def test_nan_on_an_adaptive_grid_names_time_and_component():
    message = r"func must return finite numbers, got NaN or infinity at t = 0.5 in y\[1\]; check func there"
    with pytest.raises(NotFiniteError, match=message):
        solve(broken, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", ["adams", "pece", "euler", "trapezoidal", "l1-implicit"])
def test_nan_on_a_fixed_grid_names_time_and_component(method):
    with pytest.raises(NotFiniteError, match=r"got NaN or infinity at t = 0.6 in y\[1\]; check func there"):
        solve(broken, method=method, n_steps=10)


def test_nan_in_panels_and_in_tuples_and_in_the_papers_scheme():
    with pytest.raises(NotFiniteError, match=r"got NaN or infinity at t = 0.50\d* in y\[1\]; check func there"):
        solve(broken, method="collocation", n_steps=10)
    with pytest.raises(NotFiniteError, match=r"got NaN or infinity at t = 0 in y\[1\]\[0, 2\]; check func there"):
        solve(lambda t, y: (y[0], y[1] / torch.tensor([1.0, 2.0, 0.0]) ** 2), (Y0, Y0.new_ones(1, 3)))
    with pytest.raises(NotFiniteError, match=r"got NaN or infinity at t = 0.6 in y\[1\]; check func there"):
        solve(broken, method="l1", n_steps=10)


def test_a_solution_that_becomes_infinite():
    """The solution of u' = u² from 2 ends at t = 0.5."""
    with pytest.raises(NotConvergedError, match=r"shorter than \S*e-15 at t = 0.5 .* may end there"):
        solve(lambda t, y: y * y, 2 * Y0, order=1.0)
    with pytest.raises(
        NotFiniteError,
        match=r"not finite at t = \S* \(step \d+\) in y\[0\]: .* use smaller steps, or the implicit",
    ):
        solve(lambda t, y: y * y, 2 * Y0, order=1.0, n_steps=40)


def test_a_solve_that_takes_too_many_evaluations():
    where = r"max_evaluations = 60 evaluations of func, got no further than t = \S* with \d+ steps, .*; func may "
    remedy = (
        "jump with the state, be random, or vary rapidly throughout: pass larger rtol and atol, or a larger max_eval"
    )
    with pytest.raises(NotConvergedError, match=where + remedy):
        solve(lambda t, y: torch.sin(1e3 * t) - y, max_evaluations=60)
    with pytest.raises(NotConvergedError, match="max_evaluations = 5 evaluations of func, got more on its grid"):
        solve(method="adams", n_steps=10, max_evaluations=5)
    with pytest.raises(InvalidArgumentError, match="max_evaluations must be"):
        solve(max_evaluations=0)
    solve(max_evaluations=100_000)


@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("trapezoidal", "in step 1, at t = 0.333333"),
        ("l1-implicit", "in step 1, at t = 0.333333"),
        ("collocation", "in the panel from t = 0 on"),
    ],
)
def test_an_implicit_step_without_a_solution(method, where):
    with pytest.raises(NotConvergedError, match=f"did not converge {where}: .*; use s.*er .*n_steps"):
        solve(rootless, method=method, n_steps=3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_states_of_few_digits(dtype):
    for method, options in (("collocation", {}), ("trapezoidal", {"n_steps": 4})):
        message = f"y0 must be float32 or float64 for method '{method}', got {dtype}; convert it with .float()"
        with pytest.raises(InvalidArgumentError, match=re.escape(message)):
            solve(y0=Y0.to(dtype), method=method, **options)
    assert solve(y0=Y0.to(dtype), n_steps=4).dtype == dtype


@pytest.mark.parametrize("method", ["adams", "pece", "euler"])
def test_nan_at_a_state_on_the_way(method):
    """A square root goes wrong at a predicted state, where that of the last node still is right."""
    with pytest.raises(NotFiniteError, match=r"func (must|gave).* NaN or infinity"):
        solve(lambda t, y: -5 * y.sqrt(), n_steps=3, method=method, order=0.9)


@pytest.mark.parametrize(
    "options", [{}, {"n_steps": 4}, {"n_steps": 4, "method": "trapezoidal"}, {"n_steps": 4, "method": "l1"}]
)
@pytest.mark.parametrize("learned", [False, True])
def test_a_refused_func_leaves_the_callers_state_alone(options, learned):
    y0 = torch.ones(2, dtype=torch.float64, requires_grad=learned)
    with pytest.raises(StateChangedError, match="must not change the state it is given"):
        solve(lambda t, y: y.mul_(-1), y0=y0, **options)
    assert y0.tolist() == [1.0, 1.0]
    pair = (y0.detach(), torch.zeros(1, dtype=torch.float64))
    with pytest.raises(StateChangedError, match="must not change the state it is given"):
        solve(lambda t, y: (y[0].mul_(-1), y[1]), y0=pair, order=0.5, n_steps=4)
    assert pair[0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "options", [{}, {"n_steps": 4}, {"n_steps": 4, "method": "trapezoidal"}, {"n_steps": 4, "method": "l1"}]
)
def test_a_func_that_writes_into_the_state(options):
    with pytest.raises(StateChangedError, match="must not change the state it is given, but it wrote into it at t = "):
        solve(lambda t, y: y.mul_(-1), **options)


def test_a_func_that_writes_into_the_time_or_into_what_it_returned():
    t = torch.linspace(0, 1, 11, dtype=torch.float64)
    buffer = torch.zeros((), dtype=torch.float64)

    def moves_time(t, u):
        t.add_(1.0)
        return -u

    def reuses(t, u):
        return buffer.copy_(-u)

    one = torch.ones((), dtype=torch.float64)
    for options in ({}, {"n_steps": 20}, {"grid": "given"}):
        with pytest.raises(StateChangedError, match="func must not change the time it is given, but it wrote into it"):
            fdeint(moves_time, one, t, order=0.5, **grouped(**options))
        with torch.no_grad(), pytest.raises(StateChangedError, match="func must return a new tensor each time, but at"):
            fdeint(reuses, one, t, order=0.5, **grouped(**options))
    torch.testing.assert_close(t, torch.linspace(0, 1, 11, dtype=torch.float64), rtol=0, atol=0)


def test_a_hopeless_solve_ends():
    generator = torch.Generator().manual_seed(0)

    def noise(t, u):
        return -u + torch.randn((), generator=generator, dtype=torch.float64)

    start = torch.ones((), dtype=torch.float64)
    for most in (400, 4_000):
        with (
            torch.no_grad(),
            pytest.raises(InvalidArgumentError, match="func must return the same values for the same"),
        ):
            fdeint(noise, start, [0.0, 1.0], order=0.5, rtol=1e-4, options={"max_evaluations": most})


def test_a_state_that_falls_below_the_rounding_of_what_was_added_up():
    """exp(-30) of 1 - 1 + ...: 21 relative tolerances off, and to t = 40 refused for another reason."""
    right = fdeint(decay, 1.0, [0.0, 20.0], order=1.0, atol=0.0)
    assert right[-1].item() == pytest.approx(math.exp(-20.0), rel=1e-5)
    for end in (30.0, 40.0):
        with pytest.raises(NotConvergedError, match=r"atol must be 2.2e-16 or more where a state of size 1 falls"):
            fdeint(decay, 1.0, [0.0, end], order=1.0, atol=0.0)
        fdeint(decay, 1.0, [0.0, end], order=1.0, atol=1e-15)


def test_a_gradient_where_a_solution_comes_to_rest():
    def func(t, u):
        return -torch.sign(u) * u.abs() ** (1 / 3)

    with pytest.raises(NotConvergedError, match=r"or solve under torch.no_grad\(\)"):
        fdeint(func, 1.0, [0.0, 2.0], order=1.0)
    with torch.no_grad():
        assert abs(fdeint(func, 1.0, [0.0, 2.0], order=1.0)[-1].item()) < 1e-7


@pytest.mark.parametrize("method", ["adams", "pece", "euler", "trapezoidal", "l1", "l1-implicit"])
def test_methods_other_than_the_default_choose_no_steps(method):
    message = (
        f"grid must be Uniform(n), Graded(n) or Given() for method '{method}', got an adaptive one; "
        f"pass n_steps=, or leave out method= for the default, which chooses its own steps"
    )
    for solved in (
        lambda: solve(method=method),
        lambda: solve(method=method, rtol=1e-3),
        lambda: solve(method=method, breakpoints=[0.5]),
        lambda: MultiTerm([0.5, 0.0], [1.0, 1.0], lambda t, lower: 0.0).solve((1.0,), [0, 1], method=method),
    ):
        with pytest.raises(InvalidArgumentError, match=re.escape(message)):
            solved()


def test_times_mapped_over():
    times = torch.tensor([[0.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
    with pytest.raises(InvalidArgumentError, match=r"with grid=Given\(\) where t is mapped over"):
        torch.func.vmap(lambda t: fdeint(decay, 1.0, t, order=0.7, n_steps=40)[-1])(times)
    along = torch.stack([torch.linspace(0.0, float(end), 41, dtype=torch.float64) for end in times[:, 1]])
    mapped = torch.func.vmap(lambda t: fdeint(decay, 1.0, t, order=0.7, grid=Given(), method="adams")[-1])(along)
    alone = torch.stack([fdeint(decay, 1.0, t, order=0.7, grid=Given(), method="adams")[-1] for t in along])
    torch.testing.assert_close(mapped, alone)


def test_an_empty_state():
    nothing = torch.zeros(0, dtype=torch.float64)
    assert fdeint(decay, nothing, T, order=0.5, n_steps=5).shape == (5, 0)


def test_the_gradient_of_an_empty_state():
    order = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    states = fdeint(decay, torch.zeros(0, dtype=torch.float64), T, order=order, n_steps=5, method="l1")
    (gradient,) = torch.autograd.grad(states.sum(), order)
    assert gradient == 0.0
