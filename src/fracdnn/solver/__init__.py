"""fdeint: solve fractional differential equations, differentiably."""

from fracdnn.solver.event import fdeint_event
from fracdnn.solver.fdeint import fdeint
from fracdnn.solver.interpolation import cubic_input, linear_input
from fracdnn.solver.mesh import graded_mesh
from fracdnn.solver.multi_term import MultiTerm
from fracdnn.solver.solution import Solution, Status

__all__ = ["MultiTerm", "Solution", "Status", "cubic_input", "fdeint", "fdeint_event", "graded_mesh", "linear_input"]
