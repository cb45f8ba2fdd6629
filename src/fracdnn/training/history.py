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
    """Records in order, and why training stopped."""

    records: list[Record] = field(default_factory=list)
    status: str = ""

    def column(self, name: str) -> list[Any]:
        """One field of all records."""
        return [getattr(record, name) for record in self.records]

    @property
    def line_search_trials(self) -> int:
        return sum(record.line_search_trials for record in self.records)

    def to_dict(self) -> dict[str, Any]:
        return {"status": self.status, "records": [asdict(record) for record in self.records]}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "History":
        return cls([Record(**record) for record in document["records"]], document["status"])


def layer_gradient_norms(network: FractionalNetwork) -> list[float]:
    """The norm of (∇K, ∇b) of each layer, from the gradients as they stand."""
    joined = network.joined_gradients()
    if joined is not None:
        rows = (part.reshape(len(joined[0]), -1).numpy() for part in joined if len(part))
        return np.sqrt(sum(np.square(row).sum(1) for row in rows)).tolist()
    norms = []
    for layer in network.layers:
        parts = [p.grad.reshape(-1) for p in layer.parameters() if p.grad is not None]
        norms.append(torch.cat(parts).norm() if parts else torch.zeros(()))
    return torch.stack([norm.detach().cpu() for norm in norms]).tolist()
