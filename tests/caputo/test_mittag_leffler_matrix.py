import math

import mpmath
import numpy as np
import pytest
import torch

from fracdnn.caputo import mittag_leffler, mittag_leffler_matrix
from fracdnn.caputo.schur_parlett import schur_parlett
from tests import references
from tests.slow import slow_but

RNG = np.random.default_rng(0)
SQUARE, BASIS = RNG.normal(size=(5, 5)), RNG.normal(size=(4, 4))
JORDAN = np.array([[-1.0, 1.0], [0.0, -1.0]])
LONG_JORDAN = -2 * np.eye(4) + np.eye(4, k=1)
MATRICES = {
    "symmetric": (SQUARE + SQUARE.T) / 2,
    "general": SQUARE,
    "complex": SQUARE + 1j * SQUARE[::-1],
    "oscillating": np.array([[-0.1, 3.0], [-3.0, -0.1]]),
    "repeated": -np.eye(3),
    "defective": JORDAN,
    "long defective": LONG_JORDAN,
    "two defective": np.diag([-3.0, -3.0, -3.0, 1.0, 1.0]) + 3 * np.eye(5, k=1),
    "two defective, in turns": np.diag([-1.0, 2.0, -1.0, 2.0]) + np.triu(np.ones((4, 4)), 1),
    "defective in another basis": BASIS @ LONG_JORDAN @ np.linalg.inv(BASIS),
    "nilpotent": np.eye(3, k=1),
    "nearly defective": np.array([[-1.0, 5.0], [0.0, -1.0000001]]),
    "far from normal": np.diag([-1.0, -2.0, -3.0]) + 1e4 * np.triu(np.ones((3, 3)), 1),
}


def by_series(matrix, alpha, beta):
    """The power series in many digits."""
    size = np.abs(np.linalg.eigvals(matrix)).max() ** (1 / alpha)
    with mpmath.workdps(int(60 + 2 * size)):
        exact = mpmath.matrix(matrix.tolist())
        total, power, k = mpmath.zeros(len(matrix)), mpmath.eye(len(matrix)), 0
        while k < 10 or mpmath.norm(power) * abs(mpmath.rgamma(mpmath.mpf(alpha) * k + beta)) > 1e-22:
            total += power * mpmath.rgamma(mpmath.mpf(alpha) * k + mpmath.mpf(beta))
            power, k = power * exact, k + 1
        return np.array(total.tolist(), dtype=complex)


def difference(found, exact):
    return np.abs(np.asarray(found) - exact).max() / np.abs(exact).max()


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize(("alpha", "beta"), [(0.6, 1.0), (1.0, 1.0), (1.7, 0.5)])
def test_small_matrices_have_twelve_digits(name, alpha, beta):
    found = mittag_leffler_matrix(torch.from_numpy(MATRICES[name]), alpha, beta)
    assert difference(found, by_series(MATRICES[name], alpha, beta)) <= 1e-12


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 0.5), (0.8, 1.0), (1.6, 1.0)])
def test_stiff_matrices(alpha, beta):
    """Eigenvalues from −10⁴ to −10⁻² under an orthogonal and under a skew basis: V f(Λ) V⁻¹ in many digits."""
    rates = -np.geomspace(1e-2, 1e4, 6)
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    for basis, tolerance in [(rotation, 1e-12), (np.eye(6) + np.triu(np.ones((6, 6)), 1), 1e-11)]:
        with mpmath.workdps(40):
            v = mpmath.matrix(basis.tolist())
            inverse = v**-1
            matrix = v * mpmath.diag(list(rates)) * inverse
            values = [references.mittag_leffler(rate, alpha, beta).real for rate in rates]
            exact = np.array((v * mpmath.diag(values) * inverse).tolist(), dtype=float)
            rounded = np.array(matrix.tolist(), dtype=float)
        assert difference(mittag_leffler_matrix(rounded, alpha, beta), exact) <= tolerance


@pytest.mark.parametrize("name", ["general", "defective", "two defective"])
def test_scales_and_batches_are_single_matrices(name):
    matrix = torch.from_numpy(MATRICES[name])
    scales = torch.tensor([[0.0, 0.01, 1.0], [3.0, 7.0, 20.0]], dtype=torch.float64)
    together = mittag_leffler_matrix(matrix, 0.9, 1.3, scale=-scales if name == "general" else scales)
    assert together.shape == (2, 3, *matrix.shape)
    batch = scales[..., None, None] * (-matrix if name == "general" else matrix)
    singly = mittag_leffler_matrix(batch, 0.9, 1.3)
    torch.testing.assert_close(
        together / singly.norm(dim=(-2, -1), keepdim=True),
        singly / singly.norm(dim=(-2, -1), keepdim=True),
        rtol=0,
        atol=1e-10,
    )


def test_without_eigenvectors_an_eigenvalue_far_from_others_costs_one_value():
    counts = []
    matrix = torch.diag(torch.tensor([-5.0, 1.0, 9.0], dtype=torch.complex128)) + torch.ones(3, 3).triu(1)
    found = schur_parlett(matrix, torch.ones(1).double(), lambda z: counts.append(z.numel()) or torch.exp(z))
    torch.testing.assert_close(found[0], torch.linalg.matrix_exp(matrix))
    assert counts == [1, 1, 1]


@pytest.mark.parametrize("n", [8, 12, 20])
@pytest.mark.parametrize("alpha", [0.3, 0.6, 1.5])
def test_many_equal_eigenvalues_in_any_basis(n, alpha):
    """A nilpotent matrix, whose series is finite; rounding scatters its eigenvalue 0 into n that are not close."""
    random = np.random.default_rng(n)
    basis = np.linalg.qr(random.normal(size=(n, n)))[0]
    nilpotent = np.triu(random.normal(size=(n, n)), 1)
    exact = sum(np.linalg.matrix_power(nilpotent, k) / math.gamma(alpha * k + 1.0) for k in range(n))
    found = mittag_leffler_matrix(basis @ nilpotent @ basis.T, alpha)
    assert difference(found, basis @ exact @ basis.T) <= 1e-11


def test_a_jordan_block_holds_the_derivative():
    t = torch.tensor([1e-3, 1.0, 30.0, 1e3], dtype=torch.float64)
    slope = torch.func.vmap(torch.func.grad(lambda z: mittag_leffler(z, 0.7)))(-t)
    found = mittag_leffler_matrix(JORDAN, 0.7, scale=t)
    torch.testing.assert_close(found[:, 0, 1], t * slope, rtol=1e-11, atol=0)
    torch.testing.assert_close(found[:, 1, 1], mittag_leffler(-t, 0.7), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    "name", slow_but(["defective", "complex"], ["general", "symmetric", "repeated", "defective", "complex"])
)
def test_gradients_pass_gradcheck(name):
    matrix = torch.from_numpy(MATRICES[name])[:3, :3].clone().requires_grad_()
    numbers = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (0.7, 1.2, [1.3])]
    assert torch.autograd.gradcheck(
        lambda matrix, alpha, beta, scale: mittag_leffler_matrix(matrix, alpha, beta, scale=scale),
        (matrix, *numbers),
        check_forward_ad=True,
        fast_mode=True,
    )


def test_a_scale_has_a_gradient_where_its_matrix_has_none():
    scale = torch.tensor([0.4, 1.3], dtype=torch.float64, requires_grad=True)
    matrix = torch.from_numpy(SQUARE[:3, :3])
    assert torch.autograd.gradcheck(lambda scale: mittag_leffler_matrix(matrix, 0.7, scale=scale), scale)


def test_torch_func_gives_one_jacobian_in_both_modes():
    for matrix in (torch.from_numpy(JORDAN), torch.from_numpy(SQUARE[:3, :3])):
        reverse = torch.func.jacrev(mittag_leffler_matrix)(matrix, 0.7)
        torch.testing.assert_close(
            reverse, torch.func.jacfwd(mittag_leffler_matrix)(matrix, 0.7), rtol=1e-10, atol=1e-12
        )
    stacked = torch.stack([torch.from_numpy(JORDAN), torch.eye(2, dtype=torch.float64)])
    torch.testing.assert_close(
        torch.func.vmap(lambda matrix: mittag_leffler_matrix(matrix, 0.7))(stacked), mittag_leffler_matrix(stacked, 0.7)
    )


def test_second_derivatives_are_refused():
    matrix = torch.from_numpy(SQUARE).requires_grad_()
    (gradient,) = torch.autograd.grad(mittag_leffler_matrix(matrix, 0.7).sum(), matrix, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        gradient.sum().backward()


def test_shapes_and_kinds_are_kept():
    assert mittag_leffler_matrix([[-1.0]], 0.5).item() == pytest.approx(mittag_leffler(-1.0, 0.5).item(), rel=1e-14)
    assert mittag_leffler_matrix(torch.ones(2, 2), 0.5).dtype == torch.float32
    assert mittag_leffler_matrix(torch.ones(2, 2, dtype=torch.complex64), 0.5).dtype == torch.complex64
    assert mittag_leffler_matrix(torch.ones(3, 1, 2, 2), 0.5, scale=np.ones(4)).shape == (3, 1, 4, 2, 2)
    assert mittag_leffler_matrix(torch.ones(0, 2, 2), 0.5).shape == (0, 2, 2)
