"""A fractional initial value problem in packed form: what a method sees of it."""

import math
import warnings
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import repeat
from numbers import Real
from typing import Any

import torch

from fracdnn.exceptions import (
    InvalidArgumentError,
    NoisyFunctionWarning,
    NotFiniteError,
    StateChangedError,
)
from fracdnn.solver.constraints import MassFunction
from fracdnn.solver.states import State, States, as_slope, as_state, check_state, each_part
from fracdnn.tracing import being_traced, being_transformed, carries_derivative, versions
from fracdnn.validation import check_numbers, check_order, user_stacklevel

TIME_ROUNDING = 4.0  # of times, up to which one is that of a jump; by as much func is asked before it
_LATE = 100.0  # relative tolerances, of the span by which times are rounded, and of func, that are too much
_ORDER_REMEDY = (
    "; order=1 is an ordinary differential equation: pass a number above 0, a learned one as 2 * torch.sigmoid(p), "
    "and for derivatives above 2 use MultiTerm"
)


# Errors of a func that torch.func.vmap does not take, since it decides by values, say.
NOT_MAPPED = (RuntimeError, TypeError, ValueError, IndexError, AttributeError, NotImplementedError)


class OutOfEvaluationsError(Exception):
    """Func was called as often as it may be; solvers make an error of it that says how far they came."""


class Problem:
    """d_t^order u = func(t, u) with u and, for orders above 1, its slope at t_0; states are [groups, components]."""

    def __init__(
        self, func: Callable[[torch.Tensor, Any], Any], states: States, value: State, slope: State | None
    ) -> None:
        self.states, self.orders = states, states.orders  # [groups], float64
        # A func that looks up earlier states in the panels of a solve is told of them, as `DelayedFunction` is.
        self.follower: Any = func if getattr(func, "follows_panels", False) else None
        self.mass = func.mass if isinstance(func, MassFunction) else None
        self.n_evaluations = 0
        self.max_evaluations = math.inf
        self.probe_at = -1  # the evaluation at which func is called twice to see whether it is random
        # Whether torch.func.vmap takes func, as far as is known, and whether it has.
        self.can_be_mapped, self.is_mapped = self.follower is None, False
        self.pattern: Any = None  # of func's Jacobian: one with all entries that were found so far
        self.noise: tuple[float, str] | None = None  # as a part of func's values, and when
        self.value = states.pack(value).clone()  # not the caller's own, which func might write into
        kind = self.value.device.type
        self._in_autocast = torch.is_autocast_enabled(kind)  # of the caller's, which is not for the solver's own sums
        # Without the cache of cast weights: it would add up their gradients over all steps in 16 bits.
        in_autocast = torch.autocast(kind, torch.get_autocast_dtype(kind), cache_enabled=False)
        self._func = in_autocast(func) if self._in_autocast else func
        self._returned: tuple[torch.Tensor, int] | None = None  # what func gave last
        self._jumps: list[float] = []
        self._begin = self._rounding = 0.0
        self.velocity = None
        if slope is not None:
            above_one = (states.orders > 1.0).unsqueeze(-1).to(self.value.device)
            packed = states.pack(slope)
            self.velocity = torch.where(above_one, packed, torch.zeros_like(packed))

    def clock_dtype(self, t: Any) -> torch.dtype:
        """Return the dtype of the times that func gets: that of `t`, a floating-point tensor, else the state's.

        For a state of 16 bits, in which close times would be equal, it is float32.
        """
        given = isinstance(t, torch.Tensor) and t.is_floating_point()
        return t.dtype if given else torch.promote_types(self.value.dtype, torch.float32)

    def without_memory(self, elapsed: torch.Tensor) -> torch.Tensor:
        """u_0 + elapsed · u_0', the solution were func zero; [..., groups, components] for elapsed [...]."""
        if self.velocity is None:
            return self.value.expand(*elapsed.shape, *self.value.shape)
        return self.value + elapsed.to(self.value.dtype)[..., None, None] * self.velocity

    def evaluate(self, time: torch.Tensor, packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The state as func saw it, and func(t, u); what is made of the former has its gradient at what func saw."""
        state = self.states.unpack(packed)
        slope = self.states.pack(self.slope(time, state))
        return self.states.pack(state), slope

    def packed_slope(self, time: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
        """func(t, u) alone, for a state that nothing else is made of."""
        return self.states.pack(self.slope(time, self.states.unpack(packed)))

    def slopes(
        self, clock: Sequence[torch.Tensor], packed: torch.Tensor, transformed: bool | None = None
    ) -> torch.Tensor:
        """func(t, u) at several times, for states [groups, S, components]; of the same shape."""
        if self.follower is not None:
            self.follower.expect([self.beside_jump(time) for time in clock])
        if self.is_mapped and transformed is False and not torch.is_grad_enabled():
            try:
                return self.mapped(self.mapped_slope, clock, packed).transpose(0, 1)
            except NOT_MAPPED:
                self.can_be_mapped = self.is_mapped = False
        if not self.states.is_plain:
            found = [self.packed_slope(time, state) for time, state in zip(clock, packed.unbind(1), strict=True)]
            return torch.stack(found, dim=1)
        # Without packing one by one.
        transformed = being_transformed() if transformed is None else transformed
        each = packed.reshape(len(clock), *self.states.shapes[0]).unbind(0)
        found = list(map(self.slope, clock, each, repeat(transformed)))
        return torch.stack(found).reshape(packed.shape)

    def mapped_slope(self, time: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
        """func(t, u) inside of a transformation, where nobody can see whether func writes into its arguments."""
        state = self.states.unpack(packed.clone())
        return self.states.pack(self._checked(self._func(time, state), state, time))

    def mapped(self, function: Callable[..., Any], clock: Sequence[torch.Tensor], packed: torch.Tensor) -> Any:
        """Return a function of times and packed states at all points [G, S, d], from one call of func."""
        times = torch.stack([self.beside_jump(time) if self._jumps else time for time in clock]).detach()
        if self.n_evaluations >= self.max_evaluations:
            raise OutOfEvaluationsError
        found = torch.func.vmap(function, in_dims=(0, 1))(times, packed)
        self.n_evaluations += len(clock)  # after a call that did not fail
        return found

    def jumps_at(self, times: torch.Tensor, begin: torch.Tensor, clock_dtype: torch.dtype) -> None:
        """Func jumps at these times: there, up to rounding, it is evaluated as the left limit.

        At the start, as the right limit.
        """
        self._jumps, self._begin = times.tolist(), float(begin.detach())
        self._rounding = TIME_ROUNDING * torch.finfo(clock_dtype).eps

    def beside_jump(self, time: torch.Tensor) -> torch.Tensor:
        """The time at which func is evaluated in place of this one: at a jump, one beside it."""
        jumps, now = self._jumps, float(time.detach())
        rounding = self._rounding * max(abs(now), abs(self._begin))
        place = bisect_left(jumps, now - rounding)
        if place == len(jumps) or jumps[place] > now + rounding:
            return time
        side = math.inf if jumps[place] <= self._begin + rounding else -math.inf
        jump = time.detach().new_tensor(jumps[place])
        # By more than one rounding, since func may compute with its time before it compares.
        away = math.copysign(TIME_ROUNDING * torch.finfo(jump.dtype).eps, side) * jump.abs()
        return time + (torch.nextafter(jump + away, torch.full_like(jump, side)) - time).detach()

    def slope(self, time: torch.Tensor, state: Any, transformed: bool | None = None) -> Any:
        """func(t, u) of a state that is not packed; `transformed` where the caller knows."""
        if transformed is None:
            transformed = being_transformed()
        if self.n_evaluations >= self.max_evaluations:
            raise OutOfEvaluationsError
        self.n_evaluations += 1
        if 0 < self.probe_at <= self.n_evaluations:
            self.probe_at = -1
            self.check_repeatable(time, state)
        if self._jumps:
            time = self.beside_jump(time)
        if not torch.is_grad_enabled():  # func may take derivatives of its own
            state = each_part(torch.Tensor.detach, state) if self.states.is_tuple or state.requires_grad else state
        if transformed:  # where versions cannot be seen
            return self._checked(self._func(time, each_part(torch.clone, state)), state, time)
        # How often tensors were written into, which those made in inference mode do not count. A sum, as it only grows.
        last, of_time = self._returned, time.is_inference() or time._version
        before = sum(versions(state)) if self.states.is_tuple else state.is_inference() or state._version
        slope = self._func(time, state)
        now = sum(versions(state)) if self.states.is_tuple else state.is_inference() or state._version
        if now != before or (time.is_inference() or time._version) != of_time:
            what = "time" if now == before else "state"
            raise StateChangedError(
                f"func must not change the {what} it is given, but it wrote into it at t = {time_text(time)}; "
                f"later times remember it: return a new tensor, without operations such as y.mul_() or y += …"
            )
        as_state = isinstance(slope, torch.Tensor) and not self.states.is_tuple
        if not as_state or slope.shape != state.shape or slope.dtype != state.dtype:
            slope = self._checked(slope, state, time)
        if last is not None and (last[0].is_inference() or last[0]._version) != last[1]:
            raise StateChangedError(
                f"func must return a new tensor each time, but at t = {time_text(time)} it wrote into the one it "
                f"returned before; return a copy of its buffer, as in buffer.clone()"
            )
        first = slope[0] if self.states.is_tuple else slope
        self._returned = (first, first.is_inference() or first._version)
        return slope

    @torch.no_grad()
    def check_repeatable(self, time: torch.Tensor, state: State) -> None:
        """Refuse a func that returns different values for the same input."""
        first, second = (self.states.pack(self._checked(self._func(time, state), state, time)) for _ in range(2))
        self.n_evaluations += 2
        if not torch.equal(first, second) and bool((first.isfinite() & second.isfinite()).all()):
            raise InvalidArgumentError(
                f"func must return the same values for the same input on an adaptive grid, got others when it was "
                f"called twice at t = {time_text(time)}; pass n_steps= for a grid of fixed steps, or call eval() on "
                f"the network"
            )

    def note_noise(self, part: float, time: torch.Tensor) -> None:
        """Func's noise, as a part of its values or of the states, at a time: for a warning after the solve."""
        if self.noise is None or part > self.noise[0]:
            self.noise = (part, time_text(time))

    def warn_of_noise(self, least: float, consequence: str) -> None:
        """Once a solve, where it was noted and is not less than this."""
        if self.noise is not None and self.noise[0] >= least:
            warnings.warn(
                f"func is noisy: its values scatter by about {self.noise[0]:.1g} of their size at t = {self.noise[1]}; "
                f"{consequence}; compute func with more digits (in float64; on a GPU "
                f"torch.set_float32_matmul_precision('highest')), or where it jumps in time, pass "
                f"options={{'breakpoints': …}}",
                NoisyFunctionWarning,
                stacklevel=user_stacklevel(),
            )

    def warn_of_late_times(self, clock: torch.Tensor, span: float, rtol: float) -> None:
        """Where times are rounded so much that func changes from one to the next by more than a solve allows for."""
        last = clock[-1].detach()
        rounding = torch.finfo(clock.dtype).eps * abs(float(last))
        if rounding <= _LATE * rtol * span:
            return
        before, after = (self.packed_slope(time, self.value.detach()).detach() for time in (last - rounding, last))
        if bool(((after - before).abs() > _LATE * rtol * after.abs()).any()):
            warnings.warn(
                f"times are late: at t = {time_text(last)} they are rounded to {rounding:.1g}, which changes func "
                f"noticeably; count time from t[0] in t and func, in float64",
                NoisyFunctionWarning,
                stacklevel=user_stacklevel(),
            )

    def check_slope(self, time: torch.Tensor, packed: torch.Tensor) -> None:
        """Say so where a solve failed because func gives NaN or infinity at a time."""
        bad = ~torch.isfinite(self.packed_slope(time, packed).detach())
        if bool(bad.any()) and bool(torch.isfinite(packed).all()):
            raise NotFiniteError(
                f"func must return finite numbers, got NaN or infinity at t = {time_text(time)} in "
                f"{self.states.describe(bad)}; check func there, or solve for times at which it is finite"
            )

    def check_finite(self, states: Sequence[torch.Tensor], clock: torch.Tensor, begin: int) -> None:
        """Of states at nodes from `begin` on: names the first that is not finite, or func."""
        if being_traced() or bool(torch.isfinite(states[-1].detach()).all()):
            return
        for number, state in enumerate(states):
            bad = ~torch.isfinite(state.detach()).reshape(self.value.shape)
            if bool(bad.any()):
                if number:
                    for time in clock[begin + number - 1 : begin + number + 1]:
                        self.check_slope(time, states[number - 1].detach().reshape(self.value.shape))
                raise NotFiniteError(
                    f"the solution is not finite at t = {time_text(clock[begin + number])} (step {begin + number}) in "
                    f"{self.states.describe(bad)}: func gave NaN or infinity on the way there, or the steps are "
                    f"too long; check func, use smaller steps, or the implicit method 'collocation'"
                )

    def _checked(self, slope: Any, state: State, time: torch.Tensor) -> State:
        if self.states.is_tuple and not (isinstance(slope, tuple | list) and len(slope) == len(state)):
            raise InvalidArgumentError(
                f"func must return a tuple of {len(state)} tensors, as y0 is, got {_kind(slope)} "
                f"at t = {time_text(time)}; check what func(t, y) returns"
            )
        expected = self.states.parts(state)
        parts = self.states.parts(slope) if self.states.is_tuple else (slope,)
        given = tuple(as_slope(part, like) for part, like in zip(parts, expected, strict=True))
        for index, (part, like) in enumerate(zip(given, expected, strict=True)):
            if not isinstance(part, torch.Tensor) or part.shape != like.shape:
                shape = tuple(part.shape) if isinstance(part, torch.Tensor) else type(part).__name__
                place = f" in place {index}" if self.states.is_tuple else ""
                raise InvalidArgumentError(
                    f"func must return a tensor of the state's shape {tuple(like.shape)}{place}, got {shape} "
                    f"at t = {time_text(time)}; check what func(t, y) returns"
                )
            if part.dtype != like.dtype and not self._in_autocast:
                raise InvalidArgumentError(
                    f"func must return the state's dtype {like.dtype}, got {part.dtype} at t = {time_text(time)}; "
                    f"convert its constants, or y0"
                )
        if self._in_autocast:
            given = tuple(part.to(like.dtype) for part, like in zip(given, expected, strict=True))
        return tuple(given) if self.states.is_tuple else given[0]


def posed_problem(
    func: Callable[[torch.Tensor, Any], Any], y0: Any, order: Any, slope: Any = None, *, apart: bool = False
) -> Problem:
    """The problem of checked arguments as `fdeint` takes them; `apart` if the first dimension is the sample."""
    y0 = as_state(y0, "y0")
    if isinstance(order, list) and order and isinstance(y0, torch.Tensor):  # one for each component, like a tensor
        order = torch.stack([_checked_order(each, f"order[{place}]", one=True) for place, each in enumerate(order)])
    if isinstance(order, tuple | list):
        orders: Any = [_checked_order(each, f"order[{place}]", one=True) for place, each in enumerate(order)]
        largest = largest_order(torch.stack(orders)) if orders else 0.0
    else:
        orders = _checked_order(order, "order")
        largest = largest_order(orders)
    name = "slope"
    is_pair = isinstance(y0, tuple | list) and len(y0) == 2
    if slope is None and (is_pair if largest is None else largest > 1.0):
        if not is_pair:
            raise InvalidArgumentError(
                f"y0 must be a pair (value, slope) for an order above 1, got {_kind(y0)}; "
                f"pass (y0, torch.zeros_like(y0)) or options={{'slope': 0.0}} for a start at rest"
            )
        (y0, slope), name = y0, "y0[1]"
        if isinstance(orders, list) and not isinstance(y0, tuple):
            raise InvalidArgumentError(
                "y0 must be a pair of tuples, values and slopes, for several orders of which one is above 1, "
                "got a pair of tensors; pass ((u, v), (slope of u, slope of v)), with zeros where an order is at most "
                "1, or y0=(u, v) and options={'slope': …}"
            )
    value = check_state(y0, "y0" if name == "slope" else "y0[0]")
    if slope is not None:
        slope = state_like(slope, value, *(("slope",) if name == "slope" else ("y0[1], the slope,", "y0[0]")))
    if isinstance(orders, list) and (not isinstance(value, tuple) or len(orders) != len(value)):
        remedy = "as many orders as y0 has tensors"
        if isinstance(value, torch.Tensor) and orders:
            remedy = f"torch.tensor({[float(each.detach()) for each in orders]}) for an order of each component"
        raise InvalidArgumentError(
            f"order must be one number, a tensor, or one for each tensor of a tuple state, got {len(orders)} "
            f"for {_kind(value)}; pass {remedy}"
        )
    return Problem(func, States(value, orders, apart=apart), value, slope)


def state_like(given: Any, value: State, name: str, of_value: str = "y0") -> State:
    """A checked state of the value's shapes and dtype; a number stands for all components."""
    is_tuple, parts = isinstance(value, tuple), value if isinstance(value, tuple) else (value,)
    if isinstance(given, Real) and not isinstance(given, bool):
        number = check_numbers(given, name.partition(",")[0])
        own = tuple(number.to(part).expand_as(part) for part in parts)
        return own if is_tuple else own[0]
    state = check_state(as_state(given, name.partition(",")[0]), name.partition(",")[0])
    own = state if isinstance(state, tuple) else (state,)
    shapes = [[tuple(part.shape) for part in each] for each in (parts, own)]
    if shapes[0] != shapes[1] or is_tuple != isinstance(state, tuple):
        raise InvalidArgumentError(
            f"{name} must have the shape of {of_value}, {shapes[0]}, got {shapes[1]}; pass one like the value"
        )
    if parts[0].dtype != own[0].dtype:
        raise InvalidArgumentError(
            f"{name} must have the dtype of {of_value}, {parts[0].dtype}, got {own[0].dtype}; convert one"
        )
    return state


def _checked_order(order: Any, name: str, *, one: bool = False) -> torch.Tensor:
    """`one`: of one tensor of a tuple."""
    value = check_order(order, name, largest=2.0, remedy=_ORDER_REMEDY)
    if not value.numel():
        raise InvalidArgumentError(
            f"{name} must hold at least one number, got shape {tuple(value.shape)}; pass one number, say 0.5"
        )
    if one and value.numel() != 1:
        raise InvalidArgumentError(
            f"{name} must be one number, got shape {tuple(value.shape)}; "
            f"make each component with an order of its own a tensor of the tuple"
        )
    return value.reshape(()) if one else value


def largest_order(orders: torch.Tensor) -> float | None:
    """None where a transformation hides the numbers."""
    if being_traced() and carries_derivative(orders):
        return None
    return float(orders.detach().max())


def _kind(value: Any) -> str:
    return f"a tuple of {len(value)} tensors" if isinstance(value, tuple | list) else f"one {type(value).__name__}"


def time_text(time: torch.Tensor) -> str:
    """A time in messages; of several, the first and the last."""
    try:
        ends = [time.detach().min(), time.detach().max()][: time.dim() + 1]
        return " … ".join(f"{float(end):.6g}" for end in ends)
    except RuntimeError:  # inside a transformation a time has no number
        return "some time"
