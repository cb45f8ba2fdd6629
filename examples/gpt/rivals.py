"""Streams of others that look back over the depth, with what is summed kept in one tensor.

Both sums have one node of the graph a layer. Its edge leads to the newest state only; what later layers owe to that
state is summed when the backward pass comes to its node, which is after theirs, since every way from a state to the
loss leads through the nodes after it. So a pass reads each sum's states once, and nothing is stacked anew.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable


class DenseFormer(nn.Module):
    """After each block a learned average of the embedding and all blocks' outputs so far (arXiv 2402.02622).

    With X_0 the embedding and X_i = B_i(Y_{i−1}) the output of a block with its two residual sublayers,
    Y_i = Σ_{k≤i} α_ik X_k. At the start α is the identity: a residual network. All blocks are averaged, after each
    block; the paper's dilation and period, which save time, are not used.
    """

    def __init__(self, sublayers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(sublayers)
        self.averages = nn.Parameter(torch.eye(len(self.layers) // 2 + 1)[1:].clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tape = _Averages(x, self.averages.detach())
        y = _Average.apply(tape, 0, x, self.averages)
        for i in range(1, len(self.averages) + 1):
            attention, perceptron = self.layers[2 * i - 2], self.layers[2 * i - 1]
            middle = y + attention(y)
            y = _Average.apply(tape, i, middle + perceptron(middle), None)
        return y


class _Averages:
    """X_0, X_1, … [blocks + 1, tokens, width]; in the backward pass also Q_i = ∂E/∂Y_i, i ≥ 1, and α's gradient."""

    def __init__(self, x: torch.Tensor, averages: torch.Tensor) -> None:
        blocks, width = len(averages), x.shape[-1]
        self.averages = averages
        self.states = x.new_empty(blocks + 1, x.numel() // width, width)
        self.cotangents: torch.Tensor | None = None
        self.gradient = torch.zeros_like(averages)

    def forward(self, i: int, x: torch.Tensor) -> torch.Tensor:
        self.states[i] = x.reshape(self.states[i].shape)
        return x.view_as(x) if not i else _weighted(self.averages[i - 1, : i + 1], self.states[: i + 1]).view_as(x)

    def backward(self, i: int, cotangent: torch.Tensor) -> torch.Tensor:
        if self.cotangents is None:
            self.cotangents = torch.empty_like(self.states[1:])
        if not i:  # Y_0 is X_0
            return cotangent + _weighted(self.averages[:, 0], self.cotangents).view_as(cotangent)
        self.cotangents[i - 1] = rows = cotangent.reshape(self.states[i].shape)
        # A product for each token: a few dot products of millions of numbers would leave a GPU idle.
        each = self.states[: i + 1].transpose(0, 1) @ rows.unsqueeze(-1)
        self.gradient[i - 1, : i + 1] = each.sum(0).squeeze(-1)
        return _weighted(self.averages[i - 1 :, i], self.cotangents[i - 1 :]).view_as(cotangent)


def _weighted(weights: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """Σ_k weights_k states_k."""
    return torch.mv(states.flatten(1).t(), weights)


class _Average(torch.autograd.Function):
    """Y_i from X_i and, by the tape, all before it; α is an input of the first node, the last to go back."""

    @staticmethod
    def forward(ctx: Any, tape: _Averages, i: int, x: torch.Tensor, averages: torch.Tensor | None) -> torch.Tensor:
        ctx.tape, ctx.i = tape, i
        with torch.autocast(x.device.type, enabled=False):
            return tape.forward(i, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[Any, ...]:
        gradient = ctx.tape.backward(ctx.i, cotangent)
        return None, None, gradient, None if ctx.i else ctx.tape.gradient


class AttentionResiduals(nn.Module):
    """The input of each sublayer attends to all outputs before it (arXiv 2603.15031, all layers, not blocks of them).

    With v_0 the embedding and v_k the output of sublayer k, sublayer l + 1 sees Σ_{k≤l} p_lk v_k, where p_l is the
    softmax over k of w_l · v_k / rms(v_k), for each token by itself; so does the head, by a query of its own. The
    queries w are 0 at the start: a plain average.
    """

    def __init__(self, sublayers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(sublayers)
        first = next(parameter for parameter in self.layers.parameters() if parameter.dim() == 2)
        self.queries = nn.Parameter(torch.zeros(len(self.layers) + 1, first.shape[1]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tape = _Attentions(x, self.queries.detach())
        y = _Attend.apply(tape, 0, x, self.queries)
        for k, layer in enumerate(self.layers, 1):
            y = _Attend.apply(tape, k, layer(y), None)
        return y


class _Attentions:
    """Values [tokens, key, width] in the dtype of the sublayers' outputs; shares [query, key, tokens].

    The queries do not depend on the data, so the products of a new value with all later queries are one matrix product.
    Keys and queries are filled up with zeros, and sums run over eights of them: matrices of 16 bits with odd rows would
    leave GPUs their slowest products.
    """

    def __init__(self, x: torch.Tensor, queries: torch.Tensor) -> None:
        count, width = queries.shape
        tokens, device = x.numel() // width, x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        self.queries, self.dtype = queries, x.dtype
        self.values = x.new_zeros(tokens, _eights(count), width, dtype=dtype)
        self.shares = x.new_zeros(_eights(count), _eights(count), tokens)
        self.scales = x.new_empty(count, tokens, 1)
        self.cotangents: torch.Tensor | None = None
        self.products_back: torch.Tensor | None = None
        self.gradient = torch.zeros_like(queries)

    def forward(self, k: int, value: torch.Tensor) -> torch.Tensor:
        rows = value.reshape(self.values[:, k].shape)
        self.values[:, k] = rows
        wide = rows.to(self.dtype)
        self.scales[k] = _scale(wide)
        self.shares[k : len(self.queries), k] = self.queries[k:] @ (wide * self.scales[k]).t()
        shares, end = self.shares[k, : k + 1], _eights(k + 1)
        shares.copy_(torch.softmax(shares, 0))
        return self._sum(self.shares[k, :end], self.values[:, :end]).view_as(value)

    def _sum(self, shares: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Σ_k shares[k, t] rows[t, k], a small product for each token."""
        weights = shares.t().to(rows.dtype, memory_format=torch.contiguous_format)
        return (weights.unsqueeze(1) @ rows).squeeze(1).to(self.dtype)

    def backward(self, k: int, cotangent: torch.Tensor) -> torch.Tensor:
        if self.cotangents is None or self.products_back is None:
            self.cotangents, self.products_back = torch.zeros_like(self.values), torch.empty_like(self.shares)
        self.cotangents[:, k] = cotangent.reshape(self.values[:, k].shape)
        end, begin = _eights(k + 1), _eights(k - 7)
        shares = self.shares[k, :end]
        by_share = (self.values[:, :end] @ self.cotangents[:, k].unsqueeze(-1)).squeeze(-1).t().to(self.dtype)
        weighted = shares * by_share
        self.products_back[k, :end] = weighted - shares * weighted.sum(0)
        through_sums = self._sum(self.shares[begin:, k], self.cotangents[:, begin:])
        return (through_sums + self._through_keys(k)).view_as(cotangent)

    def _through_keys(self, k: int) -> torch.Tensor:
        """From the products of v_k with all later queries to v_k; and to the queries."""
        assert self.products_back is not None
        products, scale = self.products_back[k : len(self.queries), k], self.scales[k]
        key = self.values[:, k].to(self.dtype) * scale
        self.gradient[k:] += products @ key
        to_key = products.t() @ self.queries[k:]
        return scale * (to_key - key * (key * to_key).mean(-1, keepdim=True))


def _eights(count: int) -> int:
    """The least multiple of 8 that is not less."""
    return -(-count // 8) * 8


def _scale(rows: torch.Tensor) -> torch.Tensor:
    """1 / rms of each row, [rows, 1]."""
    return torch.rsqrt(rows.square().mean(-1, keepdim=True) + torch.finfo(rows.dtype).eps)


class _Attend(torch.autograd.Function):
    """The input of sublayer k + 1; the queries are an input of the first node, the last to go back."""

    @staticmethod
    def forward(ctx: Any, tape: _Attentions, k: int, value: torch.Tensor, queries: torch.Tensor | None) -> torch.Tensor:
        ctx.tape, ctx.k, ctx.dtype = tape, k, value.dtype
        with torch.autocast(value.device.type, enabled=False):
            return tape.forward(k, value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[Any, ...]:
        gradient = ctx.tape.backward(ctx.k, cotangent).to(ctx.dtype)
        return None, None, gradient, None if ctx.k else ctx.tape.gradient
