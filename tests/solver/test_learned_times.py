import math

import pytest
import torch

from fracdnn.solver import fdeint
from tests.solver.calls import grouped


@pytest.mark.parametrize(
    "options",
    [{}, {"method": "adams", "n_steps": 40}, {"grid": "graded", "n_steps": 20}],
    ids=["collocation", "uniform", "graded"],
)
def test_times_and_start_may_carry_a_gradient(options):
    """On every grid, and without a warning: u = y0 + t^0.6 / Γ(1.6)."""
    y0 = torch.zeros((), dtype=torch.float64, requires_grad=True)
    t = torch.tensor([0.0, 0.3, 0.8], dtype=torch.float64, requires_grad=True)
    u = fdeint(lambda s, y: torch.ones_like(y), y0, t, order=0.6, **grouped(**options))
    for place in (1, 2):
        by_start, by_times = torch.autograd.grad(u[place], (y0, t), retain_graph=True)
        expected = float(t[place].detach()) ** -0.4 / math.gamma(0.6)
        assert math.isclose(float(by_start), 1.0, rel_tol=1e-9)
        assert math.isclose(float(by_times[place]), expected, rel_tol=1e-6)
        assert math.isclose(float(by_times[0]), -expected, rel_tol=1e-6)
