"""Equations with several derivatives of one unknown, as a system with an order for each component.

    Σ_i c_i D^(γ_i) y = right_side(t, lower derivatives of y)

With all orders below the highest and all whole numbers below it, sorted, 0 = β_0 < β_1 < … < β_n, and y_j = D^(β_j) y,

    D^(β_{j+1} − β_j) y_j = y_{j+1},   y_j(0) = y^(β_j)(0) where β_j is a whole number, else 0,

and the last of these equations is the given one, solved for the highest derivative. No whole number lies between
neighbors, so D^ε D^β y = D^(β+ε) y there. The two problems have the same solutions among the y with ⌈β_n⌉ continuous
derivatives. Source: Diethelm, "The Analysis of Fractional Differential Equations", 2010, lemma 3.13 and theorem 8.1;
Edwards, Ford, Simpson, "The numerical solution of linear multi-term fractional differential equations", 2002.

A derivative of distributed order, ∫ density(γ) D^γ y dγ, is a sum of such terms over Gauss's nodes.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Real
from operator import itemgetter
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.solver.fdeint import fdeint
from fracdnn.solver.solution import of_states
from fracdnn.solver.states import as_state, check_state
from fracdnn.tracing import carries_derivative
from fracdnn.validation import check_count

RightSide = Callable[[torch.Tensor, tuple[torch.Tensor, ...]], Any]


class MultiTerm:
    """Σ_i coefficients[i] · D^(orders[i]) y = right_side(t, lower).

    `lower` are the derivatives of `orders`, as listed there, without the highest; order 0 is y itself. For
    y″ + D^1.5 y + y = cos t + y³, with y(0) = 1 and y′(0) = 0:

        right_side = lambda t, lower: torch.cos(t) + lower[1] ** 3
        equation = MultiTerm([2.0, 1.5, 0.0], [1.0, 1.0, 1.0], right_side)
        y = equation.solve((torch.ones(()), torch.zeros(())), t, n_steps=200)

    Orders and coefficients are numbers or tensors, and gradients go to them; coefficients broadcast against y. Orders
    that are learned must not become whole numbers or pass one another: another system holds there. A coefficient of 0
    makes a derivative known to right_side that is no linear term.

    A term of fractional order makes slopes that behave like powers of t at the start: grid=Graded(n) and adaptive grids
    keep second order there, equal steps do not.
    """

    def __init__(self, orders: Sequence[Any], coefficients: Sequence[Any], right_side: RightSide) -> None:
        self._orders = _checked_orders(orders)
        self._coefficients = _checked_coefficients(coefficients, len(self._orders))
        if not callable(right_side):
            raise InvalidTypeError(
                f"right_side must be callable as right_side(t, lower), got {type(right_side).__name__}; pass a function"
            )
        self._right_side = right_side
        values = [float(order.detach()) for order in self._orders]
        self._highest = values.index(max(values))
        leading = self._coefficients[self._highest].detach()
        if bool((leading == 0).any()):
            raise InvalidArgumentError(
                f"coefficients must not be 0 for the highest order, got {leading.tolist()} for order {max(values):g}; "
                f"leave that term out"
            )
        whole = {float(k): torch.tensor(float(k), dtype=torch.float64) for k in range(math.ceil(max(values)))}
        chain = {**whole, **dict(zip(values, self._orders, strict=True))}
        self._chain = sorted(chain)[:-1]  # of the components
        self._ladder = [chain[value] for value in sorted(chain)]
        self._places = [self._chain.index(value) for value in values if value != max(values)]

    @property
    def order(self) -> list[torch.Tensor]:
        """Of each component, as `fdeint` takes them."""
        ladder = [each.to(torch.float64) for each in self._ladder]
        return [later - earlier for earlier, later in pairwise(ladder)]

    @property
    def n_initial(self) -> int:
        """How many initial values the equation needs: y(0), y′(0), …"""
        return sum(value.is_integer() for value in self._chain)

    def start(self, *initial: Any) -> tuple[torch.Tensor, ...]:
        """The state of the system at the start, of y(0), y′(0), …, all of one shape."""
        if len(initial) != self.n_initial:
            names = ", ".join("y" + "′" * k + "(0)" for k in range(self.n_initial))
            raise InvalidArgumentError(
                f"initial must hold {self.n_initial} tensors for these orders, {names}, got {len(initial)}; "
                f"pass as many"
            )
        labels = [f"initial[{number}]" for number in range(len(initial))]
        values: list[Any] = [check_state(as_state(*pair), pair[1]) for pair in zip(initial, labels, strict=True)]
        shapes = [tuple(each.shape) if isinstance(each, torch.Tensor) else "a tuple" for each in values]
        for number, shape in enumerate(shapes):
            if shape != shapes[0] or shape == "a tuple":
                raise InvalidArgumentError(
                    f"initial[{number}] must be a tensor of the shape of initial[0], {shapes[0]}, got {shape}; "
                    f"pass tensors of one shape"
                )
        zero = torch.zeros_like(values[0])
        return tuple(values[int(value)] if value.is_integer() else zero for value in self._chain)

    def func(self, t: torch.Tensor, state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """The system's right-hand side, as `fdeint` takes it with `order=equation.order`."""
        y = state[0]
        lower = tuple(state[place] for place in self._places)
        given = self._right_side(t, lower)
        if not isinstance(given, torch.Tensor | Real):
            raise InvalidArgumentError(
                f"right_side must return a number or a tensor that broadcasts against y, got {type(given).__name__}; "
                f"check what right_side(t, lower) returns"
            )
        rest = _like_y(torch.as_tensor(given), y, "right_side", "check what right_side(t, lower) returns")
        coefficients = [
            _like_y(each, y, f"coefficients[{place}]", "pass one number, or one for each component of y")
            for place, each in enumerate(self._coefficients)
        ]
        highest = coefficients.pop(self._highest)
        for coefficient, derivative in zip(coefficients, lower, strict=True):
            rest = rest - coefficient * derivative
        return (*state[1:], (rest / highest).expand_as(y))

    def solve(self, initial: Sequence[Any], t: Any, **options: Any) -> Any:
        """The solution y at the times t; `initial` is (y(0), y′(0), …), and `options` are those of `fdeint`."""
        if not isinstance(initial, tuple | list):
            raise InvalidTypeError(
                f"initial must be a tuple of tensors, y(0) and its derivatives, got {type(initial).__name__}; "
                f"pass (y0,) for one"
            )
        if "slope" in (options.get("options") or {}):
            raise InvalidArgumentError(
                f"slope must not be given to MultiTerm.solve, got {options['options']['slope']!r}; "
                f"pass slopes in initial=(y(0), y′(0), …)"
            )
        return of_states(itemgetter(0), fdeint(self.func, self.start(*initial), t, order=self.order, **options))


def distributed_order(
    density: Callable[[torch.Tensor], Any] | torch.Tensor,
    right_side: Callable[[torch.Tensor, torch.Tensor], Any],
    *,
    between: tuple[float, float] = (0.0, 1.0),
    n_nodes: int = 8,
) -> MultiTerm:
    """The equation ∫ density(γ) D^γ y dγ = right_side(t, y) over orders `between` two of them, as a `MultiTerm`.

    The integral is Gauss's sum over `n_nodes` orders: for a smooth density its error falls exponentially with them.
    `density` is a function of an order, such as `linear_input(orders, samples)`, or a tensor [n_nodes] of its
    values at the nodes of `gauss_orders(n_nodes, between)`, learned ones, say. Gradients go to the density.
    """
    orders, lengths = _rule(n_nodes, between)
    if callable(density):
        values = torch.stack([torch.as_tensor(density(order), dtype=torch.float64).reshape(()) for order in orders])
    else:
        values = torch.as_tensor(density, dtype=torch.float64)
    if values.shape != (n_nodes,):
        raise InvalidArgumentError(
            f"density must be a function of an order or hold a value for each of n_nodes = {n_nodes} orders, got shape "
            f"{tuple(values.shape)}; pass n_nodes=len(density)"
        )
    coefficients = [*(lengths.to(values.device) * values).unbind(0), 0.0]  # y itself is known to right_side
    return MultiTerm([*orders.tolist(), 0.0], coefficients, lambda t, lower: right_side(t, lower[-1]))


def gauss_orders(n_nodes: int, between: tuple[float, float] = (0.0, 1.0)) -> torch.Tensor:
    """The orders at which `distributed_order` takes its density; [n_nodes], increasing."""
    return _rule(n_nodes, between)[0]


def _rule(n_nodes: int, between: Any) -> tuple[torch.Tensor, torch.Tensor]:
    lowest, highest = (float(each) for each in between)
    if not 0.0 <= lowest < highest < float("inf"):
        raise InvalidArgumentError(
            f"between must be two increasing orders, not below 0, got ({lowest:g}, {highest:g}); (0, 1) is usual"
        )
    places, lengths = np.polynomial.legendre.leggauss(check_count(n_nodes, "n_nodes", minimum=1))
    half = (highest - lowest) / 2.0
    return torch.from_numpy(lowest + half * (1.0 + places)), torch.from_numpy(half * lengths)


def _checked_orders(orders: Sequence[Any]) -> list[torch.Tensor]:
    checked = _terms(orders, "orders")
    for place, value in enumerate(checked):
        if value.dim() or not bool(torch.isfinite(value) & (value >= 0)):
            raise InvalidArgumentError(
                f"orders[{place}] must be one number, not below 0, got {orders[place]}; 0 stands for y itself"
            )
        if carries_derivative(value) and float(value.detach()).is_integer():
            raise InvalidArgumentError(
                f"orders[{place}] must not be a whole number where it is learned, got {float(value.detach())}; "
                f"start beside it, or pass a plain number"
            )
    values = [float(value.detach()) for value in checked]
    if max(values) == 0:
        raise InvalidArgumentError(
            f"orders must hold one above 0, got {values}; without a derivative there is nothing to solve in time"
        )
    if len(set(values)) < len(values):
        raise InvalidArgumentError(f"orders must differ, got {values}; add up the coefficients of equal orders")
    return checked


def _checked_coefficients(coefficients: Sequence[Any], count: int) -> list[torch.Tensor]:
    checked = _terms(coefficients, "coefficients")
    if len(checked) != count:
        raise InvalidArgumentError(
            f"coefficients must hold one for each order, {count}, got {len(checked)}; pass as many as orders"
        )
    for place, each in enumerate(checked):
        if each.is_complex() or not bool(torch.isfinite(each.detach()).all()):
            raise InvalidArgumentError(
                f"coefficients[{place}] must be finite real numbers, got {each.detach().tolist()}; check where they "
                f"come from"
            )
    return checked


def _like_y(value: torch.Tensor, y: torch.Tensor, name: str, remedy: str) -> torch.Tensor:
    """In y's dtype and place, and of a shape that broadcasts against y's."""
    try:
        value.expand(y.shape)
    except RuntimeError:
        raise InvalidArgumentError(
            f"{name} must broadcast against y's shape {tuple(y.shape)}, got shape {tuple(value.shape)}; {remedy}"
        ) from None
    return value.to(y)


def _terms(values: Any, name: str) -> list[torch.Tensor]:
    """One for each term: the caller's own tensors where they are such, so that learned ones are seen as they change."""
    if isinstance(values, torch.Tensor) and values.dim() == 1:
        values = values.unbind(0)
    if not isinstance(values, tuple | list) or not values:
        raise InvalidTypeError(f"{name} must be a list with one entry for each term, got {values!r}; pass a list")
    for n, each in enumerate(values):
        if isinstance(each, bool) or not isinstance(each, int | float | torch.Tensor):
            raise InvalidTypeError(f"{name}[{n}] must be a number or a tensor, got {type(each).__name__}; pass a float")
    return [torch.as_tensor(each, dtype=None if isinstance(each, torch.Tensor) else torch.float64) for each in values]
