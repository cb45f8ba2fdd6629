"""Layers of a small dense network on a GPU: one launch forward, one back; see `fracdnn.kernels.triton_network`.

As on the CPU, networks of the paper's size spend their time between operations; a loss of the outputs is in the launch
of the forward pass. Gradients of the parameters are products over all samples, one of each kind for all layers, so
their sums have a fixed order.
"""

from typing import Any

import torch

from fracdnn.kernels import codes
from fracdnn.memory import ExactPlan, MemoryPlan
from fracdnn.memory.plan import kind_of
from fracdnn.memory.triton_sum import on_device_of
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.engines.by_hand import LayerGradients, Layers, Loss
from fracdnn.nn.operators import ACTIVATIONS, SLOPES

# What a tile of 16 samples has registers for.
MAX_WIDTH = MAX_OUTPUTS = 64
DTYPES = (torch.float32, torch.float64)
_TILE = 16
# Fewer rows leave processors without work: more threads for each tile then.
_ROWS_AT_ONCE = 2048
# Products over more rows are cut into parts, for which a GPU has room side by side.
_ROWS_OF_A_PRODUCT, _PARTS = 512, 8


class TritonLayers(Layers):
    """See the module. Between the passes are held states, and what slopes need, as by autograd."""

    def __init__(self, architecture: Architecture, plan: MemoryPlan, weights: Weights) -> None:
        self._architecture, self._plan = architecture, plan
        self._K, self._b = _readable(weights.operators), weights.b

    def forward(self, y0: torch.Tensor) -> torch.Tensor:
        self._prepare(y0)
        self._launch_forward(y0, codes.STATE, *[self._factors] * 8, 1)  # which are not read
        return self._states[-1, : self._n]

    def loss(self, y0: torch.Tensor, W: torch.Tensor, loss: Loss) -> Any:
        """All on the device, so that nobody waits; NaN where a label has no output."""
        self._prepare(y0)
        n, n_outputs, kind = self._n, len(W), kind_of(y0)
        outputs, cotangents, losses, start = (
            y0.new_empty(shape) for shape in ((n, n_outputs), (n, n_outputs), (n,), y0.shape)
        )
        if loss.weight is None:
            shares = self._plan.kept(("shares", n, *kind), lambda: y0.new_full((n,), 1.0 / n))
        else:
            shares = loss.weight / loss.weight.sum()
        smoothing = loss.label_smoothing
        smoothing = self._plan.kept(("number", smoothing, *kind), lambda: y0.new_full((1,), smoothing))
        results = (outputs, cotangents, losses, start, smoothing, n_outputs)
        self._launch_forward(
            y0, codes.LOSSES[loss.kind], _readable(W), _readable(loss.target), _readable(shares), *results
        )
        of_W = cotangents.T @ self._states[-1, :n]
        # What was kept makes room for what is made of it, unless it is needed again.
        layers = self._back(start, torch.empty_like(self._kept) if self._plan.learned else self._kept)
        return losses.sum(), outputs, of_W, layers

    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        return self._back(_readable(cotangent.clone()), torch.empty_like(self._kept))

    def _back(self, start: torch.Tensor, scaled: torch.Tensor) -> LayerGradients:
        adjoints, a, n, plan = torch.empty_like(self._kept), self._architecture, self._n, self._plan
        weights = plan.weights(start, a.n_layers).matrix if isinstance(plan, ExactPlan) else self._factors  # not read
        pointers = (start, self._K, self._factors, weights, self._kept, adjoints, scaled)
        self._launch("backward", *pointers, n, self._rows, a.n_layers, a.width)
        b = None
        if self._b is not None:
            b = scaled.sum(1 if self._b.dim() == 2 else (1, 2))
        memory: tuple[torch.Tensor, ...] = ()
        if plan.learned:
            kept = self._kept[:, :n]
            changes = kept if SLOPES[a.activation].keeps_value else ACTIVATIONS[a.activation](kept)
            states, adjoints = self._states[:-1, :n], adjoints[:, :n].flip(0)
            memory = plan.learned_gradients(states.unbind(), adjoints.unbind(), changes.unbind())
        return LayerGradients(start, _sum_of_products(scaled, self._states[:-1]), b, memory)

    def _prepare(self, y0: torch.Tensor) -> None:
        """Room for all states, in whole tiles, and in whole parts of products."""
        a, self._n = self._architecture, len(y0)
        unit = _TILE * (_PARTS if self._n > _ROWS_OF_A_PRODUCT else 1)
        self._rows = -(-self._n // unit) * unit
        self._states = y0.new_empty(a.n_layers + 1, self._rows, a.width)
        self._kept = y0.new_empty(a.n_layers, self._rows, a.width)
        self._factors = self._plan.kept(("factors", *kind_of(y0)), lambda: self._plan.factors.to(y0).contiguous())
        width = _padded(a.width)
        # Small products gain nothing from TF32.
        coarse = width > 16 and _coarse_products(y0)
        self._tile = {
            "MEMORY": isinstance(self._plan, ExactPlan),
            "ACTIVATION": a.activation,
            "PRECISION": "tf32" if coarse else "ieee",
            "TILE": _TILE,
            "WIDTH": width,
            "AHEAD": coarse or width <= 32,
            "num_warps": 8 if width == 16 and self._rows <= _ROWS_AT_ONCE else 4,
        }

    def _launch_forward(self, y0: torch.Tensor, kind: int, *loss: Any) -> None:
        a, b, plan = self._architecture, self._b, self._plan
        weights = plan.weights(y0).matrix if isinstance(plan, ExactPlan) else self._factors  # not read
        down, along = {True: (a.width, 1), "scalar": (1, 0), False: (0, 0)}[a.bias]
        if b is None:
            b = plan.kept(("no bias", *kind_of(y0)), lambda: y0.new_zeros(1))
        layers = (_readable(y0), self._K, _readable(b), self._factors, weights, self._states, self._kept)
        *pointers, n_outputs = loss
        sizes = (self._n, self._rows, a.n_layers, a.width, n_outputs, down, along)
        self._launch("forward", *layers, *pointers, *sizes, KIND=kind, OUTPUTS=_padded(n_outputs))

    def _launch(self, name: str, *arguments: Any, **options: Any) -> None:
        from fracdnn.kernels import triton_network as kernels  # which needs Triton

        with on_device_of(self._states):
            getattr(kernels, name)[(self._rows // _TILE,)](*arguments, **options, **self._tile)


def _sum_of_products(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """leftᵀ right for each layer, over all rows: in parts that run side by side where there are many."""
    n_layers, rows, width = left.shape
    if rows <= _ROWS_OF_A_PRODUCT:
        return torch.bmm(left.transpose(1, 2), right)
    shape = (n_layers * _PARTS, rows // _PARTS, width)
    parts = torch.bmm(left.view(shape).transpose(1, 2), right.reshape(shape))
    return parts.view(n_layers, _PARTS, width, width).sum(1)


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers as the kernels read them."""
    return tensor.contiguous().resolve_neg()


def _coarse_products(like: torch.Tensor) -> bool:
    """Whether torch multiplies matrices of such numbers in TF32."""
    if like.dtype is not torch.float32:
        return False
    setting = getattr(torch.backends.cuda.matmul, "fp32_precision", None)  # older torch has the other only
    return setting == "tf32" if setting is not None else torch.get_float32_matmul_precision() != "highest"


def _padded(size: int) -> int:
    """As sizes of products have to be: powers of two, 16 at least."""
    return max(16, 1 << (size - 1).bit_length())
