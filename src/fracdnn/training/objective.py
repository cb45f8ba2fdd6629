"""What is minimized: a loss of the outputs plus the regularization. The definition; `evaluation` says how it is run."""

from dataclasses import dataclass, field, replace

import torch
from torch.nn.functional import cross_entropy

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.training.regularization import Regularization
from fracdnn.validation import check_choice

LOSSES = ("cross_entropy", "squared_error")


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
        if self.loss == "squared_error" and target.shape != outputs.shape:
            raise InvalidArgumentError(
                f"target must have the shape of the outputs, {tuple(outputs.shape)}, got {tuple(target.shape)}; "
                f"for one output pass target.unsqueeze(1)"
            )
        if weight is None and self.loss == "cross_entropy":
            return cross_entropy(outputs, target, label_smoothing=self.label_smoothing)
        losses = self.losses(outputs, target)
        return losses.mean() if weight is None else (losses @ weight) / weight.sum()

    def losses(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Of each sample, [n]."""
        if self.loss == "squared_error":
            return 0.5 * (outputs - target).square().mean(1)
        return cross_entropy(outputs, target, reduction="none", label_smoothing=self.label_smoothing)
