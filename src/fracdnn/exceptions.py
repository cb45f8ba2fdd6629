"""Errors and warnings of fracdnn. Each class also inherits the built-in one that a caller would expect."""


class FracdnnError(Exception):
    """Base of every error that fracdnn raises on purpose."""


class InvalidArgumentError(FracdnnError, ValueError):
    """An argument has the right type and a value outside its rule."""


class InvalidTypeError(FracdnnError, TypeError):
    """An argument is of a type the function cannot take."""


class NotFiniteError(FracdnnError, ArithmeticError):
    """A state became NaN or infinite."""


class NotConvergedError(FracdnnError, ArithmeticError):
    """An iteration or the choice of steps did not converge."""

    reached = 0.0  # the time since the start up to which a search for steps came


class NoisyFunctionWarning(RuntimeWarning):
    """The values of a differential equation's func scatter more than the tolerances of a solve allow for."""


class UnstableStepsWarning(RuntimeWarning):
    """A solution on a fixed grid grew although func pulls it back: its steps are too long for an explicit method."""


class StateChangedError(FracdnnError, RuntimeError):
    """A layer wrote into the state it was given, or made another one when it was called again."""


class FileContentError(FracdnnError, ValueError):
    """A file is cut short, altered, of another program or of a newer version."""


class DownloadError(FracdnnError, OSError):
    """A file could not be fetched, or what came is not what was requested."""


class TableError(FracdnnError, ValueError):
    """A table is not what a model needs: columns, cells, or the file itself."""


class RankError(FracdnnError, RuntimeError):
    """Another process of a training failed, ended or hangs."""


class MissingExtraError(FracdnnError, ImportError):
    """An optional package is not installed: `name` is its module, and the message says which extra brings it."""


class MissingNameError(FracdnnError, AttributeError):
    """A public name of `fracdnn` needs an optional package that is not installed; see `MissingExtraError`.

    Python has no class that is an ImportError and an AttributeError, and `hasattr` wants the latter.
    """


class KernelWarning(RuntimeWarning):
    """A compiled kernel cannot be used, or not fully, on this machine; results are the same, and come more slowly."""
