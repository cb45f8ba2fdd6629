"""The gradient as the paper prints it (Alg. 2 and its design equations). It is not the gradient of the network.

The paper discretizes the continuous adjoint equation; with P_N = −∂E/∂Y_N it prints

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

from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from fracdnn.caputo import l1_step_factor, l1_weights, memory_matrix
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork


class Reading(NamedTuple):
    """What the printed text leaves to choose: ∇_K as printed or put right, and the sum, which order 1 may not have."""

    transposed: bool
    has_sum: bool


READINGS = {
    "continuous": Reading(transposed=False, has_sum=True),
    "continuous-transposed": Reading(transposed=True, has_sum=True),
    "classical": Reading(transposed=False, has_sum=False),
    "classical-transposed": Reading(transposed=True, has_sum=False),
}


class PrintedNetwork(FractionalNetwork):
    """The network with the gradient of a reading, or with its own where `adjoint` is "exact". It may be set later."""

    def __init__(self, *sizes: int, adjoint: str = "continuous", **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.adjoint = adjoint

    @property
    def adjoint(self) -> str:
        return self._adjoint

    @adjoint.setter
    def adjoint(self, adjoint: str) -> None:
        a, memory = self.architecture, self.memory
        if adjoint not in ("exact", *READINGS):
            raise InvalidArgumentError(f"adjoint must be one of {('exact', *READINGS)}, got {adjoint!r}")
        as_printed = (a.operator, a.activation) == ("dense", "tanh") and a.bias is not False and a.has_skip
        if adjoint != "exact" and not (as_printed and memory.is_fixed and not memory.is_by_layer):
            raise InvalidArgumentError(
                f"adjoint={adjoint!r} must go with operator='dense', activation='tanh', a bias, residual=True and one "
                f"fixed order and step size, as in the paper; use adjoint='exact' otherwise"
            )
        if "classical" in adjoint and not memory.is_residual:
            raise InvalidArgumentError(
                f"adjoint={adjoint!r} must go with order=1, got {float(memory.order):g}; below it the paper prints "
                f"adjoint={adjoint.replace('classical', 'continuous')!r}"
            )
        self._adjoint = adjoint

    def forward(self, x: torch.Tensor, *, trajectory: bool = False) -> torch.Tensor:
        if self.adjoint == "exact" or trajectory:
            return super().forward(x, trajectory=trajectory)
        order, n_layers = float(self.order), self.architecture.n_layers
        memory = _Memory(
            H=memory_matrix(order, n_layers).to(x),
            a=l1_weights(order, n_layers).to(x) * READINGS[self.adjoint].has_sum,
            c=float(l1_step_factor(order, float(self.memory.step_size))),
            transposed=READINGS[self.adjoint].transposed,
        )
        y0 = self.architecture.project_input(x, self.weights())
        return linear(_Layers.apply(memory, y0, self.K, self.b), self.W)


def network_with(adjoint: str, *sizes: int, **options: Any) -> FractionalNetwork:
    """Return a network with this adjoint: a plain `FractionalNetwork` if it is "exact"."""
    return (
        FractionalNetwork(*sizes, **options)
        if adjoint == "exact"
        else PrintedNetwork(*sizes, adjoint=adjoint, **options)
    )


class _Memory(NamedTuple):
    """Row j of H is what Y_{j+1} remembers of Y_0 … Y_j."""

    H: torch.Tensor
    a: torch.Tensor
    c: float
    transposed: bool


class _Layers(torch.autograd.Function):
    """Y_N, by the usual way forward and the printed one back."""

    @staticmethod
    def forward(ctx: Any, memory: _Memory, y0: torch.Tensor, K: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        states = [y0]
        for j in range(len(K)):
            remembered = torch.tensordot(memory.H[j, : j + 1], torch.stack(states), 1)
            states.append(remembered + memory.c * torch.tanh(states[j] @ K[j].T + b[j]))
        ctx.memory = memory
        ctx.save_for_backward(torch.stack(states), K, b)
        return states[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (Y, K, b), memory = ctx.saved_tensors, ctx.memory
        n_layers, c = len(K), memory.c

        def slope(y: torch.Tensor, j: int) -> torch.Tensor:
            return 1.0 - torch.tanh(y @ K[j].T + b[j]) ** 2

        P = torch.zeros_like(Y)
        P[n_layers] = -cotangent
        grad_K, grad_b = torch.empty_like(K), torch.empty_like(b)
        for j in reversed(range(n_layers)):
            weighted = P[j + 1] * slope(Y[j], j)
            grad_K[j] = -weighted.T @ Y[j]
            grad_b[j] = -(weighted.sum() if b.dim() == 1 else weighted.sum(0))
            later = torch.tensordot(memory.a[: n_layers - j - 1], P[j + 2 :] - P[j + 1 : -1], 1)
            P[j] = P[j + 1] + later + c * (P[j + 1] * slope(Y[j + 1], j)) @ K[j]
        return None, -P[0], grad_K.mT if memory.transposed else grad_K, grad_b
