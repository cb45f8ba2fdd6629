"""Which of a training's samples are here: numbers that mean the same on every process."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Rows:
    """`n` rows on all processes together; `places` are the numbers of those that are here, None where all are.

    Mini-batches and what is held out are drawn as numbers from 0 to n − 1, alike on all processes; each takes those of
    its rows that are among them. So nothing that is drawn depends on how many processes there are.
    """

    n: int
    places: torch.Tensor | None = None

    def taken(self, numbers: torch.Tensor) -> tuple[torch.Tensor, "Rows"]:
        """Where the rows of these numbers are that are here, and the rows of these numbers, numbered anew from 0."""
        if self.places is None:
            return numbers, Rows(len(numbers))
        index = torch.full((self.n,), -1)
        index[self.places] = torch.arange(len(self.places))
        index = index[numbers.cpu()]
        here = index >= 0
        return index[here].to(numbers.device), Rows(len(numbers), here.nonzero().squeeze(1))

    def split(self, size: int) -> list["Rows"]:
        """`size` rows after the other; what is here must be in order."""
        begins = range(0, self.n, size)
        lengths = [min(size, self.n - begin) for begin in begins]
        if self.places is None:
            return [Rows(length) for length in lengths]
        ends = torch.searchsorted(self.places, torch.tensor([b + k for b, k in zip(begins, lengths, strict=True)]))
        sizes = torch.diff(ends, prepend=ends.new_zeros(1)).tolist()
        parts = zip(begins, lengths, self.places.split(sizes), strict=True)
        return [Rows(length, places - begin) for begin, length, places in parts]

    @property
    def n_here(self) -> int:
        return self.n if self.places is None else len(self.places)
