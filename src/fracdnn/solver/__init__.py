"""fdeint: solve fractional differential equations, differentiably."""

from fracdnn.solver.delay import fdeint_delay
from fracdnn.solver.event import fdeint_event
from fracdnn.solver.fdeint import Solution, fdeint
from fracdnn.solver.interpolation import cubic_input, linear_input
from fracdnn.solver.mesh import graded_mesh
from fracdnn.solver.multi_term import MultiTerm

__all__ = [
    "MultiTerm",
    "Solution",
    "cubic_input",
    "fdeint",
    "fdeint_delay",
    "fdeint_event",
    "graded_mesh",
    "linear_input",
]
