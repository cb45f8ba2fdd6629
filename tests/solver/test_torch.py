"""fdeint under torch's own tools: transformations, compilation, grad modes, modules, hooks."""

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.solver import fdeint
from tests.solver.calls import NotePoints, grouped

Y0 = torch.tensor([1.0, -0.5], dtype=torch.float64)
RATE = torch.tensor([-1.0, -2.0], dtype=torch.float64)
T = torch.linspace(0, 1, 5, dtype=torch.float64)
EXPLICIT = [
    {"method": "adams", "n_steps": 6},
    {"method": "pece", "n_steps": 6, "grid": "graded"},
    {"method": "euler", "grid": "given"},
    {"method": "l1", "grid": "given"},
]
IMPLICIT = [
    {"method": "trapezoidal", "n_steps": 6},
    {"method": "l1-implicit", "n_steps": 6},
    {"method": "collocation", "n_steps": 2},
]
ADAPTIVE = [{}]


def name(options):
    return "-".join(map(str, options.values())) or "default"


def end(rate, y0, **options):
    return fdeint(lambda t, u: torch.tanh(rate * u) + t, y0, T, order=0.6, trajectory=False, **grouped(**options)).sum()


@pytest.mark.parametrize("options", EXPLICIT + IMPLICIT + ADAPTIVE, ids=name)
def test_transformations_agree_with_backward(options):
    rate, y0 = RATE.clone().requires_grad_(), Y0.clone().requires_grad_()
    expected = torch.autograd.grad(end(rate, y0, **options), (rate, y0))

    def solve(rate, y0):
        return end(rate, y0, **options)

    direction = torch.tensor([0.3, -0.7], dtype=torch.float64)
    along = sum((gradient * direction).sum() for gradient in expected)
    torch.testing.assert_close(torch.func.grad(solve, argnums=(0, 1))(RATE, Y0), expected)
    torch.testing.assert_close(torch.func.jacrev(solve, argnums=(0, 1))(RATE, Y0), expected)
    torch.testing.assert_close(torch.func.jvp(solve, (RATE, Y0), (direction, direction))[1], along)


@pytest.mark.parametrize("options", EXPLICIT, ids=name)
def test_vmap_over_states_and_parameters(options):
    rates, states = torch.stack([RATE, 2 * RATE, -RATE]), torch.stack([Y0, 3 * Y0, 0 * Y0])
    expected = torch.stack([end(rate, y0, **options) for rate, y0 in zip(rates, states, strict=True)])
    found = torch.func.vmap(lambda rate, y0: end(rate, y0, **options))(rates, states)
    torch.testing.assert_close(found, expected)
    slopes = torch.func.vmap(torch.func.grad(lambda rate, y0: end(rate, y0, **options)))(rates, states)
    torch.testing.assert_close(slopes[1], torch.func.grad(lambda rate: end(rate, states[1], **options))(rates[1]))


def test_vmap_of_the_default_gives_each_sample_its_own_grid():
    rates = torch.tensor([0.5, 3.0, 40.0], dtype=torch.float64, requires_grad=True)
    orders = torch.tensor([0.5, 0.8, 1.0], dtype=torch.float64, requires_grad=True)
    times = torch.tensor([[0.0, 0.5, 1.0], [0.0, 1.0, 2.0], [0.0, 0.1, 3.0]], dtype=torch.float64)

    def solve(rate, order, t):
        return fdeint(lambda t, u: t.sin() - rate * u, Y0, t, order=order, rtol=1e-7)

    found = torch.func.vmap(solve)(rates, orders, times)
    alone = torch.stack([solve(*each) for each in zip(rates, orders, times, strict=True)])
    torch.testing.assert_close(found, alone, rtol=1e-6, atol=1e-8)
    mine, theirs = (torch.autograd.grad(states.square().sum(), (rates, orders)) for states in (found, alone))
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-8)
    last = torch.func.vmap(lambda rate: fdeint(lambda t, u: -rate * u, 1.0, [0, 1], order=0.7, trajectory=False))(rates)
    one = fdeint(lambda t, u: -rates[1] * u, 1.0, [0, 1], order=0.7, trajectory=False)
    torch.testing.assert_close(last[1], one, rtol=1e-5, atol=1e-8)


def test_vmap_of_the_default_goes_with_no_other_transformation():
    solve = torch.func.vmap(lambda rate: fdeint(lambda t, u: -rate * u, Y0, [0, 1], order=0.7).sum())
    twice = torch.func.vmap(solve), torch.func.grad(lambda rates: solve(rates).sum())
    for outer, shape in zip(twice, [(2, 2), (2,)], strict=True):
        with pytest.raises(InvalidArgumentError, match=r"inside torch.func.vmap, got grid=Adaptive"):
            outer(torch.ones(shape, dtype=torch.float64))


@pytest.mark.parametrize("options", IMPLICIT, ids=name)
def test_vmap_is_refused_where_steps_follow_values(options):
    message = r"grid must be fixed and the method explicit inside torch.func.vmap, got grid=.* and method='.*pass n_st"
    with pytest.raises(InvalidArgumentError, match=message):
        torch.func.vmap(lambda y0: end(RATE, y0, **options))(torch.stack([Y0, Y0]))


@pytest.mark.parametrize(
    "method", ["adams", *(pytest.param(name, marks=pytest.mark.slow) for name in ("pece", "euler", "l1"))]
)
@pytest.mark.parametrize("trajectory", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_compiled_on_given_times(method, trajectory):
    def solve(rate, y0):
        options = {"order": 0.6, "method": method, "grid": "given", "trajectory": trajectory}
        return fdeint(lambda t, u: torch.tanh(rate * u) + t, y0, T, **grouped(**options))

    torch._dynamo.reset()
    rate = RATE.clone().requires_grad_()
    found, expected = (run(rate, Y0) for run in (torch.compile(solve, backend="eager", fullgraph=True), solve))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    mine, theirs = (torch.autograd.grad(value.sum(), rate) for value in (found, expected))
    torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"n_steps": 3}, {"method": "trapezoidal", "grid": "given"}], ids=name)
def test_compilation_is_refused_where_steps_follow_values(options):
    torch._dynamo.reset()
    compiled = torch.compile(lambda y0: end(RATE, y0, **options), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"grid must be Given\(\) and the method explicit"):
        compiled(Y0)


@pytest.mark.parametrize("options", EXPLICIT, ids=name)
def test_second_derivatives_of_explicit_methods(options):
    rate = RATE.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda rate: end(rate, Y0, **options), rate)


@pytest.mark.parametrize("options", [*IMPLICIT, {}], ids=name)
def test_second_derivatives_of_implicit_methods_come_from_torch_func(options):
    """Backward refuses them; a Hessian is held against differences of gradients."""
    rate = RATE.clone().requires_grad_()
    with pytest.raises(
        InvalidArgumentError, match="create_graph must be False in the backward pass of an implicit method"
    ):
        torch.autograd.grad(end(rate, Y0, **options), rate, create_graph=True)
    if not options:
        return
    gradient = torch.func.grad(lambda rate: end(rate, Y0, **options))
    hessian = torch.func.jacrev(gradient)(RATE)
    move = 1e-5 * torch.eye(2, dtype=torch.float64)
    differences = torch.stack([(gradient(RATE + each) - gradient(RATE - each)) / 2e-5 for each in move], dim=1)
    torch.testing.assert_close(hessian, differences, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("options", EXPLICIT + IMPLICIT + ADAPTIVE, ids=name)
def test_without_gradients(options):
    """On an adaptive grid states are iterated no further than its tolerance asks for then."""
    expected = end(RATE, Y0, **options)
    rtol = 1e-7 if options in ADAPTIVE else 1e-12
    rate = RATE.clone().requires_grad_()
    with torch.no_grad():
        assert not end(rate, Y0, **options).requires_grad
        torch.testing.assert_close(end(rate, Y0, **options), expected, rtol=rtol, atol=0)
    with torch.inference_mode():
        torch.testing.assert_close(end(rate, Y0.clone(), **options), expected, rtol=rtol, atol=0)


@pytest.mark.parametrize("options", [{}, {"n_steps": 6}, {"method": "trapezoidal", "n_steps": 6}], ids=name)
def test_func_sees_times_in_their_own_dtype_and_states_in_theirs(options):
    """Where times have none, as a list or whole numbers, they get that of the state."""
    seen = set()

    def func(t, y):
        seen.add((t.dtype, y.dtype, t.dim()))
        return -y

    for of_time in (torch.float32, torch.float64):
        for of_state in (torch.float32, torch.float64):
            seen.clear()
            u = fdeint(func, Y0.to(of_state), T.to(of_time), order=0.6, **grouped(**options))
            assert seen == {(of_time, of_state, 0)}
            assert u.dtype == of_state
    for t in ([0, 1, 2], [0.0, 1.0, 2.0], torch.tensor([0, 1, 2]), np.array([0.0, 1.0, 2.0])):
        for of_state in (torch.float32, torch.float64):
            seen.clear()
            fdeint(func, Y0.to(of_state), t, order=0.6, **grouped(**options))
            assert seen == {(of_state, of_state, 0)}


class Field(nn.Module):
    """Of a pair of states."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 3).double(), nn.Linear(5, 2).double()

    def forward(self, t, y):
        both = torch.cat(y, dim=-1)
        return torch.tanh(self.first(both)), torch.tanh(self.second(both)) * torch.cos(t)


@pytest.mark.parametrize("options", [{}, {"n_steps": 5}, {"n_steps": 5, "method": "trapezoidal"}], ids=name)
@pytest.mark.parametrize("checkpoint", [False, True])
def test_modules_on_tuples_with_hooks(options, checkpoint):
    """Parameters get their gradients; hooks of modules run; one on a state's gradient sees it, and may change it."""
    torch.manual_seed(0)
    field, calls = Field(), []
    field.register_forward_hook(lambda _, given, found: (NotePoints.apply(given[0], calls.append), found)[1])
    y0 = tuple(torch.randn(4, n, dtype=torch.float64, requires_grad=True) for n in (3, 2))
    found = fdeint(field, y0, T, order=(0.6, 0.9), info=True, **grouped(checkpoint=checkpoint, **options))
    assert [part.shape for part in found.states] == [(5, 4, 3), (5, 4, 2)]
    assert sum(calls) == found.n_evaluations
    first, second = found.states
    seen = []
    second.register_hook(lambda gradient: (seen.append(gradient), 2.0 * gradient)[1])
    (first[-1].sum() + second[-1].sum()).backward()
    assert len(seen) == 1
    hooked = [parameter.grad.clone() for parameter in field.parameters()]
    plain = fdeint(field, y0, T, order=(0.6, 0.9), **grouped(checkpoint=checkpoint, **options))
    expected = torch.autograd.grad(plain[0][-1].sum() + 2.0 * plain[1][-1].sum(), tuple(field.parameters()))
    for mine, theirs in zip(hooked, expected, strict=True):
        assert float(theirs.abs().max()) > 1e-3
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", EXPLICIT + IMPLICIT + ADAPTIVE, ids=name)
def test_autocast_is_for_func_alone(options):
    y0, weight = torch.linspace(-1, 1, 8).reshape(2, 4), 0.7 * torch.eye(4) + 0.1

    def outside(t, u):
        with torch.autocast("cpu", enabled=False):
            return torch.tanh(u @ weight)

    def solve(func):
        return fdeint(func, y0, T.float(), order=0.7, **grouped(**options))

    expected = solve(outside)
    seen = []

    def inside(t, u):
        seen.append((u @ weight).dtype)
        return torch.tanh(u @ weight)

    with torch.autocast("cpu"):
        torch.testing.assert_close(solve(outside), expected, rtol=0, atol=0)
        if options not in ADAPTIVE:  # bfloat16 is no function for a tolerance
            torch.testing.assert_close(solve(inside), expected, rtol=0.02, atol=0.02)
            assert set(seen) == {torch.bfloat16}


def test_a_solve_leaves_nothing_alive():
    class Held:
        pass

    held = Held()
    still = weakref.ref(held)

    def func(t, u, held=held):
        return -u

    gc.collect()
    gc.disable()
    try:
        fdeint(func, Y0, T, order=0.6)
        del func, held
        assert still() is None
    finally:
        gc.enable()
