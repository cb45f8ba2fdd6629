"""What can go wrong inside a layer, said with the layer's name."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

import torch

from fracdnn.exceptions import NotFiniteError, StateChangedError


def refuse_change(name: str) -> NoReturn:
    """A step of this name wrote into its state."""
    raise StateChangedError(
        f"{name} must not change the state it is given, but it wrote into it; "
        f"later layers remember that state: use an operation that is not in place"
    )


def check_finite(states: Sequence[torch.Tensor], first: int, name: Callable[[int], str]) -> None:
    """Refuse Y_first, … where the last of them is not finite: a bad state makes all later ones bad."""
    # A sum is quicker than a look at each value, but may itself leave the finite numbers.
    if math.isfinite(states[-1].detach().sum()) or bool(torch.isfinite(states[-1]).all()):
        return
    j = first + [bool(torch.isfinite(state).all()) for state in states].index(False)
    if j == 0:
        raise NotFiniteError("the input must be finite, got NaN or inf in it; remove these values first")
    raise NotFiniteError(
        f"{name(j - 1)} made the state not finite (NaN or inf); "
        f"check its parameters and scale, or use a smaller step size"
    )


def versions(tensors: Iterable[torch.Tensor]) -> list[int]:
    """How often each was written into; tensors made in inference mode do not count that."""
    return [0 if each.is_inference() else each._version for each in tensors]
