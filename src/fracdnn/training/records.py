"""What happened during training, for plots and reports."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
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
    """Records in order, why training stopped, and whether its steps ran from CUDA graphs."""

    records: list[Record] = field(default_factory=list)
    status: str = ""
    captured: bool = False

    def column(self, name: str) -> list[Any]:
        return [getattr(record, name) for record in self.records]

    @property
    def line_search_trials(self) -> int:
        return sum(record.line_search_trials for record in self.records)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "History":
        """The inverse of `to_dict`; a TypeError where the document holds something else than records."""
        records = [Record(**record) for record in document["records"]]
        status, captured = document["status"], document["captured"]
        plain = isinstance(status, str) and isinstance(captured, bool)
        for each in records:
            layers = each.layer_gradients
            numbers = (each.loss, each.gradient_norm, each.accuracy or 0.0, each.validation_score or 0.0)
            plain = plain and all(isinstance(count, int) for count in (each.iteration, each.line_search_trials))
            plain = plain and isinstance(layers, list) and all(isinstance(n, float | int) for n in (*numbers, *layers))
        if not plain:
            raise TypeError("a history of something else than numbers")
        return cls(records, status, captured)


def record_of(
    network: FractionalNetwork,
    number: int,
    loss: float,
    accuracy: float | None,
    gradient_norm: float | None = None,
    **others: Any,
) -> Record:
    """A record for the point where the network and its gradients stand."""
    if gradient_norm is None:
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        gradient_norm = float(torch.nn.utils.get_total_norm(gradients))
    return Record(number, loss, gradient_norm, layer_gradient_norms(network), accuracy=accuracy, **others)


def layer_gradient_norms(network: FractionalNetwork) -> list[float]:
    """The norm of (∇K, ∇b) of each layer, from the gradients as they stand."""
    weights = network.weights()
    parts = [p.grad for p in (weights.operators, weights.b) if p is not None and p.grad is not None]
    if not parts:
        return [0.0] * len(weights.operators)
    if parts[0].is_cuda:  # only the norms leave it
        sums = [part.detach().double().reshape(len(part), -1).square().sum(1) for part in parts]
        return torch.stack(sums).sum(0).sqrt().tolist()
    rows = (part.detach().reshape(len(part), -1).cpu().numpy() for part in parts)
    return np.sqrt(sum(np.square(row).sum(1) for row in rows)).tolist()
