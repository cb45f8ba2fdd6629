"""What is learned: a network, an objective, and the data."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import torch

from fracdnn.nn import FractionalNetwork
from fracdnn.training.objective import Chunk, Objective, backward
from fracdnn.training.records import Record


@dataclass(eq=False)
class Task:
    """A network, what to minimize, and the data: x [n, n_features], target, and a weight for each sample or none.

    `generator` draws mini-batches. `watch` is called with each record and may raise KeyboardInterrupt to end the
    training there. Early stopping holds out the rows `held_out`, or random ones where it is None. `identity` replaces
    the hash of the samples in checkpoints.
    """

    network: FractionalNetwork
    objective: Objective
    x: torch.Tensor
    target: torch.Tensor
    weight: torch.Tensor | None = None
    generator: torch.Generator = field(default_factory=torch.Generator)
    watch: Callable[[Record], None] | None = None
    held_out: torch.Tensor | None = None
    identity: str | None = None
    # The outputs of the last `backward`.
    output: torch.Tensor = field(default_factory=lambda: torch.empty(0), init=False, repr=False)

    @property
    def chunk(self) -> Chunk:
        return self.x, self.target, self.weight

    @property
    def n(self) -> int:
        return len(self.x)

    def digest(self) -> str:
        """Return a hash of the samples, or their `identity`."""
        return self.identity or digest(part for part in self.chunk if part is not None)

    def part(self, rows: torch.Tensor) -> "Task":
        """Return the same task on some of the samples."""
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, x=self.x[rows], target=self.target[rows], weight=weight)

    def loss(self) -> torch.Tensor:
        return self.objective(self.network, *self.chunk)

    def data_loss(self) -> torch.Tensor:
        return self.objective.data_loss(self.network(self.x), self.target, self.weight)

    def backward(self) -> float:
        """Return the objective; add its gradients to those of the parameters."""
        value, self.output = backward(self.objective, self.network, *self.chunk)
        return value

    def accuracy(self, output: torch.Tensor) -> float | None:
        """Return the share of samples, by weight, whose largest output is the right class; None for a regression."""
        if self.objective.loss != "cross_entropy":
            return None
        hits = (output.max(1).indices == self.target).to(output.dtype)
        weight = torch.ones_like(hits) if self.weight is None else self.weight
        return float(hits @ weight) / float(weight.sum())


@torch.no_grad()
def accuracy(network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor) -> float:
    """Return the share of samples whose predicted class is the true one (the paper's Alg. 4)."""
    return float((network(x).argmax(1) == target).to(torch.float64).mean())


def digest(parts: Iterable[torch.Tensor]) -> str:
    """Return a hash of tensors with their dtypes and shapes."""
    found = hashlib.sha256()
    for part in parts:
        found.update(f"{part.dtype} {tuple(part.shape)}".encode())
        found.update(part.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()
