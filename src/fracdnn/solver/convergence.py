"""How iterations converge, component by component: a large component must not end the iteration of a small one."""

import math
from collections.abc import Callable

import torch

from fracdnn.solver.arrays import Array, component_sizes, library, norm, rounding, sizes

# Of changes that do not become this much shorter within a window of iterations, func's noise is taken to be the cause,
# if they are this small a part of the states; longer ones are an iteration that does not converge.
_STUCK, _LONGER, _SMALL = 0.5, 4.0, 1e-2
_GREW = 3.0  # from the first change to the last, with which an iteration diverges
_DEPTH = 5  # of Anderson's memory
_LOOKS = 20  # iterations of GMRES after which not each one looks whether it was the last


class Progress:
    """The lengths of the changes so far, [G, d] each, and the rates at which they become shorter."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._lengths: list[Array] = []
        self.length: Array = None  # of the last change
        self.begins = False  # whether there was but one, so that no rate is known

    @property
    def largest(self) -> float:
        """Of all components."""
        return norm(self.length) if self._lengths else math.inf

    @property
    def grew(self) -> bool:
        """Whether changes have become longer, as in a stiff system, rather than stayed as they are."""
        return len(self._lengths) > 1 and self.largest > _GREW * norm(self._lengths[0])

    def note(self, change: Array) -> Array:
        """The rate of each component, 1 for the first change."""
        self.length = sizes(change)
        self._lengths.append(self.length)
        self.begins = len(self._lengths) == 1
        if self.begins:
            return 0.0 * self.length + 1.0
        return self.length / self._lengths[-2].clip(min=float(library(change).finfo(change.dtype).tiny))

    def stalls(self, done: Array) -> bool:
        """Whether no component becomes better that is not done."""
        if len(self._lengths) < 2 * self._window:
            return False
        recent, earlier = self._recent(0), self._recent(1)
        # Changes that become longer may still lead somewhere.
        return bool((done | ((recent > _STUCK * earlier) & (recent < _LONGER * earlier))).all())

    def is_stuck(self, done: Array, states: Array) -> bool:
        """Whether it stalls with little left, as with a func that has so much noise."""
        return self.stalls(done) and bool((done | (self._recent(0) <= _SMALL * sizes(states))).all())

    def _recent(self, windows_ago: int) -> Array:
        """The shortest changes within a window."""
        end = len(self._lengths) - windows_ago * self._window
        window = library(self.length).stack(self._lengths[end - self._window : end])
        return library(window).amin(window, 0)


class Mixing:
    """Anderson's: the next iterate, of the last images and residuals those whose residual is least.

    Residuals are measured in units of their components.
    """

    def __init__(self) -> None:
        self._images: list[Array] = []
        self._residuals: list[Array] = []
        self._unit: Array | None = None

    def next(self, image: Array, residual: Array) -> Array:
        """Where to look next, after an iterate with this image and residual, the way to it."""
        if self._unit is None:
            self._unit = component_sizes(image)
        self._images = [*self._images[-_DEPTH:], image.reshape(-1)]
        self._residuals = [*self._residuals[-_DEPTH:], (residual / self._unit).reshape(-1)]
        if len(self._images) == 1:
            return image
        of = library(image)
        changes = of.stack(self._residuals[:-1])
        changes -= self._residuals[-1]
        # By normal equations of rows of length 1: their loss of digits costs an iteration, a decomposition many.
        products = changes @ changes.T
        lengths = (products.diagonal() + of.finfo(image.dtype).tiny) ** 0.5
        products = products / (lengths[:, None] * lengths) + of.diag(0.0 * lengths + 10.0 * rounding(image))
        factors = of.linalg.solve(products, -(changes @ self._residuals[-1]) / lengths) / lengths
        mixed = (1.0 - factors.sum()) * self._images[-1] + factors @ of.stack(self._images[:-1])
        return mixed.reshape(image.shape)


def solved_linear(
    function: Callable[[torch.Tensor], torch.Tensor], target: torch.Tensor, max_iterations: int, left: float = 0.0
) -> tuple[torch.Tensor | None, float]:
    """Where a linear function has the target's value, but for rounding and a part that may be `left`; and the residual.

    None where the iterations are not enough. By GMRES; source: Saad, Schultz, "GMRES: a generalized minimal residual
    algorithm for solving nonsymmetric linear systems", 1986.
    """
    size = float(target.norm())
    if not size:
        return target, 0.0
    basis = [target.reshape(-1) / size]
    projected = target.new_zeros(max_iterations + 1, max_iterations, dtype=torch.float64)
    goal = target.new_zeros(max_iterations + 1, dtype=torch.float64)
    goal[0] = size
    for k in range(max_iterations):
        known, image = torch.stack(basis), function(basis[k].reshape(target.shape)).reshape(-1)
        for _ in range(2):  # the second time takes what rounding left of the first
            parts = known @ image
            image = image - parts @ known
            projected[: k + 1, k] += parts
        rest = image.norm()
        projected[k + 1, k] = rest
        basis.append(image / rest)
        if k % (1 + k // _LOOKS) and float(rest) and k + 1 < max_iterations:
            continue
        matrix, wanted = projected[: k + 2, : k + 1], goal[: k + 2]
        factors = torch.linalg.lstsq(matrix, wanted.unsqueeze(-1)).solution.squeeze(-1)
        residual = wanted - matrix @ factors
        rounded = 8.0 * rounding(target) * (size + norm(matrix.abs() @ factors.abs()))
        if norm(residual) <= max(left * size, rounded) or not float(rest):
            return (factors.to(known.dtype) @ known).reshape(target.shape), norm(residual)
    return None, norm(residual)
