"""Methods by name: each is a class with its formula, order and source."""

from fracdnn.solver.methods.base import Method
from fracdnn.solver.methods.l1 import L1, ImplicitL1
from fracdnn.solver.methods.predictor_corrector import Adams, Euler, Pece, Trapezoidal

METHODS: dict[str, type[Method]] = {method.name: method for method in (Adams, Euler, L1, ImplicitL1, Pece, Trapezoidal)}

__all__ = ["METHODS", "Method"]
