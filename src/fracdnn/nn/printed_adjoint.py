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

from typing import Any

import torch

from fracdnn.caputo import l1_weights
from fracdnn.memory import MemoryPlan, propagate


class PrintedAdjoint(torch.autograd.Function):
    """Y_N of the tanh network by the usual forward pass, with the printed backward pass.

    K [N, width, width], b [N, width] or [N, 1], Y_0 [n, width].
    """

    @staticmethod
    def forward(
        ctx: Any, y0: torch.Tensor, matrices: torch.Tensor, biases: torch.Tensor, plan: MemoryPlan, order: float
    ) -> torch.Tensor:
        def step(j: int, y: torch.Tensor) -> torch.Tensor:
            return torch.tanh(y @ matrices[j].T + biases[j])

        states = propagate(plan, step, y0, trajectory=True, name="layer {}".format)
        ctx.save_for_backward(matrices, biases, states)
        ctx.plan, ctx.order = plan, order
        return states[-1].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        matrices, biases, states = ctx.saved_tensors
        n_layers = len(matrices)
        factor = float(ctx.plan.factors[0])
        a = l1_weights(ctx.order, n_layers).to(states)

        def slope(j: int, y: torch.Tensor) -> torch.Tensor:
            return 1.0 - torch.tanh(y @ matrices[j].T + biases[j]) ** 2

        P = [torch.zeros_like(cotangent)] * n_layers + [-cotangent]
        grad_matrices, grad_biases = torch.empty_like(matrices), torch.empty_like(biases)
        for j in range(n_layers - 1, -1, -1):
            memory = sum((a[k - j - 1] * (P[k + 1] - P[k]) for k in range(j + 1, n_layers)), P[j + 1])
            P[j] = memory + factor * (P[j + 1] * slope(j, states[j + 1])) @ matrices[j]
            weighted = P[j + 1] * slope(j, states[j])
            grad_matrices[j] = -weighted.T @ states[j]
            grad_biases[j] = -weighted.sum(0).sum_to_size(biases[j].shape)
        return -P[0], grad_matrices, grad_biases, None, None
