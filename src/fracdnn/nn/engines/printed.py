"""The gradient as the paper prints it (Alg. 2 and its design equations). It is not the gradient of the network.

Kept for reproduction only, as `FractionalNetwork(adjoint="continuous")`. The paper discretises the continuous adjoint
equation; with P_N = −∂E/∂Y_N it prints

    P_j = P_{j+1} + Σ_{k=j+1}^{N−1} a_{k−j−1} (P_{k+1} − P_k) + c K_jᵀ (P_{j+1} ⊙ σ'(K_j Y_{j+1} + b_j)),
    ∇_{K_j} = −Y_j (P_{j+1} ⊙ σ'(K_j Y_j + b_j))ᵀ,   ∇_{b_j} = −⟨σ'(K_j Y_j + b_j), P_{j+1}⟩.

Against the exact discrete adjoint this

1. takes a_{k−j−1} for a_{k−j};
2. drops the boundary term −a_{N−j} P_N that fractional integration by parts leaves;
3. evaluates σ' at Y_{j+1} for Y_j in the adjoint equation;
4. leaves out the factor c = Γ(2−γ) τ^γ in ∇_K and ∇_b;
5. prints ∇_K transposed: that alone is put right here, since the shapes would not fit an update otherwise.
"""

import torch

from fracdnn.memory import ExactPlan, MemoryPlan, propagate
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.engines.by_hand import LayerGradients, Layers
from fracdnn.nn.operators import affine


class PrintedLayers(Layers):
    """Y_N of the tanh network by the usual forward pass, with the printed backward pass."""

    has_second_derivatives = False

    def __init__(self, architecture: Architecture, plan: MemoryPlan, weights: Weights) -> None:
        assert weights.b is not None
        self._K, self._b, self._plan = weights.operators, weights.b, plan

    def forward(self, y0: torch.Tensor) -> torch.Tensor:
        def step(j: int, y: torch.Tensor) -> torch.Tensor:
            return torch.tanh(affine(y, self._K[j], self._b[j]))

        self._states = propagate(self._plan, step, y0, trajectory=True, name="layer {}".format)
        return self._states[-1]

    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        n_layers, states = len(self._K), self._states
        factor = float(self._plan.factors[0])
        a = self._l1_weights()
        P = [torch.zeros_like(cotangent)] * n_layers + [-cotangent]
        grad_K, grad_b = torch.empty_like(self._K), torch.empty_like(self._b)
        for j in range(n_layers - 1, -1, -1):
            memory = sum((a[k - j - 1] * (P[k + 1] - P[k]) for k in range(j + 1, n_layers)), P[j + 1])
            P[j] = memory + factor * (P[j + 1] * self._slope(j, states[j + 1])) @ self._K[j]
            weighted = P[j + 1] * self._slope(j, states[j])
            grad_K[j] = -weighted.T @ states[j]
            grad_b[j] = -(weighted.sum(0) if grad_b.dim() == 2 else weighted.sum())
        return LayerGradients(-P[0], grad_K, grad_b, ())

    def _l1_weights(self) -> torch.Tensor:
        """a_0, …, a_{N−1}: what the layers remember of Y_0."""
        if isinstance(self._plan, ExactPlan):
            return self._plan.forward_matrix(self._states)[:, 0]
        return torch.eye(1, len(self._K), dtype=self._K.dtype, device=self._K.device)[0]  # order 1

    def _slope(self, j: int, y: torch.Tensor) -> torch.Tensor:
        return 1.0 - torch.tanh(affine(y, self._K[j], self._b[j])) ** 2
