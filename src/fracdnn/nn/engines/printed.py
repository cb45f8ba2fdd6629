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
        states, slopes = xp.stack([y] * (len(K) + 1)), xp.stack([y] * len(K))
        rows = states.reshape(len(states), -1)
        for j in range(len(K)):
            value = xp.tanh(states[j] @ K[j].T + b[j])
            states[j + 1] = self._c * value + (H[j, : j + 1] @ rows[: j + 1]).reshape(y.shape)
            slopes[j] = 1.0 - value * value
        self._states, self._slopes = torch.as_tensor(states), torch.as_tensor(slopes)
        return self._states[-1]

    @np.errstate(all="ignore")
    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        constants = self._K, self._b, self._printed_memory(cotangent), self._states, self._slopes
        xp, (q, K, b, H, Y, slopes) = _arrays(cotangent, *constants)
        P, grad_K, grad_b = xp.stack([-q] * (len(K) + 1)), xp.empty_like(K), xp.empty_like(b)  # P_N, P_{N−1}, …
        rows = P.reshape(len(P), -1)
        for n, j in enumerate(reversed(range(len(K)))):
            weighted = P[n] * slopes[j]
            grad_K[j] = -weighted.T @ Y[j]
            grad_b[j] = -(weighted.sum() if self._is_scalar else weighted.sum(0))
            slope = 1.0 - xp.tanh(Y[j + 1] @ K[j].T + b[j]) ** 2
            P[n + 1] = self._c * (P[n] * slope) @ K[j] + (H[n, : n + 1] @ rows[: n + 1]).reshape(q.shape)
        K_found, b_found = torch.as_tensor(grad_K), torch.as_tensor(grad_b)
        K_found = K_found.mT if self.reading.transposed else K_found
        b_found = b_found.flatten() if self._is_scalar else b_found.squeeze(1)
        return LayerGradients(-torch.as_tensor(P)[-1], K_found, b_found, ())

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
