"""Methods by name: each is a small file with its formula, order and source."""

from fracdnn.solver.methods.base import Method, Options
from fracdnn.solver.methods.bdf2 import Bdf2
from fracdnn.solver.methods.exponential import Exponential
from fracdnn.solver.methods.l1 import L1, ImplicitL1
from fracdnn.solver.methods.predictor_corrector import Adams, Euler, Pece
from fracdnn.solver.methods.trapezoidal import Trapezoidal

METHODS: dict[str, type[Method] | type[Exponential]] = {
    "adams": Adams,
    "bdf2": Bdf2,
    "euler": Euler,
    "exponential": Exponential,
    "l1": L1,
    "l1-implicit": ImplicitL1,
    "pece": Pece,
    "trapezoidal": Trapezoidal,
}

__all__ = ["METHODS", "Exponential", "Method", "Options"]
