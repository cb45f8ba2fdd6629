"""A Numba type for vectors: as many numbers as fill a register of the processor. Needs Numba.

Numba vectorises loops by itself, but it loads and stores a running sum at every term, and on many processors it uses
registers of half the size. With this type, sums stay in registers of full size. Vectors can be added, subtracted,
multiplied and divided, by each other and by numbers.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba.core import types
from numba.core.datamodel import models, register_default
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin

_BYTES = 64 if binding.get_host_cpu_features().get("avx512f", False) else 32
_INDEX = ir.IntType(32)


def lanes(item_size: int) -> int:
    """How many numbers a vector holds, if each has `item_size` bytes."""
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


def element_pointer(context: Any, builder: Any, array_type: Any, place: Any, target: Any) -> Any:
    """Where a flat offset into an array points, as a pointer to an LLVM type; `place` is (array, offset)."""
    array, offset = place
    start = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(start, [offset]), target.as_pointer())


def broadcast(builder: Any, number: Any, vector: Any) -> Any:
    """A vector of an LLVM type with the same number in every place."""
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(_INDEX, 0))
    return builder.shuffle_vector(single, single, ir.Constant(ir.VectorType(_INDEX, vector.count), [0] * vector.count))


def _called(builder: Any, name: str, *arguments: Any) -> Any:
    """Call the LLVM intrinsic of that name on vectors."""
    vector = arguments[0].type
    letter = "f64" if vector.element == ir.DoubleType() else "f32"
    kind = ir.FunctionType(vector, [argument.type for argument in arguments])
    function = builder.module.declare_intrinsic(f"llvm.{name}.v{vector.count}{letter}", fnty=kind)
    return builder.call(function, arguments)


@intrinsic
def lanes_of(_: Any, array: Any) -> Any:
    """How many numbers of an array, or of a NumPy type, a vector holds: a constant to the compiler."""
    count = lanes(array.dtype.bitwidth // 8)
    return types.intp(array), lambda context, builder, signature, arguments: ir.Constant(ir.IntType(64), count)


@intrinsic
def item_size(_: Any, kind: Any) -> Any:
    """How many bytes a number of a NumPy type has: a constant to the compiler."""
    size = kind.dtype.bitwidth // 8
    return types.intp(kind), lambda context, builder, signature, arguments: ir.Constant(ir.IntType(64), size)


@intrinsic
def is_double(_: Any, vector: Any) -> Any:
    """Whether a vector or an array holds float64: a constant to the compiler."""
    found = int(vector.dtype == types.float64)
    return types.boolean(vector), lambda context, builder, signature, arguments: ir.Constant(ir.IntType(1), found)


@intrinsic
def load(_: Any, array: Any, offset: Any) -> Any:
    """The vector of numbers that starts at a flat offset into a contiguous array."""
    kind = Vector(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = element_pointer(context, builder, array, arguments, context.get_value_type(kind))
        return builder.load(address, align=array.dtype.bitwidth // 8)

    return kind(array, types.intp), generate


@intrinsic
def store(_: Any, array: Any, offset: Any, vector: Any) -> Any:
    """Write a vector at a flat offset into a contiguous array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = element_pointer(context, builder, array, arguments[:2], arguments[2].type)
        builder.store(arguments[2], address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.none(array, types.intp, vector), generate


@intrinsic
def zeros(_: Any, array: Any) -> Any:
    """A vector of zeros, of the same type as the numbers of an array."""
    kind = Vector(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(context.get_value_type(kind), None)

    return kind(array), generate


@intrinsic
def filled(_: Any, like: Any, number: Any) -> Any:
    """A vector of the same type as another, with the same number in every place."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        value = context.cast(builder, arguments[1], found.args[1], like.dtype)
        return broadcast(builder, value, arguments[0].type)

    return like(like, number), generate


@intrinsic
def spread(_: Any, array: Any, offset: Any) -> Any:
    """The number at a flat offset into a contiguous array, in every place of a vector."""
    kind = Vector(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = context.get_value_type(kind)
        number = builder.load(element_pointer(context, builder, array, arguments, vector.element))
        return broadcast(builder, number, vector)

    return kind(array, types.intp), generate


def _arithmetic(symbol: Callable[..., Any], instruction: str) -> None:
    """Teach Numba the operator between vectors, and between a vector and a number."""

    @infer_global(symbol)
    class _Combination(AbstractTemplate):
        def generic(self, arguments: Any, _: Any) -> Any:
            kinds = [kind for kind in arguments if isinstance(kind, Vector)]
            if not kinds or not all(isinstance(kind, Vector | types.Float | types.Integer) for kind in arguments):
                return None
            return signature(kinds[0], *arguments)

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        vector, both = context.get_value_type(found.return_type), []
        for value, kind in zip(arguments, found.args, strict=True):
            if isinstance(kind, Vector):
                both.append(value)
            else:
                both.append(broadcast(builder, context.cast(builder, value, kind, found.return_type.dtype), vector))
        # Lets a product and a sum become one instruction, with one rounding, where the processor has it.
        return getattr(builder, instruction)(*both, flags=["contract"])

    for kinds in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(symbol, *kinds)(generate)


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")
_arithmetic(operator.truediv, "fdiv")


@intrinsic
def magnitude(_: Any, vector: Any) -> Any:
    """|v|."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _called(builder, "fabs", *arguments)

    return vector(vector), generate


@intrinsic
def with_sign(_: Any, vector: Any, other: Any) -> Any:
    """The numbers of one vector with the signs of another."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _called(builder, "copysign", *arguments)

    return vector(vector, other), generate


@intrinsic
def where_above(_: Any, left: Any, right: Any, this: Any, other: Any) -> Any:
    """Elements of `this` where left > right, and of `other` elsewhere, also where left or right is NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, right, this, other = arguments
        return builder.select(builder.fcmp_ordered(">", left, right), this, other)

    return this(left, right, this, other), generate


@intrinsic
def power_of_two(_: Any, shifted: Any) -> Any:
    """2^k from 1.5 · 2^m + k, where m is the number of mantissa bits: moves k from the last bits to the exponent's."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (vector,) = arguments
        double = vector.type.element == ir.DoubleType()
        mantissa, offset = (52, 1023) if double else (23, 127)
        whole = ir.VectorType(ir.IntType(64 if double else 32), vector.type.count)
        bits = builder.add(builder.bitcast(vector, whole), ir.Constant(whole, [offset] * whole.count))
        return builder.bitcast(builder.shl(bits, ir.Constant(whole, [mantissa] * whole.count)), vector.type)

    return shifted(shifted), generate


def sums_side_by_side(builder: Any, vectors: list[Any]) -> Any:
    """The sums over each of 1, 2 or 4 vectors, as one vector.

    Each vector's upper half is added to its lower half until one number is left; two vectors are halved at a time.
    """
    part = vectors[0].type.count  # how many numbers still belong to each sum
    while part > 1:
        half, size = part // 2, vectors[0].type.count
        n_sums = min(len(vectors), 2) * size // part
        starts = [k * part for k in range(n_sums)]
        low, high = (
            ir.Constant(
                ir.VectorType(_INDEX, n_sums * half),
                [start + k for start in starts for k in range(begin, begin + half)],
            )
            for begin in (0, half)
        )
        pairs = zip(vectors[::2], vectors[1::2] or vectors, strict=True)
        vectors = [builder.fadd(builder.shuffle_vector(*p, low), builder.shuffle_vector(*p, high)) for p in pairs]
        part = half
    return vectors[0]


@intrinsic
def across(_: Any, vector: Any) -> Any:
    """The sum of the numbers in a vector, always in the same order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_element(sums_side_by_side(builder, list(arguments)), ir.Constant(_INDEX, 0))

    return vector.dtype(vector), generate


@intrinsic
def prefetch(_: Any, array: Any, offset: Any) -> Any:
    """Ask for the memory around a flat offset to be brought into the cache, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, flag = ir.IntType(8), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), flag, flag, flag])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte.as_pointer()], kind)
        to_read, into_all_caches, data = (ir.Constant(flag, value) for value in (0, 3, 1))
        builder.call(
            function, [element_pointer(context, builder, array, arguments, byte), to_read, into_all_caches, data]
        )
        return context.get_dummy_value()

    return types.none(array, types.intp), generate
