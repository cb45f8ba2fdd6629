"""What is minimised: a loss of the outputs plus the paper's regularisation of W, K and b."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch.linalg import vector_norm
from torch.nn.functional import cross_entropy

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import dense_objective
from fracdnn.training.fused_objective import evaluated, with_graph
from fracdnn.validation import check_choice

Linear = Callable[[torch.Tensor], torch.Tensor]
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
        opening = () if network.opening is None else (network.opening.weight,)
        return self.of(*network.matrices(), *opening)

    def of(self, *parameters: torch.Tensor) -> torch.Tensor:
        """The same of K, b, W and, where there is one, the opening map."""
        total = parameters[2].new_zeros(())
        for factor, i, root in self._terms(parameters):
            total = total + 0.5 * factor * root(parameters[i]).pow(2).sum()
        return total

    def add_gradients(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> float:
        """`of(parameters)`, and its gradients added to `gradients`, in place."""
        total = 0.0
        for factor, i, root in self._terms(parameters):
            image = root(parameters[i])
            total += 0.5 * factor * float(vector_norm(image)) ** 2
            gradients[i].add_(root(image), alpha=factor)
        return total

    def _terms(self, parameters: Sequence[torch.Tensor]) -> Iterator[tuple[float, int, Linear]]:
        """The terms ½ factor ‖A p_i‖², as (factor, i, A) with a symmetric A, for parameters K, b, W, opening map."""
        n_layers, laplacian = len(parameters[0]), self._time if self.laplacian == "time" else self._matrix
        terms = [
            (self.class_map, 2, _same),
            (self.operator / n_layers, 0, laplacian),
            (self.decay, 0, _same),
            (self.decay, 3, _same),
            (self.bias / n_layers, 1, _same),
        ]
        return (term for term in terms if term[0] and term[1] < len(parameters))

    def _time(self, operators: torch.Tensor) -> torch.Tensor:
        """(−Δ)^s over the layers."""
        laplacian = neumann_laplacian(len(operators), self.exponent).to(operators)
        return (laplacian @ operators.reshape(len(operators), -1)).view_as(operators)

    def _matrix(self, operators: torch.Tensor) -> torch.Tensor:
        """(−Δ)^s over rows and columns."""
        values, vectors = (part.to(operators) for part in _spectrum(operators.shape[-1]))
        modes = (values.unsqueeze(-1) + values) ** self.exponent * (vectors.T @ operators @ vectors)
        return vectors @ modes @ vectors.T


def _same(parameter: torch.Tensor) -> torch.Tensor:
    return parameter


@lru_cache(maxsize=32)
def neumann_laplacian(n: int, exponent: float = 1.0) -> torch.Tensor:
    """(−Δ)^exponent on n points with reflecting ends, [n, n] float64: 2, −1 off the diagonal, 1 in the corners."""
    values, vectors = _spectrum(n)
    with torch.inference_mode(False):
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
        return self.value_and_outputs(network, x, target, weight)[0]

    def value_and_outputs(
        self, network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The objective, and the outputs by themselves, without a graph."""
        found = evaluated(self, network, x, target, weight) if self._is_plain else None
        if found is None:
            return self._usual(network, x, target, weight)
        return with_graph(self, network, target, weight, found), found.outputs

    def backward(
        self, network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None
    ) -> tuple[float, torch.Tensor]:
        """The objective as a number and the outputs; the gradients are added to those of the parameters."""
        if self._is_plain:
            found = evaluated(self, network, x, target, weight)
            if found is not None:
                found.backward()
                return found.value, found.outputs
            known = dense_objective.backward(self, network, x, target, weight)
            if known is not None:
                return known
        value, outputs = self._usual(network, x, target, weight)
        value.backward()
        return float(value.detach()), outputs

    @property
    def _is_plain(self) -> bool:
        """Whether it is what this file says, and not what a subclass makes of it: quicker ways know only that."""
        return type(self) is Objective and type(self.regularization) is Regularization

    def _usual(
        self, network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with network.stacked_once():
            outputs = network(x)
            return self.data_loss(outputs, target, weight) + self.regularization(network), outputs.detach()

    def data_loss(self, output: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        if self.loss == "cross_entropy":
            losses = cross_entropy(output, target, reduction="none", label_smoothing=self.label_smoothing)
        else:
            losses = 0.5 * (output - target).pow(2).mean(1)
        return losses.mean() if weight is None else (losses @ weight) / weight.sum()
