"""Methods by name: each is a class with its formula, order and source."""

from fracdnn.solver.methods.base import Method
from fracdnn.solver.methods.bdf2 import Bdf2
from fracdnn.solver.methods.exponential import Exponential
from fracdnn.solver.methods.l1 import L1, ImplicitL1
from fracdnn.solver.methods.predictor_corrector import Adams, Euler, Pece, Trapezoidal

METHODS: dict[str, type[Method] | type[Exponential]] = {
    method.name: method for method in (Adams, Bdf2, Euler, Exponential, L1, ImplicitL1, Pece, Trapezoidal)
}

__all__ = ["METHODS", "Exponential", "Method"]
