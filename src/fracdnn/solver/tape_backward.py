"""Going back through a block of steps: what slopes, weights and older sums receive; see `fracdnn.solver.tape`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from fracdnn.solver.history import RUN
from fracdnn.solver.methods.base import Explicit


def slots(rows: torch.Tensor, shape: torch.Size) -> tuple[torch.Tensor, ...]:
    """Rows [G, K, d] one by one, as states of a shape; with several groups these are packed."""
    return rows.view(rows.shape[1], *shape).unbind(0) if len(rows) == 1 else rows.unbind(1)


def numbers(weights: torch.Tensor) -> Sequence[Any]:
    """[G, K] one by one: as Python numbers where that is quick, else as tensors that multiply states."""
    if len(weights) > 1:
        return weights.unsqueeze(-1).unbind(1)
    return weights[0].tolist() if weights.device.type == "cpu" else weights[0].unbind(0)


def plus(total: torch.Tensor, value: torch.Tensor, weight: Any, out: torch.Tensor | None = None) -> torch.Tensor:
    """Total + weight · value."""
    if isinstance(weight, float):
        return torch.add(total, value, alpha=weight, out=out)
    return torch.addcmul(total, value, weight, out=out)


class BackwardPass(ABC):
    """One walk back through the nodes of a block [G, B, R, d]."""

    def __init__(
        self,
        explicit: Explicit,
        sizes: torch.Size,
        shape: torch.Size,
        inside: torch.Tensor,
        tips: torch.Tensor | None,
    ) -> None:
        self._explicit, self._shape, self._inside, self._tip_weights = explicit, shape, inside, tips
        self._groups, self._n_rows, self._rules, self._size = sizes
        self.closing: torch.Tensor | None = None  # what all slopes received from later blocks
        self._predictions: dict[int, torch.Tensor] = {}  # cotangents, where slopes were continued
        # What the gradients of weights need, by node: x_{n−1}; and slopes at guesses, with what they were weighted for.
        self._entries: dict[int, torch.Tensor] = {}
        self._slopes: list[tuple[int, torch.Tensor, torch.Tensor]] = []
        self._newest: Any
        self._tips: Any

    @abstractmethod
    def adjoints(self) -> torch.Tensor:
        """[G, B, R, d]: what all sums received."""

    @abstractmethod
    def _receive(self, n: int, rule: int, cotangent: torch.Tensor) -> None:
        """Sum s_rn received this."""

    @abstractmethod
    def _from_sums(self, k: int) -> torch.Tensor:
        """Σ_{n>k, r} w_rnk q_rn and what closing brings, for a slope of the block."""

    def back_from_prediction(self, n: int, cotangent: torch.Tensor, entry: torch.Tensor | None) -> None:
        self._receive(n, self._explicit.predictor, cotangent)
        if self._explicit.continued:
            self._predictions[n] = cotangent
        if entry is not None:
            self._entries[n - 1] = entry

    def back_from_correction(self, n: int, cotangent: torch.Tensor, slope: torch.Tensor | None) -> torch.Tensor:
        """What the slope received."""
        self._receive(n, self._explicit.corrector, cotangent)
        if slope is not None:
            self._slopes.append((n, cotangent, slope))
        return cotangent * self._newest[n]

    def entry_gradient(self, k: int) -> torch.Tensor:
        """All that x_k received."""
        return self._with_tips(k, self._from_sums(k))

    def edge_gradients(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What the two slopes before the block received, by the tips alone."""
        nothing = torch.zeros_like(self._predictions[0])
        return self._with_tips(-2, nothing), self._with_tips(-1, nothing)

    def _with_tips(self, k: int, total: torch.Tensor) -> torch.Tensor:
        for place, n in ((0, k + 2), (1, k + 1)):
            if n in self._predictions:
                total = plus(total, self._predictions[n], self._tips[place][n])
        return total

    def weight_gradients(self, edges: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """For the weights [G, B, R, B] and for the tips [G, B, 2]."""
        groups, rows, rules = self._groups, self._n_rows, self._rules
        nothing = self._inside.new_zeros(groups, self._size)
        slopes = torch.stack([self._packed(self._entries.get(k, nothing)) for k in range(rows)], dim=1)
        products = self.adjoints().flatten(1, 2) @ slopes.transpose(1, 2)
        earlier = torch.ones(rows, rows, dtype=torch.bool, device=products.device).tril(-1).unsqueeze(1)
        inside = products.unflatten(1, (rows, rules)) * earlier
        own = [inside.new_zeros(groups)] * rows
        for n, cotangent, slope in self._slopes:
            own[n] = own[n] + (self._packed(cotangent) * self._packed(slope)).sum(-1)
        diagonal = torch.diag_embed(torch.stack(own, dim=1)).unsqueeze(2)
        inside = inside + torch.nn.functional.pad(
            diagonal, (0, 0, self._explicit.corrector, rules - 1 - self._explicit.corrector)
        )
        if self._tip_weights is None:
            return inside, None
        before = torch.cat([torch.stack([self._packed(edge) for edge in edges], dim=1), slopes], dim=1)
        received = torch.stack([self._packed(self._predictions.get(n, nothing)) for n in range(rows)], dim=1)
        tips = [(received * before[:, place : place + rows]).sum(-1) for place in (0, 1)]
        return inside, torch.stack(tips, dim=-1)

    def _packed(self, state: torch.Tensor) -> torch.Tensor:
        return state.reshape(self._groups, self._size)


class BufferedPass(BackwardPass):
    """In buffers, with few passes over memory."""

    def __init__(self, *told: Any) -> None:
        super().__init__(*told)
        inside = self._inside.detach()
        self._adjoints = inside.new_zeros(self._groups, self._n_rows * self._rules, self._size)
        self._received = slots(self._adjoints, self._shape)
        self._transposed = inside.flatten(1, 2).transpose(1, 2).contiguous()  # [G, B, B · R]
        self._newest = numbers(torch.diagonal(inside[:, :, self._explicit.corrector], dim1=1, dim2=2))
        if self._tip_weights is not None:
            self._tips = [numbers(self._tip_weights.detach()[..., place]) for place in (0, 1)]
        self._run = -1

    def adjoints(self) -> torch.Tensor:
        return self._adjoints.unflatten(1, (self._n_rows, self._rules))

    def _receive(self, n: int, rule: int, cotangent: torch.Tensor) -> None:
        self._received[n * self._rules + rule].add_(cotangent)

    def _from_sums(self, k: int) -> torch.Tensor:
        run, within = divmod(k, RUN)
        end = min((run + 1) * RUN, self._n_rows)
        if run != self._run:
            self._run = run
            self._rows = self._from_later_runs(run * RUN, end)
            self._gradients = slots(self._rows, self._shape)
        later = slice((k + 1) * self._rules, end * self._rules)
        if k + 1 < end:
            row = self._rows[:, within : within + 1]
            row.baddbmm_(self._transposed[:, k : k + 1, later], self._adjoints[:, later])
        return self._gradients[within]

    def _from_later_runs(self, begin: int, end: int) -> torch.Tensor:
        """For the slopes of a run, from the rows after it."""
        weights = self._transposed[:, begin:end, end * self._rules :]
        adjoints = self._adjoints[:, end * self._rules :]
        if self.closing is None:
            return torch.bmm(weights, adjoints)
        return torch.baddbmm(self.closing[:, begin:end], weights, adjoints)


class PlainPass(BackwardPass):
    """In plain operations, so that what is made here can be differentiated again."""

    def __init__(self, *told: Any) -> None:
        super().__init__(*told)
        self._received: dict[tuple[int, int], torch.Tensor] = {}
        own = torch.diagonal(self._inside[:, :, self._explicit.corrector], dim1=1, dim2=2)
        self._newest = _tensors(own)
        if self._tip_weights is not None:
            self._tips = [_tensors(self._tip_weights[..., place]) for place in (0, 1)]

    def adjoints(self) -> torch.Tensor:
        nothing = torch.zeros_like(next(iter(self._received.values())))
        rows = [self._received.get((n, rule), nothing) for n in range(self._n_rows) for rule in range(self._rules)]
        return torch.stack([self._packed(row) for row in rows], dim=1).unflatten(1, (self._n_rows, self._rules))

    def _receive(self, n: int, rule: int, cotangent: torch.Tensor) -> None:
        before = self._received.get((n, rule))
        self._received[n, rule] = cotangent if before is None else before + cotangent

    def _from_sums(self, k: int) -> torch.Tensor:
        later = [(place, row) for place, row in self._received.items() if place[0] > k]
        weights = torch.stack([self._inside[:, n, rule, k] for (n, rule), _ in later], dim=1)
        rows = torch.stack([self._packed(row) for _, row in later], dim=1)
        total = (weights.unsqueeze(-1) * rows).sum(1)
        if self.closing is not None:
            total = total + self.closing[:, k]
        return total.reshape(self._shape)


def _tensors(weights: torch.Tensor) -> Sequence[torch.Tensor]:
    return weights.unsqueeze(-1).unbind(1) if len(weights) > 1 else weights[0].unbind(0)
