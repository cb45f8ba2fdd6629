"""What is minimised: a loss of the outputs plus the paper's regularisation of W, K and b."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch.nn.functional import cross_entropy

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.validation import check_choice

LOSSES = ("cross_entropy", "squared_error")
LAPLACIANS = ("time", "matrix")


@dataclass(frozen=True)
class Regularization:
    """ξ_W/2 ‖W‖² + ξ_K/(2N) ‖(−Δ)^s K‖² + ξ_b/(2N) ‖b‖² + ξ/2 ‖K, opening map‖².

    The first three are the paper's. Its (−Δ)_h is not spelled out: `laplacian="time"` is the second difference over the
    layers, "matrix" that over rows and columns of each K; both with reflecting ends, so that a constant costs nothing.
    `exponent` s ≠ 1 is the spectral fractional Laplacian. The last term, plain decay of all matrices but W, is not in
    the paper; a stencil ψ takes the place of K.
    """

    class_map: float = 0.0
    operator: float = 0.0
    bias: float = 0.0
    decay: float = 0.0
    laplacian: str = "time"
    exponent: float = 1.0

    def __post_init__(self) -> None:
        check_choice(self.laplacian, "laplacian", LAPLACIANS)

    def __call__(self, network: FractionalNetwork) -> torch.Tensor:
        total = 0.5 * self.class_map * network.W.weight.pow(2).sum()
        if not (self.operator or self.decay or self.bias):
            return total
        operators, biases = network.stacked()
        n_layers = len(operators)
        if self.operator:
            total = total + 0.5 * self.operator / n_layers * self._smoothness(operators)
        if self.decay:
            total = total + 0.5 * self.decay * operators.pow(2).sum()
            if network.opening is not None:
                total = total + 0.5 * self.decay * network.opening.weight.pow(2).sum()
        if self.bias:
            total = total + 0.5 * self.bias / n_layers * biases.pow(2).sum()
        return total

    def _smoothness(self, operators: torch.Tensor) -> torch.Tensor:
        if self.laplacian == "time":
            laplacian = neumann_laplacian(len(operators), self.exponent).to(operators)
            return torch.tensordot(laplacian, operators, dims=1).pow(2).sum()
        values, vectors = (part.to(operators) for part in _spectrum(operators.shape[-1]))
        modes = vectors.T @ operators @ vectors
        return ((values.unsqueeze(-1) + values) ** self.exponent * modes).pow(2).sum()


def neumann_laplacian(n: int, exponent: float = 1.0) -> torch.Tensor:
    """(−Δ)^exponent on n points with reflecting ends, [n, n] float64: 2, −1 off the diagonal, 1 in the corners."""
    values, vectors = _spectrum(n)
    return vectors @ (values**exponent * vectors).T


@lru_cache(maxsize=32)
def _spectrum(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Eigenvalues and eigenvectors (cosines) of the second difference with reflecting ends."""
    with torch.inference_mode(False):
        k = torch.arange(n, dtype=torch.float64)
        values = 4.0 * torch.sin(torch.pi * k / (2 * n)) ** 2
        vectors = torch.cos(torch.pi * k * (k.unsqueeze(-1) + 0.5) / n)
        return values, vectors / vectors.norm(dim=0)


@dataclass(frozen=True)
class Objective:
    """The mean loss of outputs against targets, weighted where weights are given, plus regularisation.

    "cross_entropy" takes class indices [n]; "squared_error" takes values like the outputs, and is half the mean over
    samples and outputs. `label_smoothing` gives that share of a label's weight to all classes alike.
    """

    loss: str = "cross_entropy"
    regularization: Regularization = Regularization()
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_choice(self.loss, "loss", LOSSES)
        if not 0 <= self.label_smoothing < 1:
            raise InvalidArgumentError(
                f"label_smoothing must lie in [0, 1), got {self.label_smoothing}; 0 takes the labels as they are"
            )

    def __call__(
        self, network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None
    ) -> torch.Tensor:
        with network.stacked_once():
            return self.data_loss(network(x), target, weight) + self.regularization(network)

    def data_loss(self, output: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        if self.loss == "cross_entropy":
            losses = cross_entropy(output, target, reduction="none", label_smoothing=self.label_smoothing)
        else:
            losses = 0.5 * (output - target).pow(2).mean(1)
        return losses.mean() if weight is None else (losses @ weight) / weight.sum()
