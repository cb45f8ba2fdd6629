"""fdeint: solve fractional differential equations, differentiably."""

from fracdnn.solver.fdeint import fdeint
from fracdnn.solver.mesh import graded_mesh

__all__ = ["fdeint", "graded_mesh"]
