"""The Mittag-Leffler function of a small matrix, and its derivative in every direction.

With eigenvectors V of condition below 10⁵, f(A) = V f(Λ) V⁻¹ and its derivative along E is

    L(A, E) = V (D ∘ (V⁻¹ E V)) V⁻¹,   D_ij = (f(λ_i) − f(λ_j)) / (λ_i − λ_j)   (Daleckii and Krein)

where D_ij is a mean of f' between eigenvalues that are close. Other matrices, defective ones among them, go through
`schur_parlett`, and L(A, E) is the corner of f([[A, E], [0, A]]). Both are linear in f, so the derivatives by α and β
are the same formulas for ∂f/∂α and ∂f/∂β. The adjoint of L(A, ·) is L(Aᴴ, ·).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fracdnn.caputo.mittag_leffler import evaluate
from fracdnn.caputo.schur_parlett import Scalar, schur_parlett
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.validation import check_numbers, check_one_order, check_positive_tensor

_WORST_CONDITION = 1e5


def mittag_leffler_matrix(
    A: Any, order: float | torch.Tensor, beta: float | torch.Tensor = 1.0, *, scale: Any = 1.0
) -> torch.Tensor:
    """Return E_{order,beta}(scale·A) for square A [..., n, n], real or complex, and 0 < order ≤ 2, beta > 0.

    `scale` holds real numbers of any shape S; the result is [..., *S, n, n]. One A with many scales is decomposed
    once: e_{α,β}(t; A) = t^(β−1) E_{α,β}(t^α A) at all times t is `mittag_leffler_matrix(A, order, beta,
    scale=t**order)` times t^(β−1). dtype and device as A's; computed in float64.

    Error against mpmath, relative to the largest entry: 1e-14 for small matrices, normal, not normal or defective;
    1e-12 for eigenvalues from −10⁴ to −10⁻², and for up to 20 equal eigenvalues with random coupling. Badly
    conditioned eigenvectors cost up to five digits.

    Differentiable once in A, scale, order and beta: `backward`, forward mode, `torch.func`. Cost for each scale: n
    scalar values (90 µs each), twice that again for the derivative; 64 to 200 values for a cluster of eigenvalues
    without eigenvectors, whose derivative takes a Schur form of [2n, 2n] for each scale.
    """
    matrices = check_numbers(A, "A")
    if matrices.dim() < 2 or matrices.shape[-1] != matrices.shape[-2] or not matrices.shape[-1]:
        raise InvalidArgumentError(
            f"A must be square in its last two dimensions, and not empty, got shape {tuple(matrices.shape)}; "
            f"pass [..., n, n]"
        )
    factors = check_numbers(scale, "scale")
    if factors.is_complex():
        raise InvalidArgumentError("scale must hold real numbers, got complex ones; multiply A by them instead")
    alpha = check_one_order(order, largest=2, remedy="; choose a number above 0 and not above 2")
    beta = check_positive_tensor(beta, "beta")
    if beta.dim():
        raise InvalidArgumentError(f"beta must be one number here, got shape {tuple(beta.shape)}; call once for each")
    n, device = matrices.shape[-1], matrices.device
    scales, alpha, beta = (each.to(device) for each in (factors.reshape(-1), alpha, beta))
    matrices_in_row = matrices.reshape(-1, n, n).to(torch.complex128)
    scaled = scales[:, None, None] * matrices_in_row.unsqueeze(1)
    result = _MatrixFunction.apply(scaled, matrices_in_row, scales, alpha, beta, None)
    result = result.reshape(*matrices.shape[:-2], *factors.shape, n, n)
    result = result if matrices.is_complex() else result.real
    kept = isinstance(A, torch.Tensor) and (A.is_floating_point() or A.is_complex())
    return result.to(A.dtype) if kept else result


class _OneByOne(torch.autograd.Function):
    """A function that decomposes one batch at a time, also under `torch.func.vmap`."""

    @classmethod
    def vmap(cls, info, dims, *inputs):
        rows = (
            [x if dim is None else x.select(dim, row) for x, dim in zip(inputs, dims, strict=True)]
            for row in range(info.batch_size)
        )
        return torch.stack([cls.apply(*row) for row in rows]), 0


class _MatrixFunction(_OneByOne):
    """E of matrices [b, n, n] and scales [t], or its derivative by α (1) or β (2); [b, t, n, n].

    Derivatives by matrices and scales are those by `scaled`, their product.
    """

    @staticmethod
    def forward(scaled, matrices, scales, alpha, beta, by):
        function = _slope(alpha, beta, by) if by else lambda z: evaluate(z, alpha, beta)
        values, vectors, inverses, is_good = _eigen(matrices)
        diagonal = function(scales[:, None] * values.unsqueeze(1)).unsqueeze(-2)
        result = (vectors.unsqueeze(1) * diagonal) @ inverses.unsqueeze(1)
        for at in torch.nonzero(~is_good).flatten().tolist():
            result[at] = schur_parlett(matrices[at], scales, function)
        return result

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.by = inputs[5]
        ctx.save_for_backward(*inputs[:5])
        ctx.save_for_forward(*inputs[:5])

    @staticmethod
    def backward(ctx, gradient):
        _refuse_second_derivative(ctx.by)
        scaled, matrices, scales, alpha, beta = ctx.saved_tensors
        gradients: list[torch.Tensor | None] = [None] * 6
        if ctx.needs_input_grad[0]:
            gradients[0] = _Derivative.apply(matrices.mH, scales, gradient, alpha, beta)
        for by in (1, 2):
            if ctx.needs_input_grad[by + 2]:
                slope = _MatrixFunction.apply(scaled, matrices, scales, alpha, beta, by)
                gradients[by + 2] = (gradient.conj() * slope).real.sum()
        return tuple(gradients)

    @staticmethod
    def jvp(ctx, scaled_dot, matrices_dot, scales_dot, alpha_dot, beta_dot, _):
        _refuse_second_derivative(ctx.by)
        scaled, matrices, scales, alpha, beta = ctx.saved_tensors
        parts = [] if scaled_dot is None else [_Derivative.apply(matrices, scales, scaled_dot, alpha, beta)]
        for by, tangent in ((1, alpha_dot), (2, beta_dot)):
            if tangent is not None:
                parts.append(tangent * _MatrixFunction.apply(scaled, matrices, scales, alpha, beta, by))
        return sum(parts)


class _Derivative(_OneByOne):
    """L(scale·A, E) for directions E [b, t, n, n]; has no derivatives of its own."""

    @staticmethod
    def forward(matrices, scales, directions, alpha, beta):
        values, vectors, inverses, is_good = _eigen(matrices)
        quotients = _quotients(scales[:, None] * values.unsqueeze(1), alpha, beta)
        vectors, inverses = vectors.unsqueeze(1), inverses.unsqueeze(1)
        result = vectors @ (quotients * (inverses @ directions @ vectors)) @ inverses
        n, one = matrices.shape[-1], torch.ones_like(scales[:1])
        for at in torch.nonzero(~is_good).flatten().tolist():
            for number, scale in enumerate(scales):
                doubled = torch.block_diag(scale * matrices[at], scale * matrices[at])
                doubled[:n, n:] = directions[at, number]
                result[at, number] = schur_parlett(doubled, one, lambda z: evaluate(z, alpha, beta))[0, :n, n:]
        return result

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        _refuse_second_derivative(True)


def _refuse_second_derivative(is_derivative: object) -> None:
    if is_derivative:
        raise NotImplementedError(
            "mittag_leffler_matrix has first derivatives only; for a second one difference the first"
        )


def _slope(alpha: torch.Tensor, beta: torch.Tensor, number: int) -> Scalar:
    """Return the derivative of z ↦ E_{α,β}(z) by z (0), α (1) or β (2)."""

    def slope(z: torch.Tensor) -> torch.Tensor:
        # In reverse mode, which may run inside forward mode.
        def gradient(part: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
            partial = torch.func.grad(lambda *at: part(evaluate(*at)).sum(), argnums=number)
            return partial(z, alpha.expand(z.shape), beta.expand(z.shape))

        if number == 0:  # E is analytic in z, so the real part determines the derivative
            return gradient(torch.real).conj().resolve_conj()
        return torch.complex(gradient(torch.real), gradient(torch.imag))

    return slope


def _eigen(matrices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return eigenvalues [b, n], eigenvectors, their inverses, and whether these are well conditioned [b]."""
    if bool((matrices == matrices.mH).all()):
        values, vectors = torch.linalg.eigh(matrices)
        return values.to(matrices.dtype), vectors, vectors.mH, values.new_ones(len(values), dtype=torch.bool)
    values, vectors = torch.linalg.eig(matrices)
    is_good = torch.linalg.cond(vectors) < _WORST_CONDITION
    vectors = torch.where(is_good[:, None, None], vectors, torch.eye(matrices.shape[-1], dtype=matrices.dtype))
    return values, vectors, torch.linalg.inv(vectors), is_good


def _quotients(z: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """Return (f(z_i) − f(z_j)) / (z_i − z_j), [..., n, n]; for close ones the mean of f' between them, by Gauss."""
    f = evaluate(z, alpha, beta)
    left, right = torch.broadcast_tensors(z.unsqueeze(-1), z.unsqueeze(-2))
    size = torch.maximum(left.abs(), right.abs())
    # Close means that neither 1/z nor exp(z^(1/α)) changes by much.
    reach = 0.1 * torch.where(size < 1, 1.0, size) * (alpha * size.clamp(min=1) ** (-1 / alpha)).clamp(max=1.0)
    close = (left - right).abs() <= reach
    quotients = (f.unsqueeze(-1) - f.unsqueeze(-2)) / torch.where(close, 1.0, left - right)
    nodes, weights = (torch.from_numpy(x).to(z.device) for x in np.polynomial.legendre.leggauss(6))
    middle, half = 0.5 * (left + right)[close].unsqueeze(-1), 0.5 * (left - right)[close].unsqueeze(-1)
    quotients[close] = 0.5 * (_slope(alpha, beta, 0)(middle + half * nodes) * weights).sum(-1)
    return quotients
