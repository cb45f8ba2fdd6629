"""Going back through a block of steps: what slopes, weights and older sums receive; see `fracdnn.solver.tape`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from fracdnn.solver.history import RUN


def slots(rows: torch.Tensor, shape: torch.Size) -> tuple[torch.Tensor, ...]:
    """Rows [G, K, d] one by one, as states of a shape; with several groups these are packed."""
    return rows.view(rows.shape[1], *shape).unbind(0) if len(rows) == 1 else rows.unbind(1)


def of_earlier(inside: torch.Tensor) -> torch.Tensor:
    """Weights [G, B, R, B] of earlier nodes alone."""
    return inside.transpose(1, 2).tril(-1).transpose(1, 2).contiguous()


def of_own_run(weights: torch.Tensor) -> torch.Tensor:
    """Of weights [G, B, …, B · m], m for each pair of nodes, those within a node's own run; [G, B, …, RUN · m]."""
    rows, width = weights.shape[1], weights.shape[-1] // weights.shape[1] * RUN
    padded = torch.nn.functional.pad(weights, (0, -weights.shape[-1] % width)).unflatten(-1, (-1, width))
    return torch.cat([padded[:, first : first + RUN, ..., first // RUN, :] for first in range(0, rows, RUN)], dim=1)


class BackwardPass(ABC):
    """One walk back through the rows of a block [G, B, R, d]."""

    def __init__(self, sizes: torch.Size, shape: torch.Size, inside: torch.Tensor) -> None:
        self._groups, self._count, self._rules, self._size = sizes
        self._shape, self._inside = shape, inside
        self.closing: torch.Tensor | None = None  # what all slopes received from later blocks
        self.slopes: dict[int, torch.Tensor] = {}  # which the gradients of weights need

    @abstractmethod
    def receive(self, n: int, cotangents: Sequence[torch.Tensor]) -> None:
        """The sums of row n received these."""

    @abstractmethod
    def slope_gradient(self, k: int) -> torch.Tensor:
        """Σ_{n>k, r} w_rnk q_rn, and what closing brings."""

    @abstractmethod
    def adjoints(self) -> torch.Tensor:
        """[G, B, R, d]: what all sums received."""

    def weight_gradients(self) -> torch.Tensor:
        """[G, B, R, B]."""
        nothing = self._inside.new_zeros(self._groups, self._size)
        slopes = [self._packed(self.slopes[k]) if k in self.slopes else nothing for k in range(self._count)]
        adjoints = self.adjoints().reshape(self._groups, -1, self._size)
        products = torch.matmul(adjoints, torch.stack(slopes, dim=2))
        return products.reshape(self._inside.shape) * of_earlier(torch.ones_like(self._inside))

    def _packed(self, state: torch.Tensor) -> torch.Tensor:
        return state.reshape(self._groups, self._size)


class BufferedPass(BackwardPass):
    """In buffers, with few passes over memory."""

    def __init__(self, sizes: torch.Size, shape: torch.Size, inside: torch.Tensor) -> None:
        super().__init__(sizes, shape, inside)
        padded = self._count + -self._count % RUN
        # What was not received yet is zero, so that all products within a run have its size.
        self._adjoints = inside.new_zeros(self._groups, padded * self._rules, self._size)
        self._received = slots(self._adjoints, shape)
        self._runs = self._adjoints.split(RUN * self._rules, dim=1)
        self._transposed = of_earlier(inside.detach()).flatten(1, 2).transpose(1, 2)  # [G, B, B · R]
        self._recent = of_own_run(self._transposed).unsqueeze(2).unbind(1)
        self._run = -1
        self._gradients: tuple[torch.Tensor, ...] = ()
        self._rows: tuple[torch.Tensor, ...] = ()

    def receive(self, n: int, cotangents: Sequence[torch.Tensor]) -> None:
        for rule, cotangent in enumerate(cotangents, n * self._rules):
            self._received[rule].copy_(cotangent)

    def slope_gradient(self, k: int) -> torch.Tensor:
        run, within = divmod(k, RUN)
        if run != self._run:
            self._begin_run(run)
        if within < RUN - 1:
            self._rows[within].baddbmm_(self._recent[k], self._runs[run])
        return self._gradients[within]

    def adjoints(self) -> torch.Tensor:
        return self._adjoints[:, : self._count * self._rules].unflatten(1, (self._count, self._rules))

    def _begin_run(self, run: int) -> None:
        """For all slopes of a run, from the rows after it."""
        begin, end = run * RUN, min((run + 1) * RUN, self._count)
        weights = self._transposed[:, begin:end, end * self._rules :]
        adjoints = self._adjoints[:, end * self._rules : self._count * self._rules]
        if self.closing is None:
            total = torch.bmm(weights, adjoints)
        else:
            total = torch.baddbmm(self.closing[:, begin:end], weights, adjoints)
        self._run, self._rows, self._gradients = run, total.split(1, dim=1), slots(total, self._shape)


class PlainPass(BackwardPass):
    """In plain operations, so that what is made here can be differentiated again."""

    def __init__(self, sizes: torch.Size, shape: torch.Size, inside: torch.Tensor) -> None:
        super().__init__(sizes, shape, inside)
        self._received: dict[int, torch.Tensor] = {}  # [G, R, d] by row

    def receive(self, n: int, cotangents: Sequence[torch.Tensor]) -> None:
        self._received[n] = torch.stack([self._packed(each) for each in cotangents], dim=1)

    def slope_gradient(self, k: int) -> torch.Tensor:
        later = list(self._received)  # no earlier row has been met yet
        rows = torch.cat(list(self._received.values()), dim=1)
        total = (self._inside[:, later, :, k].flatten(1).unsqueeze(-1) * rows).sum(1)
        if self.closing is not None:
            total = total + self.closing[:, k]
        return total.reshape(self._shape)

    def adjoints(self) -> torch.Tensor:
        nothing = torch.zeros_like(next(iter(self._received.values())))
        return torch.stack([self._received.get(n, nothing) for n in range(self._count)], dim=1)
