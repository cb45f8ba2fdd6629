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

from typing import NamedTuple

import torch

from fracdnn.memory import ExactPlan, MemoryPlan, propagate
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.engines.by_hand import LayerGradients, Layers
from fracdnn.nn.operators import affine


class Reading(NamedTuple):
    """What the printed text leaves to choose: ∇_K as printed or put right, and the sum, which order 1 may not have."""

    transposed: bool
    has_sum: bool


class PrintedLayers(Layers):
    """Y_N of the tanh network by the usual forward pass, with the printed backward pass."""

    has_second_derivatives = False
    reading = Reading(transposed=False, has_sum=True)

    def __init__(self, architecture: Architecture, plan: MemoryPlan, weights: Weights) -> None:
        assert weights.b is not None
        self._K, self._b, self._plan = weights.operators, weights.b, plan

    def forward(self, y0: torch.Tensor) -> torch.Tensor:
        def step(j: int, y: torch.Tensor) -> torch.Tensor:
            return torch.tanh(affine(y, self._K[j], self._b[j]))

        self._states = propagate(self._plan, step, y0, trajectory=True, name="layer {}".format)
        return self._states[-1]

    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        states, K, n_layers = self._states, self._K, len(self._K)
        c, a, slopes = float(self._plan.factors[0]), self._l1_weights(), self._slopes(states[1:])
        P = torch.cat([torch.empty_like(states[:-1]), -cotangent.unsqueeze(0)])
        changes = torch.empty_like(states[:-1])  # P_{k+1} − P_k
        for j in reversed(range(n_layers)):
            P[j] = P[j + 1] + c * (P[j + 1] * slopes[j]) @ K[j]
            if self.reading.has_sum:
                P[j] += torch.tensordot(a[: n_layers - 1 - j], changes[j + 1 :], 1)
            changes[j] = P[j + 1] - P[j]
        weighted = -P[1:] * self._slopes(states[:-1])
        grad_K = weighted.mT @ states[:-1]
        grad_b = weighted.sum(1 if self._b.dim() == 2 else (1, 2))
        return LayerGradients(-P[0], grad_K.mT if self.reading.transposed else grad_K, grad_b, ())

    def _l1_weights(self) -> torch.Tensor:
        """a_0, …, a_{N−1}: what the layers remember of Y_0."""
        if isinstance(self._plan, ExactPlan):
            return self._plan.forward_matrix(self._states)[:, 0]
        return torch.eye(1, len(self._K), dtype=self._K.dtype, device=self._K.device)[0]  # order 1

    def _slopes(self, states: torch.Tensor) -> torch.Tensor:
        """σ'(K_j Y + b_j) for each layer, with a state Y for each."""
        biases = self._b.unsqueeze(1) if self._b.dim() == 2 else self._b.view(-1, 1, 1)
        return 1.0 - torch.tanh(states @ self._K.mT + biases) ** 2


class TransposedLayers(PrintedLayers):
    """With ∇_K transposed, as it is printed."""

    reading = Reading(transposed=True, has_sum=True)


class ClassicalLayers(PrintedLayers):
    """Without the sum: the classical adjoint at order 1."""

    reading = Reading(transposed=False, has_sum=False)


class ClassicalTransposedLayers(PrintedLayers):
    """Both."""

    reading = Reading(transposed=True, has_sum=False)


# By the name of the adjoint.
READINGS: dict[str, type[PrintedLayers]] = {
    "continuous": PrintedLayers,
    "continuous-transposed": TransposedLayers,
    "classical": ClassicalLayers,
    "classical-transposed": ClassicalTransposedLayers,
}
