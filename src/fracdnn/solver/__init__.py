"""fdeint: solve fractional differential equations, differentiably."""

from fracdnn.solver.delay import fdeint_delay
from fracdnn.solver.event import fdeint_event
from fracdnn.solver.fdeint import fdeint
from fracdnn.solver.grids import Adaptive, Given, Graded, Uniform, graded_mesh
from fracdnn.solver.interpolation import cubic_input, linear_input
from fracdnn.solver.mass import fdeint_mass
from fracdnn.solver.multi_term import MultiTerm, distributed_order, gauss_orders
from fracdnn.solver.solution import Solution, Status
from fracdnn.solver.tempered import fdeint_tempered

__all__ = [
    "Adaptive",
    "Given",
    "Graded",
    "MultiTerm",
    "Solution",
    "Status",
    "Uniform",
    "cubic_input",
    "distributed_order",
    "fdeint",
    "fdeint_delay",
    "fdeint_event",
    "fdeint_mass",
    "fdeint_tempered",
    "gauss_orders",
    "graded_mesh",
    "linear_input",
]
