"""Deep networks with memory: layers as time steps of a fractional differential equation."""

from typing import TYPE_CHECKING, Any

from fracdnn import caputo, datasets, memory, nn, optim, solver, training
from fracdnn.solver import fdeint, graded_mesh
from fracdnn.version import __version__

if TYPE_CHECKING:
    from fracdnn.estimators import FractionalClassifier, FractionalRegressor
    from fracdnn.tabular import load

__all__ = [
    "FractionalClassifier",
    "FractionalRegressor",
    "__version__",
    "caputo",
    "datasets",
    "fdeint",
    "graded_mesh",
    "load",
    "memory",
    "nn",
    "optim",
    "solver",
    "training",
]


def __getattr__(name: str) -> Any:
    """The estimators, imported when they are asked for: scikit-learn takes a second."""
    if name in ("FractionalClassifier", "FractionalRegressor"):
        from fracdnn import estimators

        return getattr(estimators, name)
    if name == "load":
        from fracdnn.tabular import load

        return load
    raise AttributeError(f"module 'fracdnn' has no attribute {name!r}")
