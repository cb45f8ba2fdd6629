"""States of any shape, or tuples of them, as one tensor [groups, components] whose groups have an order each."""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.validation import check_floating, check_numbers

State = torch.Tensor | tuple[torch.Tensor, ...]


class States:
    """How the states of a problem are laid out: which components share an order.

    One order: all components are one group. A tensor of orders that broadcasts against the state: a group for each of
    its entries. A tuple of tensors with an order each: a group for each, filled up with zeros to the longest. With
    `apart`, the first dimension is the sample: a group for each, with orders [samples].
    """

    def __init__(self, example: State, orders: torch.Tensor | Sequence[torch.Tensor], *, apart: bool = False) -> None:
        self.is_tuple = not isinstance(example, torch.Tensor)
        self.shapes = [part.shape for part in self.parts(example)]
        self._dims: tuple[int, ...] | None = None
        self._is_filled = not isinstance(orders, torch.Tensor)
        if not isinstance(orders, torch.Tensor):
            orders = torch.stack(list(orders))
        elif not apart:
            orders = orders.reshape(1) if orders.numel() == 1 else self._lay_out(orders)
        self.orders = orders.to(self.parts(example)[0].device)
        # Whether packing one tensor of one order is no more than another shape.
        self.is_plain = not self.is_tuple and self._dims is None and not apart

    def parts(self, state: Any) -> tuple[torch.Tensor, ...]:
        return tuple(state) if self.is_tuple else (state,)

    def pack(self, state: State) -> torch.Tensor:
        parts = self.parts(state)
        if self._is_filled:
            length = max(part.numel() for part in parts)
            rows = [torch.nn.functional.pad(part.reshape(-1), (0, length - part.numel())) for part in parts]
            return torch.stack(rows)
        if self._dims is not None:
            parts = (parts[0].permute(self._dims),)
        columns = [part.reshape(len(self.orders), -1) for part in parts]
        return columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)

    def spread(self, numbers: Any, name: str) -> torch.Tensor:
        """One number, or those of each component packed as a state is; float64."""
        if isinstance(numbers, float):
            return torch.tensor(numbers, dtype=torch.float64)
        parts = numbers if isinstance(numbers, tuple) else (numbers,) * len(self.shapes)
        if len(parts) != len(self.shapes):
            raise InvalidArgumentError(
                f"{name} must hold one entry for each of the state's {len(self.shapes)} tensors, got {len(parts)}; "
                f"pass as many, or one number"
            )
        full = []
        for part, shape in zip(parts, self.shapes, strict=True):
            each = torch.as_tensor(part, dtype=torch.float64)
            try:
                full.append(each.expand(shape))
            except RuntimeError:
                raise InvalidArgumentError(
                    f"{name} must broadcast against the state's shape {tuple(shape)}, got shape {tuple(each.shape)}; "
                    f"pass one number, or one for each component"
                ) from None
        return self.pack(tuple(full) if self.is_tuple else full[0])

    def unpack(self, packed: torch.Tensor) -> State:
        """The state again, from [..., groups, components]."""
        lead = packed.shape[:-2]
        if self._dims is not None:
            shape = [self.shapes[0][dim] for dim in self._dims]
            back = [len(lead) + self._dims.index(dim) for dim in range(len(self._dims))]
            return packed.reshape((*lead, *shape)).permute(*range(len(lead)), *back)
        if not self.is_tuple:
            return packed.reshape((*lead, *self.shapes[0]))
        if self._is_filled:
            pieces = tuple(packed[..., group, : shape.numel()] for group, shape in enumerate(self.shapes))
        else:
            pieces = packed.split([shape.numel() // len(self.orders) for shape in self.shapes], dim=-1)
        return tuple(piece.reshape((*lead, *shape)) for piece, shape in zip(pieces, self.shapes, strict=True))

    def describe(self, where: torch.Tensor) -> str:
        """The first component of a packed state of truth values that is True, in the words of the state itself."""
        flags = self.unpack(where)
        for number, part in enumerate(self.parts(flags)):
            if bool(part.any()):
                index = tuple(int(i) for i in part.nonzero()[0])
                place = f"y[{number}]" if self.is_tuple else "y"
                return f"{place}[{', '.join(map(str, index))}]" if index else place
        return "y"

    def _lay_out(self, orders: torch.Tensor) -> torch.Tensor:
        shape = self.shapes[0]
        if self.is_tuple:
            raise InvalidArgumentError(
                "order must be one number or, for a tuple state, a sequence of one for each of its tensors, "
                f"got a tensor of shape {tuple(orders.shape)}; pass a tuple of orders"
            )
        aligned = orders[(None,) * (len(shape) - orders.dim())]
        if len(aligned.shape) > len(shape) or any(of not in (1, n) for of, n in zip(aligned.shape, shape, strict=True)):
            raise InvalidArgumentError(
                f"order must broadcast against the state's shape {tuple(shape)}, got shape {tuple(orders.shape)}; "
                f"pass one number, or one for each component"
            )
        own = [dim for dim, size in enumerate(aligned.shape) if size > 1]
        shared = [dim for dim, size in enumerate(aligned.shape) if size == 1]
        self._dims = (*own, *shared)
        return aligned.permute(self._dims).reshape(-1)


def as_state(given: Any, name: str) -> Any:
    """Numbers, lists of numbers and NumPy arrays as float64 tensors; tensors, and tuples and lists of them, stay.

    A tuple is one of states.
    """
    if isinstance(given, tuple) or (isinstance(given, list) and any(_holds_tensor(each) for each in given)):
        return tuple(as_state(part, f"{name}[{place}]") for place, part in enumerate(given))
    if (isinstance(given, Real | np.ndarray) and not isinstance(given, bool)) or (isinstance(given, list) and given):
        numbers = check_numbers(given, name)
        if numbers.is_complex():
            raise InvalidArgumentError(f"{name} must be real numbers, got {given!r}; split them into two components")
        return numbers
    return given


def as_slope(given: Any, like: torch.Tensor) -> Any:
    """Return lists and arrays of a state's values, and one number for a state of one, as a tensor like it."""
    place: Any = {"dtype": like.dtype, "device": like.device}
    if isinstance(given, list | tuple) and any(isinstance(each, torch.Tensor) for each in given):
        return torch.stack([torch.as_tensor(each, **place) for each in given])
    is_array = isinstance(given, list | tuple | np.ndarray | np.generic)
    if is_array or (isinstance(given, Real) and not like.dim()):
        return torch.as_tensor(np.asarray(given), **place)
    return given


def each_part(function: Callable[[torch.Tensor], torch.Tensor], state: Any) -> Any:
    """Of a tensor, or of those of a tuple."""
    return tuple(each_part(function, part) for part in state) if isinstance(state, tuple | list) else function(state)


def _holds_tensor(given: Any) -> bool:
    return isinstance(given, torch.Tensor) or (
        isinstance(given, tuple | list) and any(_holds_tensor(each) for each in given)
    )


def check_state(state: Any, name: str) -> State:
    """A floating-point tensor, or a tuple of such of one dtype and device."""
    parts = state if isinstance(state, tuple | list) else (state,)
    for part in parts:
        if not isinstance(part, torch.Tensor):
            raise InvalidTypeError(
                f"{name} must be a torch tensor, a tuple of tensors, or numbers, got {type(part).__name__}; "
                f"pass a tensor of floating-point numbers"
            )
        if part.layout is not torch.strided or part.is_meta:
            kind = "one on the device 'meta'" if part.is_meta else f"one of the layout {part.layout}"
            raise InvalidArgumentError(
                f"{name} must be a dense tensor with values, got {kind}; pass {name}.to_dense(), or a tensor on a CPU "
                f"or a GPU"
            )
        if part.is_complex():
            raise InvalidArgumentError(
                f"{name} must be real, got {part.dtype}; pass torch.view_as_real({name}), and let func compute with "
                f"torch.view_as_complex(y) and return torch.view_as_real of the result"
            )
        check_floating(part, name)
    if not parts:
        raise InvalidArgumentError(f"{name} must hold at least one tensor, got an empty tuple; pass a tensor")
    kinds = {(part.dtype, part.device) for part in parts}
    if len(kinds) > 1:
        raise InvalidArgumentError(
            f"{name} must have one dtype and device, got {sorted(str(kind) for kind in kinds)}; convert its tensors"
        )
    return tuple(parts) if isinstance(state, tuple | list) else state
