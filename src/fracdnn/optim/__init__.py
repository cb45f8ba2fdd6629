"""Optimizers with a line search, usable on any module."""

from fracdnn.optim.directions import Armijo
from fracdnn.optim.minimizer import BFGS, LBFGS, Iteration, Result, Status, SteepestDescent

__all__ = ["BFGS", "LBFGS", "Armijo", "Iteration", "Result", "Status", "SteepestDescent"]
