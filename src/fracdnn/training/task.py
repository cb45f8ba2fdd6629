"""What is to be learned: a network, an objective, and the data."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.training.digest import digest
from fracdnn.training.evaluation import backward, check_labels, evaluate
from fracdnn.training.history import Record
from fracdnn.training.objective import Objective, whole_weight
from fracdnn.training.rows import Rows
from fracdnn.training.summed import GradientSums, data_loss_together
from fracdnn.training.together import Ranks, ranks_here


@dataclass
class Task:
    """A network, what to minimise, and the data: x [n, n_features], target, and a weight for each sample or none.

    `generator` draws mini-batches; `watch` is told of each record as it comes and may raise KeyboardInterrupt to end
    the training there. `validation` is what early stopping looks at; where it is None, a part of the samples:
    `held_out` by their numbers, or a random one.

    On several processes each `Task` holds its own part of the samples, in any number, and what is computed of it is
    that of all: `rows` tells which they are, in the order of ranks where it is None. `identity` names the samples in
    checkpoints, where their numbers do not.
    """

    network: FractionalNetwork
    objective: Objective
    x: torch.Tensor
    target: torch.Tensor
    weight: torch.Tensor | None = None
    generator: torch.Generator = field(default_factory=torch.Generator)
    watch: Callable[[Record], None] | None = None
    validation: "Task | None" = None
    held_out: torch.Tensor | None = None
    rows: Rows | None = None
    identity: str | None = None
    ranks: Ranks = field(default_factory=ranks_here, repr=False)
    # Of the last `backward`.
    output: torch.Tensor = field(default_factory=lambda: torch.empty(0), init=False, repr=False)

    @property
    def numbered(self) -> Rows:
        """The rows; on several processes all of them must ask for it the first time."""
        if self.rows is None:
            self.rows = self.ranks.rows(len(self.x))
        return self.rows

    @property
    def n(self) -> int:
        """The number of samples, on all processes together."""
        return self.numbered.n

    @property
    def whole_weight(self) -> float:
        """What the samples weigh, on all processes together, which must all ask for it."""
        here = torch.tensor([whole_weight(self.x, self.weight)], dtype=torch.float64)
        return float(self.ranks.sum(here, "the weight of the samples"))

    def check_alike(self) -> None:
        """Refuse processes whose samples are of another kind, and no samples at all."""
        kinds = [None if part is None else (part.dtype, part.shape[1:]) for part in (self.x, self.target, self.weight)]
        self.ranks.check_same(samples=repr(kinds))
        if not self.n:
            raise InvalidArgumentError("x must hold a sample on some rank, got none on all; pass each rank its part")

    def digest(self) -> str:
        """The same for the same samples, whichever processes have them, and other for others."""
        parts = [part for part in (self.x, self.target, self.weight) if part is not None]
        places = self.numbered.places if self.numbered.places is not None else torch.arange(self.n)
        return self.identity or digest(self.ranks, parts, places)

    def part(self, numbers: torch.Tensor) -> "Task":
        """The same task on some of the samples, by their numbers among all."""
        index, rows = self.numbered.taken(numbers)
        weight = None if self.weight is None else self.weight[index]
        return replace(self, x=self.x[index], target=self.target[index], weight=weight, rows=rows)

    def batches(self, size: int) -> list["Task"]:
        """The same task on `size` samples after the other, without copies."""
        rows = self.numbered.split(size)
        sizes = [each.n_here for each in rows]
        weights = [None] * len(rows) if self.weight is None else self.weight.split(sizes)
        parts = zip(self.x.split(sizes), self.target.split(sizes), weights, rows, strict=True)
        return [replace(self, x=x, target=target, weight=weight, rows=each) for x, target, weight, each in parts]

    def all_targets(self) -> torch.Tensor:
        """The targets of the samples of all processes by their numbers, on the CPU."""
        rows, here = self.numbered, self.target.cpu()
        if rows.places is None:
            return here
        found = here.new_zeros(rows.n, *here.shape[1:])
        found[rows.places] = here
        return self.ranks.sum(found, "the classes of all samples")

    def loss(self) -> torch.Tensor:
        """The objective: data and regularisation."""
        if not self.ranks.is_alone:
            return self.data_loss() + self.objective.regularization(self.network)
        return self.objective(self.network, self.x, self.target, self.weight)

    def backward(self) -> float:
        """The objective, its gradients added to those of the parameters."""
        if not self.ranks.is_alone:
            sums = GradientSums(self.objective, self.network)
            with sums.over(self.ranks):
                self.output = sums.add(self.x, self.target, self.weight)
            return sums.backward()
        value, self.output = backward(self.objective, self.network, self.x, self.target, self.weight)
        return value

    def evaluate(self) -> float | torch.Tensor:
        """`backward` with a value that stays on a GPU, for which nobody waits; on several processes they do."""
        if not self.ranks.is_alone:
            return self.backward()
        value, self.output = evaluate(self.objective, self.network, self.x, self.target, self.weight)
        return value

    def check_labels(self) -> None:
        """Refuse labels that have no output; on a GPU an evaluation does not look at them."""
        check_labels(self.objective.loss, self.network.architecture.n_outputs, self.target)

    def data_loss(self) -> torch.Tensor:
        if not self.ranks.is_alone:
            chunk = (self.x, self.target, self.weight)
            return data_loss_together(self.ranks, self.objective, self.network, [chunk])
        return self.objective.data_loss(self.network(self.x), self.target, self.weight)

    def accuracy(self, output: torch.Tensor) -> float | None:
        """The share of samples, by weight, that outputs put in the right class; None for a regression."""
        if self.objective.loss != "cross_entropy" or not self.n:
            return None
        hits = (output.max(1).indices == self.target).to(output.dtype)
        if self.ranks.is_alone:
            return float(hits.mean() if self.weight is None else (hits @ self.weight) / self.weight.sum())
        weight = torch.ones_like(hits) if self.weight is None else self.weight
        found = self.ranks.sum(torch.stack([hits @ weight, weight.sum()]).double(), "the accuracy")
        return float(found[0] / found[1])


@torch.no_grad()
def accuracy(network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor) -> float:
    """The share of samples whose predicted class is the true one (the paper's Alg. 4)."""
    return float((network(x).argmax(1) == target).to(torch.float64).mean())
