"""Components of very different size: none may end the iteration of another, nor set its steps."""

import warnings

import pytest
import torch

from fracdnn.solver import fdeint
from tests.slow import each_once
from tests.solver.calls import grouped

T = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
IMPLICIT = ["collocation", "trapezoidal", "l1-implicit"]


def decays(t, u):
    """Two components that have nothing to do with one another."""
    return torch.stack([-0.1 * u[0], -5.0 * u[1] ** 3])


def small_one(ratio, dtype=torch.float64, func=decays, **options):
    start = torch.tensor([ratio, 1.0], dtype=dtype)
    return fdeint(func, start, T.to(dtype), order=0.8, **grouped(**options))[..., 1]


@pytest.mark.parametrize(
    ("method", "scales"), each_once(IMPLICIT, [(torch.float64, (1e6, 1e12)), (torch.float32, (1e3, 1e7))])
)
def test_a_large_component_does_not_end_the_iteration_of_a_small_one(method, scales):
    dtype, ratios = scales
    alone = small_one(1.0, dtype, method=method, n_steps=20)
    for ratio in ratios:
        for context in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
            with context:
                found = small_one(ratio, dtype, method=method, n_steps=20)
            torch.testing.assert_close(found, alone, rtol=4096 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize(
    ("ratio", "context"), each_once([1e-10, 1e6, 1e10], [torch.no_grad, torch.inference_mode, torch.enable_grad])
)
def test_the_default_takes_the_same_steps_for_any_sizes(ratio, context):
    def steps(ratio):
        with context():
            start = torch.tensor([ratio, 1.0], dtype=torch.float64)
            atol = 1e-8 * start
            return fdeint(decays, start, T, order=0.8, atol=atol, info=True)

    found, alone = steps(ratio), steps(1.0)
    assert found.n_accepted == alone.n_accepted
    torch.testing.assert_close(found.states[:, 1], alone.states[:, 1], rtol=1e-7, atol=0)


@pytest.mark.parametrize("method", IMPLICIT)
def test_gradients_of_a_small_component(method):
    def gradient(ratio):
        rate = torch.tensor(5.0, dtype=torch.float64, requires_grad=True)
        start = torch.tensor([ratio, 1.0], dtype=torch.float64)
        options = {} if method == "collocation" else {"method": method, "n_steps": 20}
        u = fdeint(
            lambda t, u: torch.stack([-0.1 * u[0], -rate * u[1] ** 3]), start, T, order=0.8, **grouped(**options)
        )
        return torch.autograd.grad(u[-1, 1], rate)[0]

    torch.testing.assert_close(gradient(1e9), gradient(1.0), rtol=1e-7, atol=0)


def test_a_small_component_of_many_that_are_iterated_without_a_matrix():
    """More unknowns than a matrix is made for, and their gradient by GMRES."""
    sizes = torch.ones(600, dtype=torch.float64)
    sizes[::2] = 1e9

    def last(sizes):
        rates = torch.linspace(0.1, 1.0, 600, dtype=torch.float64).requires_grad_()
        u = fdeint(lambda t, u: -rates * u, sizes, T, order=0.7, n_steps=6, method="collocation")[-1]
        (gradient,) = torch.autograd.grad(u[1], rates)
        return u[1], gradient[1]

    for found, alone in zip(last(sizes), last(torch.ones_like(sizes)), strict=True):
        torch.testing.assert_close(found, alone, rtol=1e-12, atol=0)


@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad])
def test_steep_functions_are_evaluated_where_the_solution_is(context):
    """Linearized, the first of Newton's steps seems to be a solution; that of u' = u^(−1/2) is (3t/2)^(2/3)."""
    with context():
        u = fdeint(lambda t, u: 1 / torch.sqrt(u.clamp(min=0) + 1e-12), 1e-12, [0.0, 1.0], order=1.0)
    assert u[-1].item() == pytest.approx(1.5 ** (2 / 3), rel=1e-5)


def test_hamiltonian_functions_take_derivatives_of_their_own():
    start = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)

    def hamiltonian(t, y):
        with torch.enable_grad():
            y = y if y.requires_grad else y.detach().requires_grad_()
            (slope,) = torch.autograd.grad((y**2).sum() / 2, y, create_graph=True)
        return torch.stack([slope[1], -slope[0]])

    found = fdeint(hamiltonian, start, T, order=0.9)
    plain = fdeint(lambda t, y: torch.stack([y[1], -y[0]]), start, T, order=0.9)
    torch.testing.assert_close(found, plain, rtol=1e-12, atol=0)
    (gradient,), (expected,) = (torch.autograd.grad(each[-1].sum(), start) for each in (found, plain))
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=0)


class _Cube(torch.autograd.Function):
    """Without a rule for batches."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return -(x**3)

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(cotangent.numpy() * -3.0 * x.detach().numpy() ** 2)


@pytest.mark.parametrize("components", [3, 20])
def test_operations_without_a_rule_for_batches(components):
    start = torch.linspace(0.5, 1.0, components, dtype=torch.float64)
    found = fdeint(lambda t, u: _Cube.apply(u), start, T, order=0.9)
    torch.testing.assert_close(found, fdeint(lambda t, u: -(u**3), start, T, order=0.9), rtol=1e-10, atol=0)


def test_smooth_functions_are_not_called_noisy():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        u = fdeint(
            lambda t, u: torch.stack([u[1], -100.0 * u[0]]), torch.tensor([1.0, 0.0]).double(), [0.0, 20.0], order=1
        )
    assert u[-1, 0].item() == pytest.approx(torch.cos(torch.tensor(200.0).double()).item(), abs=1e-3)
