"""The paper's optimizer, usable on any module."""

from fracdnn.optim.bfgs import BFGS, Iteration, Result, Status

__all__ = ["BFGS", "Iteration", "Result", "Status"]
