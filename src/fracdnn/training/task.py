"""What is to be learnt: a network, an objective, and the data."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from fracdnn.nn import FractionalNetwork
from fracdnn.training.history import Record
from fracdnn.training.objective import Objective


@dataclass
class Task:
    """A network, what to minimise, and the data: x [n, n_features], target, and a weight for each sample or none.

    `generator` draws mini-batches; `watch` is told of each record as it comes and may raise KeyboardInterrupt to end
    the training there.
    """

    network: FractionalNetwork
    objective: Objective
    x: torch.Tensor
    target: torch.Tensor
    weight: torch.Tensor | None = None
    generator: torch.Generator = field(default_factory=torch.Generator)
    watch: Callable[[Record], None] | None = None
    _output: torch.Tensor | None = field(default=None, init=False, repr=False)

    def part(self, index: torch.Tensor) -> "Task":
        """The same task on some of the samples."""
        weight = None if self.weight is None else self.weight[index]
        return replace(self, x=self.x[index], target=self.target[index], weight=weight)

    def loss(self) -> torch.Tensor:
        """The objective: data and regularisation."""
        value, self._output = self.objective.value_and_outputs(self.network, self.x, self.target, self.weight)
        return value

    def backward(self) -> float:
        """The objective, its gradients added to those of the parameters."""
        value, self._output = self.objective.backward(self.network, self.x, self.target, self.weight)
        return value

    def data_loss(self) -> torch.Tensor:
        return self.objective.data_loss(self.network(self.x), self.target, self.weight)

    def last_accuracy(self) -> float | None:
        """The share, by weight, that the last loss found in the right class; None for a regression."""
        if self.objective.loss != "cross_entropy" or self._output is None:
            return None
        hits = (self._output.max(1).indices == self.target).to(self._output.dtype)
        return float(hits.mean() if self.weight is None else (hits @ self.weight) / self.weight.sum())


@torch.no_grad()
def accuracy(network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor) -> float:
    """Alg. 4: the share of samples whose predicted class is the true one."""
    return float((network(x).argmax(1) == target).to(torch.float64).mean())
