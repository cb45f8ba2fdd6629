"""(I − W J)⁻¹ from products with func's Jacobians alone, for many components that all depend on one another."""

import math

import torch

from fracdnn.exceptions import NotConvergedError
from fracdnn.solver.convergence import sizes
from fracdnn.solver.implicit import solved_linear
from fracdnn.solver.jacobians import Products

_PART = 1e-4  # of a residual that is left: each iteration of Newton's method gains so much
_MOST = 200  # products for one of them
_SIGNS = 4.0  # deviations of a sum of terms with signs at random


class Unbounded:
    """A matrix whose inverse is known by what it makes of a vector alone, so that nothing bounds it."""

    def moved(self, residual: torch.Tensor, rounding: torch.Tensor) -> torch.Tensor:
        """How far a rounding of the equations may move the states: any way, where the residual is no more."""
        return torch.where(sizes(residual) <= sizes(rounding), math.inf, 0.0)


class Krylov(Unbounded):
    """For weights W [1, S, S]; by GMRES, in units of each component."""

    def __init__(self, weights: torch.Tensor, jacobian: Products) -> None:
        self.weights, self.jacobian = weights, jacobian

    def solve(self, values: torch.Tensor) -> torch.Tensor:
        """Of values [1, S, d]; not a number where the products that are allowed do not do."""
        unit = self.jacobian.unit

        def less(x: torch.Tensor) -> torch.Tensor:
            return x - self.weights @ self.jacobian(unit * x) / unit

        try:
            return unit * solved_linear(less, values / unit, _MOST, lambda _: NotConvergedError(""), _PART)
        except NotConvergedError:
            return math.nan * values

    def transposed(self) -> None:
        """Left to the caller."""

    def times(self, values: torch.Tensor) -> torch.Tensor:
        """J at each point."""
        return self.jacobian(values)

    def times_sizes(self, values: torch.Tensor) -> torch.Tensor:
        """About |J| |values|, as far as rounding makes it: with signs at random."""
        signs = torch.randint(2, values.shape, generator=torch.Generator().manual_seed(0)).to(values)
        return _SIGNS * self.jacobian((2.0 * signs - 1.0) * values).abs()
