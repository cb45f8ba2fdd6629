import pytest
import torch

from fracdnn.solver import fdeint


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({}, 1e-5),
        ({"rtol": 1e-9, "atol": 1e-12}, 1e-5),
        ({"method": "trapezoidal", "grid": "graded", "n_steps": 100}, 5e-5),
        ({"method": "bdf2", "n_steps": 100}, 2e-4),
    ],
    ids=["collocation", "collocation, precise", "trapezoidal", "bdf2"],
)
def test_stiff_stages_are_solved_as_far_as_rounding_lets_them(options, tolerance):
    """Eigenvalues −1 … −10⁴, where slopes round like 1e-12 and no iteration can do better."""
    vectors, _ = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    matrix = (vectors * -torch.tensor([1.0, 20.0, 500.0, 1e4], dtype=torch.float64)) @ vectors.T
    y0 = torch.ones(4, dtype=torch.float64)

    def rest(t, u):
        return torch.sin(3 * u) + 1

    exact = fdeint(rest, y0, [0.0, 1.0], order=0.5, linear=matrix, n_steps=1280, trajectory=False)
    u = fdeint(lambda t, u: u @ matrix.T + rest(t, u), y0, [0.0, 1.0], order=0.5, trajectory=False, **options)
    torch.testing.assert_close(u, exact, rtol=0, atol=tolerance)
