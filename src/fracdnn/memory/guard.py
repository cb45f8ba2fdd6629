"""What can go wrong inside a layer, said with the layer's name."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

from fracdnn.exceptions import NotFiniteError, StateChangedError

Step = Callable[[int, torch.Tensor], torch.Tensor]

_CHECK_EVERY = 32


class Guard(ABC):
    """Calls each step of one forward pass, so that no step can change a state that later layers remember."""

    @abstractmethod
    def call(self, step: Step, j: int, y: torch.Tensor) -> torch.Tensor:
        """f_j(Y_j)."""

    @abstractmethod
    def check(self, j: int, y: torch.Tensor) -> None:
        """Look at Y_j, which was just made."""


class NoGuard(Guard):
    """For steps that are computed again."""

    def call(self, step: Step, j: int, y: torch.Tensor) -> torch.Tensor:
        return step(j, y)

    def check(self, j: int, y: torch.Tensor) -> None:
        pass


class CopyGuard(Guard):
    """For operations that are traced or transformed, whose values and versions cannot be seen: steps get a copy.

    A compiler removes the copy where the step does not write into it.
    """

    def call(self, step: Step, j: int, y: torch.Tensor) -> torch.Tensor:
        return step(j, y.clone())

    def check(self, j: int, y: torch.Tensor) -> None:
        pass


class StateGuard(Guard):
    """Watches the states of one forward pass: none may be written into, none may leave the finite numbers.

    Values are looked at on the CPU only, every 32 layers; on another device that would wait for it.
    """

    def __init__(self, name: Callable[[int], str], n_layers: int) -> None:
        self._name = name
        self._n_layers = n_layers
        self._unchecked: list[torch.Tensor] = []
        self._first = 0

    def call(self, step: Step, j: int, y: torch.Tensor) -> torch.Tensor:
        """f_j(Y_j), having checked that Y_j is as it was."""
        if j == 0:
            self._unchecked.append(y)
        before = version(y)
        change = step(j, y)
        if version(y) != before:
            raise StateChangedError(
                f"{self._name(j)} must not change the state it is given, but it wrote into it; "
                f"later layers remember that state: use an operation that is not in place"
            )
        return change

    def check(self, j: int, y: torch.Tensor) -> None:
        """Note Y_j; now and then look whether the last state is finite, since a bad one makes all later ones bad."""
        if y.device.type != "cpu":
            return
        self._unchecked.append(y)
        if j % _CHECK_EVERY and j != self._n_layers:
            return
        # A sum is quicker than a look at each value, but may itself leave the finite numbers.
        if not math.isfinite(y.detach().sum()) and not bool(torch.isfinite(y).all()):
            self._name_the_culprit()
        self._first = j + 1
        self._unchecked = []

    def _name_the_culprit(self) -> None:
        bad = [not bool(torch.isfinite(state).all()) for state in self._unchecked]
        j = self._first + bad.index(True)
        if j == 0:
            raise NotFiniteError("the input must be finite, got NaN or inf in it; remove these values first")
        raise NotFiniteError(
            f"{self._name(j - 1)} made the state not finite (NaN or inf); "
            f"check its parameters and scale, or use a smaller step size"
        )


def version(y: torch.Tensor) -> int:
    """How often a tensor was written into; tensors made in inference mode do not count that."""
    return 0 if y.is_inference() else y._version
