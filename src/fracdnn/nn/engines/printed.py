"""The gradient as the paper prints it (Alg. 2 and its design equations). It is not the gradient of the network.

Kept for reproduction only, as `FractionalNetwork(adjoint=…)` with one of `READINGS`. The paper discretises the
continuous adjoint equation; with P_N = −∂E/∂Y_N it prints

    P_j = P_{j+1} + Σ_{k=j+1}^{N−1} a_{k−j−1} (P_{k+1} − P_k) + c K_jᵀ (P_{j+1} ⊙ σ'(K_j Y_{j+1} + b_j)),
    ∇_{K_j} = −Y_j (P_{j+1} ⊙ σ'(K_j Y_j + b_j))ᵀ,   ∇_{b_j} = −⟨σ'(K_j Y_j + b_j), P_{j+1}⟩.

Against the exact discrete adjoint this

1. takes a_{k−j−1} for a_{k−j};
2. drops the boundary term −a_{N−j} P_N that fractional integration by parts leaves;
3. evaluates σ' at Y_{j+1} for Y_j in the adjoint equation;
4. leaves out the factor c = Γ(2−γ) τ^γ in ∇_K and ∇_b;
5. prints ∇_K transposed. K is square, so that the shapes fit either way, and an update may have been made with either.
   Alg. 3 also prints ∇_b as the trace of a product whose shapes do not fit; the design equation's inner product is
   taken.

At order 1 the sum is another matter of reading: a_0 = 1 is the limit of a_m for γ → 1, which the paper never states,
and adds P_{j+2} − P_{j+1}. Without the sum (0⁰ = 1 in a_0 = 1^{1−γ} − 0^{1−γ} leaves none) the adjoint is the classical
one of a residual network, P_j = P_{j+1} + τ K_jᵀ (P_{j+1} ⊙ σ'(K_j Y_{j+1} + b_j)): times the factor of 4. its gradient
converges to the exact one as τ → 0, and that of a_0 = 1 does not.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import pad

from fracdnn.kernels.tensors import NUMPY_TYPES, is_readable
from fracdnn.memory import ExactPlan, MemoryPlan
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.engines.by_hand import LayerGradients, Layers
from fracdnn.tracing import operations_are_watched


class Reading(NamedTuple):
    """What the printed text leaves to choose: ∇_K as printed or put right, and the sum, which order 1 may not have."""

    transposed: bool
    has_sum: bool


class PrintedLayers(Layers):
    """Y_N of the tanh network by the usual forward pass, with the printed backward pass.

    Where it can be, the loops over the layers are NumPy's: calls of torch's operations would take ten times as long as
    the paper's networks need for the operations.
    """

    has_second_derivatives = False
    reading = Reading(transposed=False, has_sum=True)

    def __init__(self, architecture: Architecture, plan: MemoryPlan, weights: Weights) -> None:
        assert weights.b is not None
        self._plan, self._c, self._K = plan, float(plan.factors[0]), weights.operators
        self._is_scalar = weights.b.dim() == 1
        self._b = weights.b.view(-1, 1, 1) if self._is_scalar else weights.b.unsqueeze(1)

    @np.errstate(all="ignore")  # a line search may go too far
    def forward(self, y0: torch.Tensor) -> torch.Tensor:
        xp, (y, K, b, H) = _arrays(y0, self._K, self._b, self._memory(y0))
        states, slopes = _history(y, len(K) + 1), []
        for j in range(len(K)):
            value = xp.tanh(states[j] @ K[j].T + b[j])
            states.append(self._c * value + states.weighted(H[j, : j + 1]))
            slopes.append(1.0 - value * value)
        self._states, self._slopes = states.as_tensor(), torch.as_tensor(xp.stack(slopes))
        return self._states[-1]

    @np.errstate(all="ignore")
    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        constants = self._K, self._b, self._printed_memory(cotangent), self._states, self._slopes
        xp, (q, K, b, H, Y, slopes) = _arrays(cotangent, *constants)
        P, grad_K, grad_b = _history(-q, len(K) + 1), [], []  # from the last layer to the first: P_N, P_{N−1}, …
        for n, j in enumerate(reversed(range(len(K)))):
            weighted = P[n] * slopes[j]
            grad_K.append(-weighted.T @ Y[j])
            grad_b.append(-(weighted.sum() if self._is_scalar else weighted.sum(0)))
            slope = 1.0 - xp.tanh(Y[j + 1] @ K[j].T + b[j]) ** 2
            P.append(self._c * (P[n] * slope) @ K[j] + P.weighted(H[n, : n + 1]))
        K_found, b_found = (torch.as_tensor(xp.stack(found[::-1])) for found in (grad_K, grad_b))
        K_found = K_found.mT if self.reading.transposed else K_found
        return LayerGradients(-P.as_tensor()[-1], K_found, b_found, ())

    def _memory(self, like: torch.Tensor) -> torch.Tensor:
        """Row j: what Y_{j+1} remembers of Y_0 … Y_j; its first column is a_0, …, a_{N−1}."""
        if isinstance(self._plan, ExactPlan):
            return self._plan.forward_matrix(like)
        return torch.eye(len(self._K), dtype=like.dtype, device=like.device)

    def _printed_memory(self, like: torch.Tensor) -> torch.Tensor:
        """Row n: what P_{N−1−n} has of P_N, P_{N−1}, …, which is P_{j+1} and the sum of a_{k−j−1} (P_{k+1} − P_k)."""

        def make() -> torch.Tensor:
            n = torch.arange(len(self._K), device=like.device)
            lag = n.unsqueeze(1) - n
            # At order 1 the first column of H has a_0 = 1 alone, too.
            a = torch.where(lag > 0, self._memory(like)[:, 0][(lag - 1).clamp(min=0)], 0.0)
            a = a if self.reading.has_sum else torch.zeros_like(a)
            return torch.eye(len(n)).to(a) + a - pad(a, (1, 0))[:, :-1]

        return self._plan.kept(("printed", self.reading, like.dtype, like.device), make)


def _reading(*, transposed: bool, has_sum: bool) -> type[PrintedLayers]:
    return type("PrintedLayers", (PrintedLayers,), {"reading": Reading(transposed, has_sum)})


# By the name of the adjoint.
READINGS: dict[str, type[PrintedLayers]] = {
    "continuous": PrintedLayers,
    "continuous-transposed": _reading(transposed=True, has_sum=True),
    "classical": _reading(transposed=False, has_sum=False),
    "classical-transposed": _reading(transposed=True, has_sum=False),
}


def _arrays(*tensors: torch.Tensor) -> tuple[Any, Sequence[Any]]:
    """NumPy and what it sees of the tensors; torch and these where it cannot read them, or torch is to be watched."""
    readable = all(is_readable(each) and each.dtype in NUMPY_TYPES for each in tensors)
    if not readable or operations_are_watched(tensors[0].device.type):
        return torch, tensors
    return np, [each.detach().numpy() for each in tensors]


class _Listed(list):
    """Tensors one after the other, and weighted sums of those so far."""

    def weighted(self, weights: torch.Tensor) -> torch.Tensor:
        return torch.tensordot(weights, torch.stack(self), 1)

    def as_tensor(self) -> torch.Tensor:
        return torch.stack(self)


class _Stored:
    """The same for arrays, in one that is there from the start."""

    def __init__(self, first: np.ndarray, n: int) -> None:
        self._all, self._n = np.empty((n, *first.shape), first.dtype), 0
        self._rows = self._all.reshape(n, -1)
        self.append(first)

    def append(self, state: np.ndarray) -> None:
        self._all[self._n] = state
        self._n += 1

    def weighted(self, weights: np.ndarray) -> np.ndarray:
        return (weights @ self._rows[: self._n]).reshape(self._all.shape[1:])

    def __getitem__(self, n: int) -> np.ndarray:
        return self._all[n]

    def as_tensor(self) -> torch.Tensor:
        return torch.from_numpy(self._all)


def _history(first: Any, n: int) -> Any:
    """Room for n states, from the first on."""
    return _Stored(first, n) if isinstance(first, np.ndarray) else _Listed([first])
