"""Deep networks with memory: layers as time steps of a fractional differential equation."""

from fracdnn import caputo, datasets, memory, nn, optim, solver, training
from fracdnn.solver import fdeint, graded_mesh

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "caputo",
    "datasets",
    "fdeint",
    "graded_mesh",
    "memory",
    "nn",
    "optim",
    "solver",
    "training",
]
