"""A function of a matrix without good eigenvectors: the block recurrence of Parlett on a Schur form.

T = Qᴴ A Q is triangular, ordered so that close eigenvalues make one diagonal block. F = f(T) commutes with T, which
gives its blocks off the diagonal (Davies and Higham, SIAM J. Matrix Anal. Appl. 25, 2003):

    T_ii F_ij − F_ij T_jj = F_ii T_ij − T_ij F_jj + Σ_{i<k<j} (F_ik T_kj − T_ik F_kj)

F_ii is a Taylor series around the block's mean eigenvalue. Its coefficients are the Fourier coefficients of f on a
circle, because f is entire. Scaling T does not change the equation, so all scales share one form.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch

# Eigenvalues within a tenth of their size share a block.
_CLOSE = 0.1
# One k-fold eigenvalue is computed as k eigenvalues within this many times ε^(1/k) of the norm of what is off diagonal.
_SCATTER = 2.0
_CIRCLE, _TERMS = 64, 40
Scalar = Callable[[torch.Tensor], torch.Tensor]


def schur_parlett(matrix: torch.Tensor, scales: torch.Tensor, function: Scalar) -> torch.Tensor:
    """Return f(scale·A) for each scale, [t, n, n], of one complex matrix; f is entire."""
    triangle, q, ends = _ordered_schur(matrix.detach().cpu().numpy())
    blocks, times = [slice(*each) for each in pairwise(ends)], scales.detach().cpu()
    result = torch.zeros(len(times), *triangle.shape, dtype=triangle.dtype)
    for i in blocks:
        result[:, i, i] = _taylor(triangle[i, i], times, function)
    for distance in range(1, len(blocks)):
        for i, j in zip(blocks, blocks[distance:], strict=False):
            between = slice(i.stop, j.start)
            right = result[:, i, i] @ triangle[i, j] - triangle[i, j] @ result[:, j, j]
            right = right + result[:, i, between] @ triangle[between, j] - triangle[i, between] @ result[:, between, j]
            left, lower = triangle[i, i].contiguous(), triangle[j, j].mT.contiguous()
            system = torch.kron(left, torch.eye(len(lower))) - torch.kron(torch.eye(len(left)), lower)
            result[:, i, j] = torch.linalg.solve(system, right.flatten(1).mT).mT.reshape(right.shape)
    return (q @ result @ q.mH).to(matrix.device)


def _ordered_schur(matrix: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Return T, Q, and the ends of the diagonal blocks, 0 first."""
    # Imported late: SciPy would add a fifth to the time that importing fracdnn takes.
    from scipy.linalg import lapack, schur

    form, vectors = schur(matrix, output="complex")
    labels = _blocks(np.diag(form), float(np.linalg.norm(np.triu(form, 1)))).tolist()
    for target in range(len(labels)):
        at = labels.index(min(labels[target:]), target)
        form, vectors, _ = lapack.ztrexc(form, vectors, at + 1, target + 1)
        labels.insert(target, labels.pop(at))
    return torch.from_numpy(np.triu(form)), torch.from_numpy(vectors), [0, *np.bincount(labels).cumsum().tolist()]


def _blocks(eigenvalues: np.ndarray, coupling: float) -> np.ndarray:
    """Return the number of the block of each eigenvalue: close ones, and those that may be one multiple eigenvalue."""
    from scipy.sparse.csgraph import connected_components

    sizes, gaps = np.abs(eigenvalues), np.abs(np.subtract.outer(eigenvalues, eigenvalues))
    near = gaps <= _CLOSE * np.maximum.outer(sizes, sizes)
    for multiplicity in range(2, len(eigenvalues) + 1):
        reach = _SCATTER * coupling * np.finfo(np.float64).eps ** (1.0 / multiplicity)
        labels = connected_components(gaps <= reach)[1]
        many = np.bincount(labels)[labels] >= multiplicity
        near |= (labels[:, None] == labels) & many
    return connected_components(near)[1]


def _taylor(block: torch.Tensor, scales: torch.Tensor, function: Scalar) -> torch.Tensor:
    """Return f(scale·block) for each scale, where all eigenvalues of the block are close to their mean."""
    center, eye = block.diagonal().mean(), torch.eye(len(block), dtype=block.dtype)
    if len(block) == 1:
        return function(scales * center).reshape(-1, 1, 1)
    rest = block - center * eye
    coefficients, radius = _coefficients(scales * center, scales.abs() * rest.diagonal().abs().max(), function)
    result = torch.zeros(len(scales), *block.shape, dtype=block.dtype)
    scaled = (scales / radius)[:, None, None] * rest
    for k in range(_TERMS - 1, -1, -1):
        result = result @ scaled + coefficients[:, k, None, None] * eye
    return result


def _coefficients(centers: torch.Tensor, spreads: torch.Tensor, function: Scalar) -> tuple[torch.Tensor, torch.Tensor]:
    """Return Taylor coefficients of r ↦ f(center + radius·r), and the radius: the largest on which f grows little."""
    angles = torch.exp(2j * np.pi * torch.arange(_CIRCLE, dtype=torch.float64) / _CIRCLE)
    radius = torch.maximum(0.5 * (centers.abs() + 1), 4 * spreads)
    values = function(centers[:, None] + radius[:, None] * angles)
    middle = function(centers).abs()
    for _ in range(16):
        wild = (values.abs().amax(1) > 8 * middle) & (radius > 4 * spreads) & (radius > 1e-3)
        if not bool(wild.any()):
            break
        radius = torch.where(wild, torch.maximum(0.5 * radius, 4 * spreads), radius)
        values[wild] = function(centers[wild, None] + radius[wild, None] * angles)
    return torch.fft.fft(values, dim=1) / _CIRCLE, radius
