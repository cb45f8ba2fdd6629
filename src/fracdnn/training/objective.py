"""What is minimized: a loss of the outputs plus the regularization. The definition; `evaluation` says how it is run."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch.linalg import vector_norm
from torch.nn.functional import cross_entropy

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.architecture import Weights
from fracdnn.tracing import outside_of_modes
from fracdnn.validation import check_choice

LOSSES, LAPLACIANS = ("cross_entropy", "squared_error"), ("time", "matrix")
# Features, targets, and weights or None.
Chunk = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
Linear = Callable[[torch.Tensor], torch.Tensor]


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
        for factor, parameter, laplacian in self._terms(weights):
            image = parameter if laplacian is None else laplacian(parameter)
            total = total + (0.5 * factor) * image.square().sum()
        return total

    def add_to_gradients(self, weights: Weights) -> float | torch.Tensor:
        """The same as a number, on a GPU as a tensor; its gradients are added to those of the parameters, in place."""
        total: float | torch.Tensor = 0.0
        for factor, parameter, laplacian in self._terms(weights):
            image = parameter if laplacian is None else laplacian(parameter)
            norm = vector_norm(image)
            total += 0.5 * factor * (norm if norm.is_cuda else float(norm)) ** 2
            if parameter.requires_grad:
                gradient = image if laplacian is None else laplacian(image)
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                parameter.grad.add_(gradient, alpha=factor)
        return total

    def _terms(self, weights: Weights) -> list[tuple[float, Any, Linear | None]]:
        """The terms ½ factor ‖A p‖², as the factor, p and a symmetric A, None for the identity."""
        n_layers, laplacian = len(weights.operators), self._time if self.laplacian == "time" else self._matrix
        if self.smooth and self.laplacian == "matrix" and weights.operators.dim() < 3:
            raise InvalidArgumentError(
                "laplacian must be 'time' for stencils, got 'matrix'; a stencil has no rows and columns, so pass "
                "laplacian='time', which smooths it over the layers"
            )
        terms: list[tuple[float, Any, Linear | None]] = [
            (self.decay_output, weights.W, None),
            (self.smooth / n_layers, weights.operators, laplacian),
            (self.decay, weights.operators, None),
            (self.decay, weights.input_weight, None),
            (self.decay_bias / n_layers, weights.b, None),
        ]
        return [term for term in terms if term[0] and term[1] is not None]

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


def whole_weight(x: torch.Tensor, weight: torch.Tensor | None) -> float:
    """What samples weigh together, as float64 adds it up; their number where they have no weights."""
    return float(len(x)) if weight is None else float(weight.sum(dtype=torch.float64))


def weighted_hits(output: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    """The weight of the samples that outputs put in the right class, and of all, float64 on the CPU."""
    hits = (output.max(1).indices == target).to(output.dtype)
    weight = torch.ones_like(hits) if weight is None else weight
    return torch.stack([hits @ weight, weight.sum()]).cpu().double()


@dataclass(frozen=True)
class Objective:
    """The mean loss of outputs against targets, weighted where weights are given, plus regularization.

    "cross_entropy" takes class indices [n]; "squared_error" takes values like the outputs, and is half the mean over
    samples and outputs. `label_smoothing` gives that share of a label's weight to all classes alike.
    """

    loss: str = "cross_entropy"
    regularization: Regularization = field(default_factory=Regularization)
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_choice(self.loss, "loss", LOSSES)
        if not 0 <= self.label_smoothing < 1:
            raise InvalidArgumentError(
                f"label_smoothing must lie in [0, 1), got {self.label_smoothing}; 0 takes the labels as they are"
            )

    def unsmoothed(self) -> "Objective":
        """With the labels as they are: what held-out samples are judged by."""
        return replace(self, label_smoothing=0.0)

    def __call__(
        self, network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.of_outputs(network, network(x), target, weight)

    def of_outputs(
        self, network: FractionalNetwork, outputs: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None
    ) -> torch.Tensor:
        """The objective where the network's outputs are known."""
        return self.data_loss(outputs, target, weight) + self.regularization(network)

    def data_loss(self, outputs: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        if self.loss == "cross_entropy":
            if weight is None:
                return cross_entropy(outputs, target, label_smoothing=self.label_smoothing)
            losses = cross_entropy(outputs, target, reduction="none", label_smoothing=self.label_smoothing)
        elif target.shape == outputs.shape:
            losses = 0.5 * (outputs - target).square().mean(1)
        else:
            raise InvalidArgumentError(
                f"target must have the shape of the outputs, {tuple(outputs.shape)}, got {tuple(target.shape)}; "
                f"for one output pass target.unsqueeze(1)"
            )
        return losses.mean() if weight is None else (losses @ weight) / weight.sum()
