"""Deep networks with memory: layers as time steps of a fractional differential equation."""

from typing import TYPE_CHECKING, Any

from fracdnn.version import __version__

__all__ = [
    "FractionalClassifier",
    "FractionalRegressor",
    "__version__",
    "caputo",
    "datasets",
    "fdeint",
    "fit",
    "fitting",
    "graded_mesh",
    "load",
    "memory",
    "nn",
    "optim",
    "solver",
    "training",
]

if TYPE_CHECKING:
    from fracdnn import caputo, datasets, fitting, memory, nn, optim, solver, training
    from fracdnn.estimators import FractionalClassifier, FractionalRegressor, load
    from fracdnn.fitting import fit
    from fracdnn.solver import fdeint, graded_mesh
else:
    # Names that live in a room; every other public name is a room itself.
    _HOMES = {
        "FractionalClassifier": "estimators",
        "FractionalRegressor": "estimators",
        "fdeint": "solver",
        "fit": "fitting",
        "graded_mesh": "solver",
        "load": "estimators",
    }

    def __getattr__(name: str) -> Any:
        """Public names are imported when they are first used: torch takes seconds, scikit-learn one more."""
        import sys
        from importlib import import_module

        from fracdnn.exceptions import MissingExtraError, MissingNameError

        if name not in __all__:
            raise AttributeError(f"module 'fracdnn' has no attribute {name!r}")
        try:
            room = import_module(f"fracdnn.{_HOMES.get(name, name)}")
        except MissingExtraError as error:
            # `from fracdnn import name` drops an AttributeError with its message, and passes an ImportError on.
            if sys._getframe(1).f_globals.get("__name__") == "importlib._bootstrap":
                raise
            raise MissingNameError(str(error)) from None
        globals()[name] = found = getattr(room, name) if name in _HOMES else room
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
