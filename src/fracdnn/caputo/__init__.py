"""Fractional calculus by itself: weights, sums of exponentials, derivatives and integrals, Mittag-Leffler."""

from fracdnn.caputo.exponentials import ExponentialSum, compress_differences
from fracdnn.caputo.mittag_leffler import mittag_leffler
from fracdnn.caputo.mittag_leffler_matrix import mittag_leffler_matrix
from fracdnn.caputo.sampled_function import caputo_derivative, fractional_integral
from fracdnn.caputo.weights import (
    l1_differences,
    l1_step_factor,
    l1_weights,
    l1_weights_on_grid,
    memory_matrix,
    memory_weights,
    memory_weights_of_steps,
    memory_weights_on_grid,
)

__all__ = [
    "ExponentialSum",
    "caputo_derivative",
    "compress_differences",
    "fractional_integral",
    "l1_differences",
    "l1_step_factor",
    "l1_weights",
    "l1_weights_on_grid",
    "memory_matrix",
    "memory_weights",
    "memory_weights_of_steps",
    "memory_weights_on_grid",
    "mittag_leffler",
    "mittag_leffler_matrix",
]
