"""The objective of a training: a loss of the outputs plus the regularization."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.architecture import Weights
from fracdnn.tracing import outside_of_modes
from fracdnn.validation import check_choice

LOSSES, LAPLACIANS = ("cross_entropy", "squared_error"), ("time", "matrix")
# Features, targets, and the weights of the samples or None.
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

    def _terms(self, weights: Weights) -> list[tuple[float, Any, Linear | None]]:
        """Return the terms ½ factor ‖A p‖² as the factor, p, and a symmetric A or None for the identity."""
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
        """Apply (−Δ)^s over the layers."""
        laplacian = neumann_laplacian(len(operators), self.exponent, operators.dtype, operators.device)
        return (laplacian @ operators.reshape(len(operators), -1)).view_as(operators)

    def _matrix(self, operators: torch.Tensor) -> torch.Tensor:
        """Apply (−Δ)^s over rows and columns."""
        values, vectors = _spectrum(operators.shape[-1], operators.dtype, operators.device)
        modes = (values.unsqueeze(-1) + values) ** self.exponent * (vectors.T @ operators @ vectors)
        return vectors @ modes @ vectors.T


@cache
def neumann_laplacian(
    n: int, exponent: float = 1.0, dtype: torch.dtype = torch.float64, device: torch.device | None = None
) -> torch.Tensor:
    """Return (−Δ)^exponent on n points with reflecting ends, [n, n]: 2, −1 off the diagonal, 1 in the corners."""
    values, vectors = _spectrum(n)
    return outside_of_modes(lambda: (vectors @ (values**exponent * vectors).T).to(device, dtype))


@cache
def _spectrum(
    n: int, dtype: torch.dtype = torch.float64, device: torch.device | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return eigenvalues and eigenvectors (cosines) of the second difference with reflecting ends."""

    def spectrum() -> tuple[torch.Tensor, torch.Tensor]:
        k = torch.arange(n, dtype=torch.float64)
        values = 4.0 * torch.sin(torch.pi * k / (2 * n)) ** 2
        vectors = torch.cos(torch.pi * k * (k.unsqueeze(-1) + 0.5) / n)
        return values.to(device, dtype), (vectors / vectors.norm(dim=0)).to(device, dtype)

    return outside_of_modes(spectrum)


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
        """Return the same without label smoothing, by which held-out samples are judged."""
        return replace(self, label_smoothing=0.0)

    def __call__(
        self, network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.of_outputs(network, network(x), target, weight)

    def of_outputs(
        self, network: FractionalNetwork, outputs: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the objective from the network's outputs."""
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

    def check_labels(self, n_outputs: int, target: torch.Tensor) -> None:
        """Refuse labels that have no output: on a GPU they would end the process."""
        if self.loss != "cross_entropy" or not len(target):
            return
        bad = target[(target < 0) | (target >= n_outputs)]
        if len(bad):
            raise InvalidArgumentError(
                f"target must hold classes from 0 to {n_outputs - 1} for {n_outputs} outputs, got {int(bad[0])}; "
                f"number the classes from 0, or give the network more outputs"
            )


def backward(
    objective: Objective,
    network: FractionalNetwork,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
) -> tuple[float, torch.Tensor]:
    """Return the objective as a number and the outputs; add the gradients to those of the parameters."""
    with torch.enable_grad():
        outputs = network(x)
        loss = objective.of_outputs(network, outputs, target, weight)
        loss.backward()
    return float(loss.detach()), outputs.detach()
