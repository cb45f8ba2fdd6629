"""Samples in memory, handed out in pieces."""

from dataclasses import dataclass, field

import torch

from fracdnn.training import Samples


@dataclass
class Pieces(Samples):
    """Samples in memory, handed out by pieces of these sizes, in chunks of at most 7."""

    x: torch.Tensor
    target: torch.Tensor
    weight: torch.Tensor | None
    sizes_given: list[int]
    read_pieces: list[int] = field(default_factory=list)

    @property
    def sizes(self):
        return self.sizes_given

    def read(self, piece):
        self.read_pieces.append(piece)
        begin = sum(self.sizes_given[:piece])
        for first in range(begin, begin + self.sizes_given[piece], 7):
            part = slice(first, min(first + 7, begin + self.sizes_given[piece]))
            yield self.x[part], self.target[part], None if self.weight is None else self.weight[part]

    def digest(self):
        return str(float(self.x.sum()))
