"""What is to be learned: a network, an objective, and the data."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from fracdnn.nn import FractionalNetwork
from fracdnn.training.evaluation import backward, check_labels, evaluate
from fracdnn.training.history import Record
from fracdnn.training.objective import Objective


@dataclass
class Task:
    """A network, what to minimise, and the data: x [n, n_features], target, and a weight for each sample or none.

    `generator` draws mini-batches; `watch` is told of each record as it comes and may raise KeyboardInterrupt to end
    the training there. `validation` is what early stopping looks at; where it is None, a part of the samples.
    """

    network: FractionalNetwork
    objective: Objective
    x: torch.Tensor
    target: torch.Tensor
    weight: torch.Tensor | None = None
    generator: torch.Generator = field(default_factory=torch.Generator)
    watch: Callable[[Record], None] | None = None
    validation: "Task | None" = None
    # Of the last `backward`.
    output: torch.Tensor = field(default_factory=lambda: torch.empty(0), init=False, repr=False)

    def digest(self) -> str:
        """The same for the same samples, and other for others."""
        digest = hashlib.sha256()
        for part in (self.x, self.target, self.weight):
            if part is not None:
                digest.update(part.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def part(self, index: torch.Tensor) -> "Task":
        """The same task on some of the samples."""
        weight = None if self.weight is None else self.weight[index]
        return replace(self, x=self.x[index], target=self.target[index], weight=weight)

    def batches(self, size: int) -> list["Task"]:
        """The same task on `size` samples after the other, without copies."""
        n = -(-len(self.x) // size)
        weights = [None] * n if self.weight is None else self.weight.split(size)
        parts = zip(self.x.split(size), self.target.split(size), weights, strict=True)
        return [replace(self, x=x, target=target, weight=weight) for x, target, weight in parts]

    def loss(self) -> torch.Tensor:
        """The objective: data and regularisation."""
        return self.objective(self.network, self.x, self.target, self.weight)

    def backward(self) -> float:
        """The objective, its gradients added to those of the parameters."""
        value, self.output = backward(self.objective, self.network, self.x, self.target, self.weight)
        return value

    def evaluate(self) -> float | torch.Tensor:
        """`backward` with a value that stays on a GPU, for which nobody waits."""
        value, self.output = evaluate(self.objective, self.network, self.x, self.target, self.weight)
        return value

    def check_labels(self) -> None:
        """Refuse labels that have no output; on a GPU an evaluation does not look at them."""
        check_labels(self.objective.loss, self.network.architecture.n_outputs, self.target)

    def data_loss(self) -> torch.Tensor:
        return self.objective.data_loss(self.network(self.x), self.target, self.weight)

    def accuracy(self, output: torch.Tensor) -> float | None:
        """The share of samples, by weight, that outputs put in the right class; None for a regression."""
        if self.objective.loss != "cross_entropy" or not len(output):
            return None
        hits = (output.max(1).indices == self.target).to(output.dtype)
        return float(hits.mean() if self.weight is None else (hits @ self.weight) / self.weight.sum())


@torch.no_grad()
def accuracy(network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor) -> float:
    """Alg. 4: the share of samples whose predicted class is the true one."""
    return float((network(x).argmax(1) == target).to(torch.float64).mean())
