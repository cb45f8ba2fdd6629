"""Large stiff systems: Newton's method with one Jacobian, in the eigenbasis of a panel's weights."""

import math

import numpy as np
import pytest
import scipy.sparse
import torch

from fracdnn.caputo import mittag_leffler
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.solver import fdeint, shifted
from fracdnn.solver.jacobians import Products
from fracdnn.solver.problem import posed_problem
from fracdnn.solver.shifted import Shifted, jacobian_at, sparse_matrix


def laplacian(u, h):
    padded = torch.nn.functional.pad(u, (1, 1))
    return (padded[2:] - 2 * u + padded[:-2]) / h**2


def scattered(n, entries, seed=0):
    """Sizes from 1e-4 to 1e4 in random places."""
    random = np.random.default_rng(seed)
    values = random.choice([-1.0, 1.0], n * entries) * 10 ** random.uniform(-4, 4, n * entries)
    places = random.integers(n, size=(2, n * entries))
    return scipy.sparse.csr_array((values, tuple(places)), shape=(n, n))


@pytest.mark.parametrize(("n", "entries"), [(50, 1), (400, 3), (1000, 7)])
def test_a_sparse_matrix_is_found_from_few_products(n, entries):
    right, rows = scattered(n, entries), []

    def times(directions):
        rows.append(len(directions))
        return directions @ right

    found = sparse_matrix(times, n)
    assert abs(found - right).max() <= 1e-9 * abs(right).max()
    assert sum(rows) < 1000


def test_a_known_pattern_saves_products():
    """Entries that were 0 at the first state are found at the second."""
    n, random = 400, torch.Generator().manual_seed(0)

    def func(t, u):
        return laplacian(u, 0.1) - u.roll(7) * u.roll(3) + u**3

    problem = posed_problem(func, torch.ones(n, dtype=torch.float64), 0.7, None)
    states = torch.zeros(1, n, dtype=torch.float64), torch.rand(1, n, generator=random, dtype=torch.float64)
    rows, given = [], shifted._rows_times

    def counted(slope, at, directions):
        rows[-1] += len(directions)
        return given(slope, at, directions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shifted, "_rows_times", counted)
        for state in (*states, 2.0 * states[1]):
            rows.append(0)
            found = jacobian_at(problem, torch.tensor(0.0, dtype=torch.float64), state).toarray()
            right = torch.func.jacrev(lambda u: func(0.0, u))(state[0]).numpy()
            assert abs(found - right).max() <= 1e-9 * abs(right).max()
    assert rows[0] > 200
    assert rows[2] < 30


def test_a_full_matrix_is_not_taken_for_a_sparse_one():
    full = np.random.default_rng(0).normal(size=(400, 400))
    assert sparse_matrix(lambda rows: rows @ full, 400) is None


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("count", [4, 5])
def test_shifted_systems_make_up_the_whole_one(kind, count):
    n, random = 30, np.random.default_rng(1)
    weights = np.tril(random.uniform(size=(count, count))) + 0.3 * random.normal(size=(count, count))
    jacobian = scattered(n, 3).toarray() / 1e3
    made = Shifted(torch.from_numpy(weights)[None], scipy.sparse.csr_array(jacobian) if kind == "sparse" else jacobian)
    values = torch.from_numpy(random.normal(size=(1, count, n)))
    whole = np.eye(count * n) - np.kron(weights, jacobian)
    for transposed in (False, True):
        right = np.linalg.solve(whole.T if transposed else whole, values.numpy().reshape(-1))
        found = made.solve(values, transposed=transposed).numpy().reshape(-1)
        np.testing.assert_allclose(found, right, rtol=1e-8, atol=1e-10 * abs(right).max())
    np.testing.assert_allclose(made.times(values)[0].numpy(), values[0].numpy() @ jacobian.T)


def diffusion(n, kappa, dtype=torch.float64):
    """Func, start, and the solution, of two modes."""
    h = 1.0 / (n + 1)
    x = torch.linspace(h, 1 - h, n, dtype=torch.float64)

    def func(t, u):
        return kappa * laplacian(u, h)

    def exact(t, kappa, order):
        modes = [(1, 1.0), (3, 0.3)]
        rates = [kappa * 4 / h**2 * math.sin(k * math.pi * h / 2) ** 2 for k, _ in modes]
        return sum(
            size * torch.sin(k * math.pi * x) * mittag_leffler(-rate * t**order, order)
            for (k, size), rate in zip(modes, rates, strict=True)
        )

    return func, exact(0.0, 1.0, 1.0).to(dtype), exact


@pytest.mark.parametrize(("order", "dtype"), [(0.6, torch.float64), (1.0, torch.float64), (0.4, torch.float32)])
def test_diffusion_on_many_cells_keeps_the_tolerance(order, dtype):
    rtol = 1e-6 if dtype == torch.float64 else 1e-4
    func, start, exact = diffusion(400, 0.1, dtype)
    with torch.no_grad():
        u = fdeint(func, start, [0.0, 0.1, 1.0], order=order, rtol=rtol, atol=1e-3 * rtol)
    for found, time in zip(u[1:], (0.1, 1.0), strict=True):
        right = exact(time, 0.1, order)
        assert float((found.double() - right).abs().max()) <= 10 * rtol * float(right.abs().max())


def test_gradients_of_diffusion_on_many_cells():
    order = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    kappa = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    func, start, exact = diffusion(300, kappa)
    weights = torch.linspace(0.0, 1.0, 300, dtype=torch.float64)
    (fdeint(func, start, [0.0, 1.0], order=order, rtol=1e-6)[-1] @ weights).backward()
    d = 1e-5
    by_kappa = (exact(1.0, 0.1 + d, 0.6) - exact(1.0, 0.1 - d, 0.6)) @ weights / (2 * d)
    by_order = (exact(1.0, 0.1, 0.6 + d) - exact(1.0, 0.1, 0.6 - d)) @ weights / (2 * d)
    torch.testing.assert_close(kappa.grad, by_kappa, rtol=1e-5, atol=0)
    torch.testing.assert_close(order.grad, by_order, rtol=1e-5, atol=0)


def reaction(n, rate):
    """Two species of very different size that react and diffuse; stiff in both."""
    h, unit = 1.0 / (n + 1), torch.tensor([[1.0], [1e-4]], dtype=torch.float64)

    def func(t, u):
        a, b = u.view(2, n) / unit
        meet = rate * a * b**2
        slopes = torch.stack([0.1 * laplacian(a, h) - meet + (1 - a), 0.05 * laplacian(b, h) + meet - 2 * b])
        return (unit * slopes).view(-1)

    x = torch.linspace(h, 1 - h, n, dtype=torch.float64)
    return func, (unit * torch.stack([torch.ones_like(x), torch.exp(-50 * (x - 0.5) ** 2)])).view(-1), unit


def reacted(n, rate, rtol=1e-6):
    """The end of the reaction, in units of each species."""
    func, start, unit = reaction(n, rate)
    return fdeint(func, start, [0.0, 0.5], order=0.7, rtol=rtol, atol=1e-4 * rtol)[-1] / unit.expand(2, n).reshape(-1)


@torch.no_grad()
def test_a_nonlinear_system_with_components_of_different_size():
    """Held against a solve to 1e-8."""
    rate = torch.tensor(8.0, dtype=torch.float64)
    torch.testing.assert_close(reacted(160, rate), reacted(160, rate, 1e-8), rtol=2e-5, atol=1e-7)


@pytest.mark.slow  # gradients of large systems are those of diffusion, above
def test_the_gradient_of_a_nonlinear_system_with_components_of_different_size():
    """Held against differences of solves to 1e-8."""
    n = 160
    rate = torch.tensor(8.0, dtype=torch.float64, requires_grad=True)
    u = reacted(n, rate)
    with torch.no_grad():
        difference = (reacted(n, rate + 1e-3, 1e-8) - reacted(n, rate - 1e-3, 1e-8)).view(2, n).mean(1) / 2e-3
    for species in (0, 1):
        (found,) = torch.autograd.grad(u.view(2, n)[species].mean(), rate, retain_graph=True)
        torch.testing.assert_close(found, difference[species], rtol=1e-4, atol=1e-8)


def test_a_full_jacobian_and_inference_mode():
    """Stiff in all directions, without zeros in the Jacobian."""
    random = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(320, 320, generator=random, dtype=torch.float64)).Q
    rates = torch.logspace(-1, 4, 320, dtype=torch.float64)
    matrix, start = turn @ torch.diag(-rates) @ turn.T, torch.ones(320, dtype=torch.float64)
    right = turn @ (mittag_leffler(-rates * 2.0**0.8, 0.8) * (turn.T @ start))
    with torch.inference_mode():
        u = fdeint(lambda t, u: matrix @ u, start, [0.0, 2.0], order=0.8)
    torch.testing.assert_close(u[-1], right, rtol=1e-4, atol=1e-6)


def test_steps_too_long_for_one_jacobian_are_solved_with_one_a_point():
    """Rates that fall by a factor of a million within a panel."""

    def func(t, u):
        return -1e4 * torch.exp(-14.0 * t) * (u - torch.cos(t)) - u**3

    start, few = torch.linspace(0.5, 1.5, 80, dtype=torch.float64), torch.tensor([0.5, 1.5], dtype=torch.float64)
    options = {"order": 0.8, "method": "collocation", "n_steps": 2}
    with torch.no_grad():
        many = fdeint(func, start, [0.0, 1.0], **options)[-1, [0, -1]]
        torch.testing.assert_close(many, fdeint(func, few, [0.0, 1.0], **options)[-1], rtol=1e-9, atol=0)


def test_a_matrix_of_which_only_products_are_known():
    """Held against the whole matrix, with components of very different size."""
    random = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-6, 3, 12, dtype=torch.float64)
    mixing = torch.randn(12, 12, generator=random, dtype=torch.float64)
    func = lambda t, u: sizes * torch.tanh(mixing @ (u / sizes)) * t  # noqa: E731
    clock = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64).unbind(0)
    states = sizes * torch.randn(1, 3, 12, generator=random, dtype=torch.float64)
    weights = torch.rand(1, 3, 3, generator=random, dtype=torch.float64)
    values = sizes * torch.randn(1, 3, 12, generator=random, dtype=torch.float64)
    krylov = shifted.Krylov(weights, Products(posed_problem(func, sizes, 0.7, None), clock, states))
    each = [torch.func.jacrev(lambda u, t=t: func(t, u))(u) for t, u in zip(clock, states[0], strict=True)]
    torch.testing.assert_close(
        krylov.times(values)[0] / sizes, torch.stack([j @ v for j, v in zip(each, values[0], strict=True)]) / sizes
    )
    found = krylov.solve(values)
    left = values - (found - weights @ krylov.times(found))
    assert float((left / sizes).abs().max()) < 1e-2 * float((values / sizes).abs().max())


@pytest.mark.parametrize(
    ("dtype", "largest"), [pytest.param(torch.float64, 300.0, marks=pytest.mark.slow), (torch.float32, 30.0)]
)
def test_many_components_that_all_depend_on_one_another(monkeypatch, dtype, largest):
    """Too many for a matrix, which is set to few here: values and gradient against the closed solution."""
    monkeypatch.setattr(shifted, "_MOST_DENSE", 400)
    random = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(420, 420, generator=random, dtype=torch.float64)).Q
    rates = torch.logspace(-1, math.log10(largest), 420, dtype=torch.float64)
    matrix, start = (turn @ torch.diag(-rates) @ turn.T).to(dtype), torch.ones(420, dtype=torch.float64)
    factor = torch.tensor(1.0, dtype=dtype, requires_grad=True)

    def exact(factor):
        return turn @ (mittag_leffler(-factor * rates, 0.8) * (turn.T @ start))

    u = fdeint(lambda t, u: factor * (matrix @ u), start.to(dtype), [0.0, 1.0], order=0.8, rtol=1e-4)[-1]
    torch.testing.assert_close(u.detach().double(), exact(1.0), rtol=1e-3, atol=1e-5)
    (found,) = torch.autograd.grad(u.sum(), factor)
    right = (exact(1.0 + 1e-5) - exact(1.0 - 1e-5)).sum() / 2e-5
    torch.testing.assert_close(found.double(), right, rtol=1e-3, atol=0)


def test_a_stiff_func_without_second_derivatives(monkeypatch):
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, u):
            return -300.0 * u.sum() * torch.ones_like(u) - u

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, cotangent):
            return -300.0 * cotangent.sum() * torch.ones_like(cotangent) - cotangent

    monkeypatch.setattr(shifted, "_MOST_DENSE", 400)
    with torch.no_grad(), pytest.raises(InvalidArgumentError, match=r"second derivatives .* 420 components .*adams"):
        fdeint(lambda t, u: Once.apply(u), torch.ones(420, dtype=torch.float64), [0.0, 1.0], order=0.8)
