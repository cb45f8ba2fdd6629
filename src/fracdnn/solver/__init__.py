"""fdeint: solve fractional differential equations, differentiably."""

from fracdnn.solver.fdeint import Solution, fdeint
from fracdnn.solver.mesh import graded_mesh

__all__ = ["Solution", "fdeint", "graded_mesh"]
