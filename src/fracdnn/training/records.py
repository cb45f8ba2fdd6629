"""What happened during training, for plots and reports."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from fracdnn.nn import FractionalNetwork


@dataclass(frozen=True)
class Record:
    """One iteration or epoch. `layer_gradients` holds the gradient norm of each layer, first to last."""

    iteration: int
    loss: float
    gradient_norm: float
    layer_gradients: list[float]
    line_search_trials: int = 0
    accuracy: float | None = None
    validation_score: float | None = None


@dataclass
class History:
    """Records in order, and why training stopped."""

    records: list[Record] = field(default_factory=list)
    status: str = ""

    def column(self, name: str) -> list[Any]:
        return [getattr(record, name) for record in self.records]

    @property
    def line_search_trials(self) -> int:
        return sum(record.line_search_trials for record in self.records)

    @property
    def kept_iteration(self) -> int:
        """The iteration whose network is kept: the best on held-out samples, the last one without them; or 0."""
        scored = [record for record in self.records if record.validation_score is not None]
        if scored:
            return min(scored, key=lambda record: record.validation_score or 0.0).iteration
        return self.records[-1].iteration if self.records else 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "History":
        """Invert `to_dict`; raise TypeError if the document holds anything but records."""
        records = [Record(**record) for record in document["records"]]
        plain = isinstance(document["status"], str)
        for each in records:
            numbers = [each.loss, each.gradient_norm, each.accuracy or 0.0, each.validation_score or 0.0]
            numbers += each.layer_gradients
            plain = plain and isinstance(each.layer_gradients, list)
            plain = plain and all(isinstance(number, float | int) for number in numbers)
            plain = plain and all(isinstance(count, int) for count in (each.iteration, each.line_search_trials))
        if not plain:
            raise TypeError("a history of something else than numbers")
        return cls(records, document["status"])


def record_of(
    network: FractionalNetwork,
    number: int,
    loss: float,
    accuracy: float | None,
    gradient_norm: float | None = None,
    line_search_trials: int = 0,
) -> Record:
    """Return a record for the point where the network and its gradients stand."""
    if gradient_norm is None:
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        gradient_norm = float(torch.nn.utils.get_total_norm(gradients))
    return Record(number, loss, gradient_norm, layer_gradient_norms(network), line_search_trials, accuracy)


def layer_gradient_norms(network: FractionalNetwork) -> list[float]:
    """Return the norm of (∇K, ∇b) for each layer, from the gradients as they stand."""
    weights = network.weights()
    gradients = [p.grad for p in (weights.operators, weights.b) if p is not None and p.grad is not None]
    squares = [gradient.detach().reshape(len(gradient), -1).double().square().sum(1) for gradient in gradients]
    return torch.stack(squares).sum(0).sqrt().tolist() if squares else [0.0] * len(weights.operators)
