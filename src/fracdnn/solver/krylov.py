"""(I − W J)⁻¹ from products with func's Jacobians alone, for many components that all depend on one another."""

import math

import torch

from fracdnn.exceptions import FracdnnError, InvalidArgumentError, NotConvergedError
from fracdnn.solver.convergence import component_sizes, sizes
from fracdnn.solver.implicit import solved_linear
from fracdnn.solver.jacobians import unhooked
from fracdnn.solver.problem import Problem

_PART = 1e-4  # of a residual that is left: each iteration of Newton's method gains so much
_MOST = 200  # products for one of them
_SIGNS = 4.0  # deviations of a sum of terms with signs at random


class Products:
    """Func's derivatives at the points [1, S, d] of a panel, times any directions.

    What a pass backward gives is linear in the cotangent: its own derivative is the product wanted.
    """

    def __init__(self, problem: Problem, clock: tuple[torch.Tensor, ...], states: torch.Tensor) -> None:
        self.unit = component_sizes(states)
        with torch.inference_mode(False), torch.enable_grad(), unhooked():
            at = states.detach().clone().requires_grad_()
            slopes = problem.slopes(tuple(time.detach().clone() for time in clock), at)
            self._cotangent = torch.zeros_like(slopes, requires_grad=True)
            try:
                (self._back,) = torch.autograd.grad(slopes, at, self._cotangent, create_graph=True)
                self(states)
            except (RuntimeError, FracdnnError) as error:
                raise InvalidArgumentError(
                    f"func must have second derivatives where it is stiff and its {at.shape[-1]} components all depend "
                    f"on one another, got: {error}; write it in torch's operations, or pass method='adams' and n_steps="
                ) from error

    def __call__(self, direction: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(False):
            (along,) = torch.autograd.grad(self._back, self._cotangent, direction.clone().to(self._back), True)
        return along


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
