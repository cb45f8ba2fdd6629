import mpmath
import numpy as np
import pytest
import torch
from scipy.special import erfcx

from fracdnn.caputo import mittag_leffler
from tests import references

ALPHAS = [0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.9999, 1.0]
REAL = [*-np.geomspace(1e-3, 1e4, 8), 0.1, 0.9, 1.1, 3.0, 10.0]


def relative_error(value, exact):
    return float(abs(mpmath.mpmathify(complex(value)) - exact) / abs(exact))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("beta", [None, 1.0, 0.3, 7.0])
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


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8, 0.99, 1.0])
@pytest.mark.parametrize("beta", [None, 1.0, 1.7])
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


def test_shapes_and_kinds_are_kept():
    assert np.isscalar(mittag_leffler(-1.0, 0.5))
    assert mittag_leffler(np.full((2, 3), -1.0), 0.5).shape == (2, 3)
    assert mittag_leffler(np.zeros((0, 3)), 0.5).shape == (0, 3)
    assert mittag_leffler(np.array([-1.0 + 0j]), 0.5).dtype == np.complex128
    result = mittag_leffler(torch.tensor([-1.0, 2.0], dtype=torch.float32), 0.5)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == torch.float64
    many = mittag_leffler(np.linspace(-5, 1, 10_001), 0.5)
    assert many[5000] == pytest.approx(mittag_leffler(np.linspace(-5, 1, 10_001)[5000], 0.5), rel=1e-14)
