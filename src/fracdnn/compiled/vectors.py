"""Vectors of samples as a Numba type: what fills a register of the processor, in its own instructions.

Numba turns a loop into such instructions by itself, but reads and writes every sum once a term; here sums stay in
registers. Needs Numba: import this module only where that is known to be there.
"""

from typing import Any

from llvmlite import binding, ir
from numba.core import types
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic

_BYTES = 64 if binding.get_host_cpu_features().get("avx512f", False) else 32


def lanes(item_size: int) -> int:
    """How many numbers of so many bytes a vector holds."""
    return _BYTES // item_size


class Vector(types.Type):
    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype})")


@register_default(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        number = ir.DoubleType() if kind.dtype == types.float64 else ir.FloatType()
        super().__init__(manager, kind, ir.VectorType(number, _BYTES * 8 // kind.dtype.bitwidth))


def _address(context: Any, builder: Any, array_type: Any, place: Any, target: Any) -> Any:
    array, offset = place
    start = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(start, [offset]), target.as_pointer())


@intrinsic
def lanes_of(_: Any, array: Any) -> Any:
    """How many numbers of an array a vector holds, a constant for the compiler."""
    count = lanes(array.dtype.bitwidth // 8)
    return types.intp(array), lambda context, builder, signature, arguments: ir.Constant(ir.IntType(64), count)


@intrinsic
def load(_: Any, array: Any, offset: Any) -> Any:
    """The vector that begins at a flat offset into a contiguous array."""
    kind = Vector(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, array, arguments, context.get_value_type(kind))
        return builder.load(address, align=array.dtype.bitwidth // 8)

    return kind(array, types.intp), generate


@intrinsic
def store(_: Any, array: Any, offset: Any, vector: Any) -> Any:
    """Write a vector at a flat offset into a contiguous array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, array, arguments[:2], arguments[2].type)
        builder.store(arguments[2], address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.none(array, types.intp, vector), generate


@intrinsic
def zeros(_: Any, array: Any) -> Any:
    """A vector of zeros, of the array's numbers."""
    kind = Vector(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(context.get_value_type(kind), None)

    return kind(array), generate


@intrinsic
def spread(_: Any, array: Any, offset: Any) -> Any:
    """The number at a flat offset into a contiguous array, in every place of a vector."""
    kind = Vector(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, index = context.get_value_type(kind), ir.IntType(32)
        number = builder.load(_address(context, builder, array, arguments, vector.element))
        single = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(index, 0))
        places = ir.Constant(ir.VectorType(index, vector.count), [0] * vector.count)
        return builder.shuffle_vector(single, single, places)

    return kind(array, types.intp), generate


@intrinsic
def add_product(_: Any, total: Any, left: Any, right: Any) -> Any:
    """Total + left · right, in one rounding where the processor can."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, left, right = arguments
        return builder.fadd(total, builder.fmul(left, right, flags=["contract"]), flags=["contract"])

    return total(total, left, right), generate


@intrinsic
def across(_: Any, vector: Any) -> Any:
    """The sum of the numbers in a vector, in a fixed order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (rest,) = arguments
        while rest.type.count > 1:
            half = rest.type.count // 2
            index = ir.VectorType(ir.IntType(32), half)
            low, high = (
                builder.shuffle_vector(rest, rest, ir.Constant(index, list(range(start, start + half))))
                for start in (0, half)
            )
            rest = builder.fadd(low, high)
        return builder.extract_element(rest, ir.Constant(ir.IntType(32), 0))

    return vector.dtype(vector), generate


@intrinsic
def prefetch(_: Any, array: Any, offset: Any) -> Any:
    """Have the memory around a flat offset brought into cache, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, flag = ir.IntType(8), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), flag, flag, flag])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte.as_pointer()], kind)
        to_read, into_all_caches, data = (ir.Constant(flag, value) for value in (0, 3, 1))
        builder.call(function, [_address(context, builder, array, arguments, byte), to_read, into_all_caches, data])
        return context.get_dummy_value()

    return types.none(array, types.intp), generate
