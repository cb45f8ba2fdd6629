"""How an iteration converges, component by component: a large component must not end the iteration of a small one."""

import math

import torch

from fracdnn.solver.arrays import Array, library, norm

# Of changes that do not become this much shorter within a window of iterations, func's noise is taken to be the cause,
# if they are this small a part of the states; longer ones are an iteration that does not converge.
_STUCK, _LONGER, _SMALL = 0.5, 4.0, 1e-2
_GREW = 3.0  # from the first change to the last, with which an iteration diverges


def sizes(values: Array) -> Array:
    """The largest size of each component over the points; [G, d] for [G, S, d]."""
    return values.abs().amax(1) if isinstance(values, torch.Tensor) else abs(values).max(1)


def component_sizes(values: Array) -> Array:
    """The same as a unit for each component, [G, 1, d]: that of the largest where one is 0."""
    of_each = sizes(values)[:, None]
    largest = norm(of_each)
    return library(values).where(of_each > 0, of_each, largest if 0.0 < largest < math.inf else 1.0)


class Progress:
    """The lengths of the changes so far, [G, d] each, and the rates at which they become shorter."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._lengths: list[Array] = []
        self.length: Array = None  # of the last change
        self.begins = False  # whether there was but one, so that no rate is known

    @property
    def largest(self) -> float:
        """Of all components."""
        return norm(self.length) if self._lengths else math.inf

    @property
    def grew(self) -> bool:
        """Whether changes have become longer, as in a stiff system, rather than stayed as they are."""
        return len(self._lengths) > 1 and self.largest > _GREW * norm(self._lengths[0])

    def note(self, change: Array) -> Array:
        """The rate of each component, 1 for the first change."""
        self.length = sizes(change)
        self._lengths.append(self.length)
        self.begins = len(self._lengths) == 1
        if self.begins:
            return 0.0 * self.length + 1.0
        return self.length / self._lengths[-2].clip(min=_tiny(change))

    def stalls(self, done: Array) -> bool:
        """Whether no component becomes better that is not done."""
        if len(self._lengths) < 2 * self._window:
            return False
        recent, earlier = self._recent(0), self._recent(1)
        # Changes that become longer may still lead somewhere.
        return bool((done | ((recent > _STUCK * earlier) & (recent < _LONGER * earlier))).all())

    def is_stuck(self, done: Array, states: Array) -> bool:
        """Whether it stalls with little left, as with a func that has so much noise."""
        return self.stalls(done) and bool((done | (self._recent(0) <= _SMALL * sizes(states))).all())

    def _recent(self, windows_ago: int) -> Array:
        """The shortest changes within a window."""
        end = len(self._lengths) - windows_ago * self._window
        window = library(self.length).stack(self._lengths[end - self._window : end])
        return library(window).amin(window, 0)


def _tiny(values: Array) -> float:
    return float(library(values).finfo(values.dtype).tiny)


def is_finite(values: Array) -> bool:
    """Whether all numbers are."""
    return math.isfinite(float(abs(values).sum())) or bool(library(values).isfinite(values).all())
