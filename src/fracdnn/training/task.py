"""What is to be learned: a network, an objective, and the data."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import together
from fracdnn.training.evaluation import backward_together, check_labels, data_loss_together, evaluate
from fracdnn.training.objective import Chunk, Objective, weighted_hits, whole_weight
from fracdnn.training.records import Record
from fracdnn.training.together import Rows

# Of a digest.
_ROWS_AT_A_TIME = 65_536
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(eq=False)
class Task:
    """A network, what to minimize, and the data: x [n, n_features], target, and a weight for each sample or none.

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
    # Of the last `backward`.
    output: torch.Tensor = field(default_factory=lambda: torch.empty(0), init=False, repr=False)

    @property
    def chunk(self) -> Chunk:
        """The samples that are here."""
        return self.x, self.target, self.weight

    @property
    def numbered(self) -> Rows:
        """The rows; on several processes all of them must request it the first time."""
        if self.rows is None:
            self.rows = together.rows(len(self.x))
        return self.rows

    @property
    def n(self) -> int:
        """The number of samples, on all processes together."""
        return self.numbered.n

    @property
    def whole_weight(self) -> float:
        """The total weight of the samples on all processes, which must all request it."""
        here = torch.tensor([whole_weight(self.x, self.weight)], dtype=torch.float64)
        return float(together.total(here, "the weight of the samples"))

    def check_alike(self) -> None:
        """Refuse processes whose samples are of another kind, and no samples at all."""
        kinds = [None if part is None else (part.dtype, part.shape[1:]) for part in self.chunk]
        together.check_same(samples=repr(kinds))
        if not self.n:
            raise InvalidArgumentError("x must hold a sample on some rank, got none on all; pass each rank its part")

    def digest(self) -> str:
        """The same for the same samples, whichever processes have them, and other for others."""
        parts = [part for part in self.chunk if part is not None]
        places = self.numbered.places if self.numbered.places is not None else torch.arange(self.n)
        return self.identity or digest(parts, places)

    def part(self, numbers: torch.Tensor) -> "Task":
        """The same task on some of the samples, by their numbers among all."""
        index, rows = self.numbered.taken(numbers)
        weight = None if self.weight is None else self.weight[index]
        return replace(self, x=self.x[index], target=self.target[index], weight=weight, rows=rows)

    def all_targets(self) -> torch.Tensor:
        """The targets of the samples of all processes by their numbers, on the CPU."""
        rows, here = self.numbered, self.target.cpu()
        if rows.places is None:
            return here
        found = here.new_zeros(rows.n, *here.shape[1:])
        found[rows.places] = here
        return together.total(found, "the classes of all samples")

    def loss(self) -> torch.Tensor:
        if together.is_alone():
            return self.objective(self.network, *self.chunk)
        return self.data_loss() + self.objective.regularization(self.network)

    def backward(self) -> float:
        """The objective, its gradients added to those of the parameters."""
        return float(self.evaluate())

    def evaluate(self) -> float | torch.Tensor:
        """The same with a value that stays on a GPU, for which nobody waits; on several processes they do."""
        if together.is_alone():
            value, self.output = evaluate(self.objective, self.network, self.chunk)
        else:
            value, self.output, _ = backward_together(self.objective, self.network, [self.chunk])
        return value

    def check_labels(self) -> None:
        """Refuse labels that have no output; on a GPU an evaluation does not look at them."""
        check_labels(self.objective.loss, self.network.architecture.n_outputs, self.target)

    def data_loss(self) -> torch.Tensor:
        if together.is_alone():
            return self.objective.data_loss(self.network(self.x), self.target, self.weight)
        return data_loss_together(self.objective, self.network, [self.chunk])

    def accuracy(self, output: torch.Tensor) -> float | None:
        """The share of samples, by weight, that outputs put in the right class; None for a regression."""
        if self.objective.loss != "cross_entropy" or not self.n:
            return None
        hits, whole = together.total(weighted_hits(output, self.target, self.weight), "the accuracy").tolist()
        return hits / whole if whole else math.nan


@torch.no_grad()
def accuracy(network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor) -> float:
    """The share of samples whose predicted class is the true one (the paper's Alg. 4)."""
    return float((network(x).argmax(1) == target).to(torch.float64).mean())


def digest(parts: list[torch.Tensor], places: torch.Tensor | None) -> str:
    """The sum of a hash of each row of all parts together, and of its place; without places the order is free."""
    total, n = np.uint64(0), len(parts[0])
    with np.errstate(over="ignore"):
        for begin in range(0, n, _ROWS_AT_A_TIME):
            rows = slice(begin, begin + _ROWS_AT_A_TIME)
            octets = [_octets(part[rows]) for part in parts]
            words = np.hstack([np.pad(each, ((0, 0), (0, -each.shape[1] % 8))) for each in octets]).view(np.uint64)
            hashes = _mixed(words + _GOLDEN * np.arange(1, words.shape[1] + 1, dtype=np.uint64)).sum(1)
            if places is not None:
                hashes += _mixed(places[rows].numpy().astype(np.uint64) + _GOLDEN)
            total += _mixed(hashes).sum()
    here = torch.from_numpy(np.array([total, n], dtype=np.uint64).view(np.int64))
    sums = together.total(here, "the digest of the data")
    kinds = [f"{part.dtype} {tuple(part.shape[1:])}" for part in parts]
    return f"{int(sums[1])} rows of {', '.join(kinds)}: {int(sums[0]) % 2**64:016x}"


def _octets(part: torch.Tensor) -> np.ndarray:
    """The bytes of each row."""
    return part.detach().cpu().contiguous().numpy().reshape(len(part), -1).view(np.uint8)


def _mixed(words: np.ndarray) -> np.ndarray:
    """Each number scattered (the finaliser of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
