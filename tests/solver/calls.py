"""Arguments of `fdeint` as test cases write them, all by keyword."""

from typing import Any

from fracdnn.solver.rare_options import OPTIONS


def grouped(**given: Any) -> dict[str, Any]:
    """The same with the rare ones as `options`."""
    options = {name: value for name, value in given.items() if name in OPTIONS}
    rest = {name: value for name, value in given.items() if name not in OPTIONS}
    return {**rest, "options": options} if options else rest
