import mpmath
import numpy as np
import pytest
import torch
from scipy.special import erfcx

from fracdnn.caputo import mittag_leffler
from tests import references
from tests.slow import each_once

ALPHAS = [0.05, 0.3, 0.7, 0.9999, 1.0]
REAL = [-1e-3, -0.9, -10.0, -300.0, -1e4, 0.9, 1.1, 10.0]


def relative_error(value, exact):
    return float(abs(mpmath.mpmathify(complex(value)) - exact) / (abs(exact) or 1))


@pytest.mark.parametrize(("alpha", "beta"), each_once(ALPHAS, [None, 1.0, 7.0]))
def test_real_arguments_have_ten_digits(alpha, beta):
    beta = alpha if beta is None else beta
    for z, value in zip(REAL, mittag_leffler(REAL, alpha, beta), strict=True):
        exact = references.mittag_leffler(float(z), alpha, beta)
        if abs(exact) > 1e308:
            assert value == np.inf
        elif abs(exact) > 1e-300:
            assert relative_error(value, exact) <= 1e-10, (z, value, exact)
        else:
            assert abs(value) <= 1e-300


@pytest.mark.parametrize("alpha", [0.3, 0.99])
@pytest.mark.parametrize("beta", [None, 1.7])
def test_complex_arguments_have_ten_digits(alpha, beta):
    beta = alpha if beta is None else beta
    rng = np.random.default_rng(0)
    z = 20 * np.sqrt(rng.random(6)) * np.exp(1j * rng.uniform(-np.pi, np.pi, 6))
    for point, value in zip(z, mittag_leffler(z, alpha, beta), strict=True):
        exact = references.mittag_leffler(complex(point), alpha, beta)
        if abs(exact) < 1e300:
            assert relative_error(value, exact) <= 1e-10, (point, value, exact)


def test_the_half_order_is_a_scaled_error_function():
    x = np.linspace(0, 1e4, 301)
    np.testing.assert_allclose(mittag_leffler(-x, 0.5), erfcx(x), rtol=1e-12)


def test_special_cases():
    z = np.linspace(-50, 10, 13)
    np.testing.assert_array_equal(mittag_leffler(z, 1.0), np.exp(z))
    np.testing.assert_allclose(mittag_leffler(z, 1.0, 2.0), np.where(z, np.expm1(z), 1) / np.where(z, z, 1))
    assert mittag_leffler(0.0, 0.7, 1.0) == pytest.approx(1.0, rel=1e-15)


def random_points(n, seed, largest):
    """Orders near 0.1, 1 and 2 and between, beta on and near whole numbers, |z|^(1/alpha) on both sides of 4."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        near_one, near_two = 1 + rng.choice([-1, 1]) * 10 ** rng.uniform(-16, -1), 2 - 10 ** rng.uniform(-16, -1)
        alpha = rng.choice([near_one, near_two, rng.choice([0.5, 1.0, 1.5, 2.0]), *rng.uniform(0.1, 2, 3)])
        near_whole = rng.integers(1, 4) + rng.choice([-1, 1]) * 10 ** rng.uniform(-15, -1)
        beta = rng.choice([1.0, alpha, near_whole, *rng.uniform(0.001, 4, 2)])
        radius = rng.choice([rng.uniform(0, largest), 10 ** rng.uniform(-3, 1), rng.normal(4, 0.3)])
        angle = rng.choice([0.0, np.pi, np.pi, rng.uniform(-np.pi, np.pi), alpha * np.pi + rng.normal(0, 0.05)])
        z = radius**alpha * np.exp(1j * angle)
        yield (float(z.real) if angle in (0.0, np.pi) else complex(z)), float(alpha), float(beta)


def test_random_arguments_have_twelve_digits():
    for z, alpha, beta in random_points(150, seed=0, largest=60):
        exact = references.mittag_leffler(z, alpha, beta)
        value = mittag_leffler(z, alpha, beta).item()
        assert relative_error(value, exact) <= 1e-12, (z, alpha, beta, value, exact)


@pytest.mark.parametrize("z", [-10.0, -30.0, -40.0, -100.0])
@pytest.mark.parametrize("distance", [-1e-15, -1e-12, -1e-9, 1e-12])
def test_close_to_order_one_small_values_keep_their_digits(z, distance):
    """There e^z and terms of the size of the distance are all that is left."""
    alpha = 1 + distance
    value = mittag_leffler(z, alpha).item()
    # The distance itself has 3 digits at 1e-15, but as a float it is exact.
    assert relative_error(value, references.mittag_leffler(z, alpha, 1.0)) <= 2e-12


def derivatives(z, alpha, beta):
    kind = torch.complex128 if isinstance(z, complex) else torch.float64
    point = [torch.tensor(z, dtype=kind), *torch.tensor([alpha, beta], dtype=torch.float64)]
    directions = torch.eye(3, dtype=torch.float64)

    def along(number, at):
        tangents = tuple(d.to(x.dtype) for d, x in zip(directions[number], at, strict=True))
        return torch.func.jvp(mittag_leffler, tuple(at), tangents)[1]

    twice = torch.func.jvp(lambda x: along(0, [x, *point[1:]]), (point[0],), (torch.ones_like(point[0]),))[1]
    forward = [along(number, point) for number in range(3)] + [twice]
    if kind == torch.float64:
        reverse = torch.func.grad(mittag_leffler, argnums=(0, 1, 2))(*point)
        for one, other in zip(forward, reverse, strict=False):
            assert one.item() == pytest.approx(other.item(), rel=1e-12)
    return [value.item() for value in forward]


def test_derivatives_have_eleven_digits():
    special = [(0.0, 0.7, 1.0), (0.0, 1.0, 1.0), (-3.0, 1.0, 1.0), (2.0, 1.0, 1.0), (-5.0, 2.0, 1.0), (-20.0, 1.0, 1.0)]
    for z, alpha, beta in [*special, *random_points(10, seed=1, largest=20)]:
        exact = references.mittag_leffler_derivatives(z, alpha, beta)
        for value, reference in zip(derivatives(z, alpha, beta), exact, strict=True):
            assert relative_error(value, reference) <= 1e-11, (z, alpha, beta, value, reference)


def test_gradients_pass_gradcheck_in_every_mode():
    z = torch.tensor([[-20.0], [-3.0], [0.0], [0.4], [2.0]], dtype=torch.float64, requires_grad=True)
    alpha = torch.tensor([0.3, 1.0, 1.6], dtype=torch.float64, requires_grad=True)
    beta = torch.tensor(1.2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda z, alpha, beta: mittag_leffler(z, alpha * 0.99, beta),
        (z, alpha, beta),
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )
    assert torch.autograd.gradgradcheck(mittag_leffler, (z[1:4], alpha[:1], beta))
    assert torch.autograd.gradcheck(mittag_leffler, (z.detach().to(torch.complex128).requires_grad_(), 0.6))


def test_vmap_over_any_argument():
    z, alpha = torch.linspace(-6, 2, 5, dtype=torch.float64), torch.linspace(0.3, 1.9, 5, dtype=torch.float64)
    together = mittag_leffler(z, alpha, 1.5)
    torch.testing.assert_close(torch.func.vmap(lambda z, alpha: mittag_leffler(z, alpha, 1.5))(z, alpha), together)
    torch.testing.assert_close(
        torch.func.vmap(mittag_leffler, (None, 0))(z, alpha), mittag_leffler(z, alpha.unsqueeze(1))
    )
    slopes = torch.func.vmap(torch.func.grad(mittag_leffler), (0, None))(z, 0.5)
    torch.testing.assert_close(slopes, mittag_leffler(z, 0.5, 0.5) / 0.5)


def test_shapes_and_kinds_are_kept():
    for number, kind in [(-1.0, torch.float64), (-1, torch.float64), (1j, torch.complex128)]:
        result = mittag_leffler(number, 0.5)
        assert isinstance(result, torch.Tensor)
        assert (result.shape, result.dtype) == ((), kind)
    assert isinstance(mittag_leffler(np.float64(-1.0), 0.5), np.float64)
    assert isinstance(mittag_leffler([-1.0, 2.0], 0.5), np.ndarray)
    assert isinstance(mittag_leffler([-1.0, 2.0], torch.tensor(0.5)), torch.Tensor)
    assert mittag_leffler(np.full((2, 3), -1.0), 0.5).shape == (2, 3)
    assert mittag_leffler(np.zeros((0, 3)), 0.5).shape == (0, 3)
    assert mittag_leffler(np.array([-1.0 + 0j]), 0.5).dtype == np.complex128
    assert mittag_leffler(np.ones(2, dtype=np.float32), 0.5).dtype == np.float32
    assert mittag_leffler(-np.ones(3), np.array([[0.5], [0.6]]), np.array([1.0, 2.0, 3.0])).shape == (2, 3)
    for kind in (torch.float32, torch.float64, torch.complex64):
        assert mittag_leffler(torch.tensor(-1.0, dtype=kind), 0.5).shape == ()
        result = mittag_leffler(torch.tensor([-1.0, 2.0], dtype=kind), 0.5)
        assert result.dtype == kind
        torch.testing.assert_close(result, mittag_leffler(torch.tensor([-1.0, 2.0]).double(), 0.5).to(kind))
    assert mittag_leffler(torch.tensor([-1, 2]), 0.5).dtype == torch.float64
    many = mittag_leffler(np.linspace(-5, 1, 10_001), 0.5)
    assert many[5000] == pytest.approx(mittag_leffler(np.linspace(-5, 1, 10_001)[5000], 0.5), rel=1e-14)


def test_values_beyond_the_range_of_floats_are_infinite():
    assert mittag_leffler(1e5, 0.5).item() == np.inf
    assert mittag_leffler(1e300, 2.0).item() == np.inf
    assert mittag_leffler(710.0, 1.0).item() == mittag_leffler(710.0, torch.tensor(1.0)).item() == np.inf
    assert mittag_leffler(-1e300, 0.5).item() == pytest.approx(1e-300 / np.sqrt(np.pi), rel=1e-13)
