"""The paper's regularization of W, K and b, and plain decay of matrices."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch.linalg import vector_norm

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.architecture import Weights
from fracdnn.tracing import outside_of_modes
from fracdnn.validation import check_choice

Linear = Callable[[torch.Tensor], torch.Tensor]
LAPLACIANS = ("time", "matrix")


@dataclass(frozen=True)
class Regularization:
    """ξ_W/2 ‖W‖² + ξ_K/(2N) ‖(−Δ)^s K‖² + ξ_b/(2N) ‖b‖² + ξ/2 ‖K, input projection‖².

    The first three are the paper's. Its (−Δ)_h is not spelled out: `laplacian="time"` is the second difference over the
    layers, "matrix" that over rows and columns of each K; both with reflecting ends, so that a constant costs nothing.
    `exponent` s ≠ 1 is the spectral fractional Laplacian. The last term, plain decay of all matrices but W, is not in
    the paper; a stencil ψ takes the place of K.
    """

    decay_output: float = 0.0
    smooth: float = 0.0
    decay_bias: float = 0.0
    decay: float = 0.0
    laplacian: str = "time"
    exponent: float = 1.0

    def __post_init__(self) -> None:
        check_choice(self.laplacian, "laplacian", LAPLACIANS)

    def __call__(self, network: FractionalNetwork) -> torch.Tensor:
        weights = network.weights()
        total = weights.W.new_zeros(())
        for factor, name, laplacian in self._terms(weights):
            parameter = getattr(weights, name)
            image = parameter if laplacian is None else laplacian(parameter)
            total = total + (0.5 * factor) * image.square().sum()
        return total

    def add_to_gradients(self, weights: Weights) -> float | torch.Tensor:
        """The same as a number, on a GPU as a tensor; its gradients are added to those of the parameters, in place."""
        total: float | torch.Tensor = 0.0
        for factor, name, laplacian in self._terms(weights):
            parameter = getattr(weights, name)
            image = parameter if laplacian is None else laplacian(parameter)
            norm = vector_norm(image)
            total += 0.5 * factor * (norm if norm.is_cuda else float(norm)) ** 2
            if parameter.requires_grad:
                gradient = image if laplacian is None else laplacian(image)
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                parameter.grad.add_(gradient, alpha=factor)
        return total

    def _terms(self, weights: Weights) -> list[tuple[float, str, Linear | None]]:
        """The terms ½ factor ‖A p‖², as the factor, the name of p and a symmetric A, None for the identity."""
        n_layers, laplacian = len(weights.operators), self._time if self.laplacian == "time" else self._matrix
        if self.smooth and self.laplacian == "matrix" and weights.operators.dim() < 3:
            raise InvalidArgumentError(
                "laplacian must be 'time' for stencils, got 'matrix'; a stencil has no rows and columns, so pass "
                "laplacian='time', which smooths it over the layers"
            )
        terms = (
            (self.decay_output, "W", None),
            (self.smooth / n_layers, "operators", laplacian),
            (self.decay, "operators", None),
            (self.decay, "input_weight", None),
            (self.decay_bias / n_layers, "b", None),
        )
        return [term for term in terms if term[0] and getattr(weights, term[1]) is not None]

    def _time(self, operators: torch.Tensor) -> torch.Tensor:
        """(−Δ)^s over the layers."""
        laplacian = neumann_laplacian(len(operators), self.exponent, operators.dtype, operators.device)
        return (laplacian @ operators.reshape(len(operators), -1)).view_as(operators)

    def _matrix(self, operators: torch.Tensor) -> torch.Tensor:
        """(−Δ)^s over rows and columns."""
        values, vectors = _spectrum(operators.shape[-1], operators.dtype, operators.device)
        modes = (values.unsqueeze(-1) + values) ** self.exponent * (vectors.T @ operators @ vectors)
        return vectors @ modes @ vectors.T


# Constants stay where they were first needed: a CUDA graph goes on reading them.


@cache
def neumann_laplacian(
    n: int, exponent: float = 1.0, dtype: torch.dtype = torch.float64, device: torch.device | None = None
) -> torch.Tensor:
    """(−Δ)^exponent on n points with reflecting ends, [n, n]: 2, −1 off the diagonal, 1 in the corners."""
    values, vectors = _spectrum(n)
    return outside_of_modes(lambda: (vectors @ (values**exponent * vectors).T).to(device, dtype))


@cache
def _spectrum(
    n: int, dtype: torch.dtype = torch.float64, device: torch.device | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Eigenvalues and eigenvectors (cosines) of the second difference with reflecting ends."""

    def spectrum() -> tuple[torch.Tensor, torch.Tensor]:
        k = torch.arange(n, dtype=torch.float64)
        values = 4.0 * torch.sin(torch.pi * k / (2 * n)) ** 2
        vectors = torch.cos(torch.pi * k * (k.unsqueeze(-1) + 0.5) / n)
        return values.to(device, dtype), (vectors / vectors.norm(dim=0)).to(device, dtype)

    return outside_of_modes(spectrum)
