"""Vectors of samples as a Numba type: what fills a register of the processor, in its own instructions.

Numba turns a loop into such instructions by itself, but reads and writes every sum once a term, and takes registers of
half the size on many processors; here sums stay in registers of full size. Vectors add, subtract, multiply and divide
as numbers do; a number stands for a vector of it. Needs Numba: import this module only where that is known to be there.
"""

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.core.datamodel import models, register_default
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin

_BYTES = 64 if binding.get_host_cpu_features().get("avx512f", False) else 32
_INDEX = ir.IntType(32)


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


def _spread(builder: Any, number: Any, vector: Any) -> Any:
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(_INDEX, 0))
    return builder.shuffle_vector(single, single, ir.Constant(ir.VectorType(_INDEX, vector.count), [0] * vector.count))


def _called(builder: Any, name: str, *arguments: Any) -> Any:
    """LLVM's own function of that name, for vectors like the arguments."""
    vector = arguments[0].type
    letter = "f64" if vector.element == ir.DoubleType() else "f32"
    kind = ir.FunctionType(vector, [argument.type for argument in arguments])
    function = builder.module.declare_intrinsic(f"llvm.{name}.v{vector.count}{letter}", fnty=kind)
    return builder.call(function, arguments)


@intrinsic
def lanes_of(_: Any, array: Any) -> Any:
    """How many numbers of an array a vector holds, a constant for the compiler."""
    count = lanes(array.dtype.bitwidth // 8)
    return types.intp(array), lambda context, builder, signature, arguments: ir.Constant(ir.IntType(64), count)


@intrinsic
def is_double(_: Any, vector: Any) -> Any:
    """Whether a vector or an array holds float64, a constant for the compiler."""
    found = int(vector.dtype == types.float64)
    return types.boolean(vector), lambda context, builder, signature, arguments: ir.Constant(ir.IntType(1), found)


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
def filled(_: Any, like: Any, number: Any) -> Any:
    """A vector like another, with one number in every place."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        value = context.cast(builder, arguments[1], found.args[1], like.dtype)
        return _spread(builder, value, arguments[0].type)

    return like(like, number), generate


@intrinsic
def spread(_: Any, array: Any, offset: Any) -> Any:
    """The number at a flat offset into a contiguous array, in every place of a vector."""
    kind = Vector(array.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = context.get_value_type(kind)
        number = builder.load(_address(context, builder, array, arguments, vector.element))
        return _spread(builder, number, vector)

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
                both.append(_spread(builder, context.cast(builder, value, kind, found.return_type.dtype), vector))
        # A product and a sum become one instruction, and one rounding, where the processor can.
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
    """Take `this` where left > right, `other` elsewhere and where either is NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left, right, this, other = arguments
        return builder.select(builder.fcmp_ordered(">", left, right), this, other)

    return this(left, right, this, other), generate


@intrinsic
def power_of_two(_: Any, shifted: Any) -> Any:
    """2^k from 1.5 · 2^m + k, m the bits of a mantissa: k stands in the last bits and goes to those of the exponent."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (vector,) = arguments
        double = vector.type.element == ir.DoubleType()
        mantissa, offset = (52, 1023) if double else (23, 127)
        whole = ir.VectorType(ir.IntType(64 if double else 32), vector.type.count)
        bits = builder.add(builder.bitcast(vector, whole), ir.Constant(whole, [offset] * whole.count))
        return builder.bitcast(builder.shl(bits, ir.Constant(whole, [mantissa] * whole.count)), vector.type)

    return shifted(shifted), generate


def _sums(builder: Any, vectors: list[Any]) -> Any:
    """The sum of the numbers of each vector, side by side, in a fixed order: halves are added, of two vectors at once.

    The vectors are 1, 2 or 4.
    """
    part = vectors[0].type.count  # so many numbers still belong to one sum
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
    """The sum of the numbers in a vector, in a fixed order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.extract_element(_sums(builder, list(arguments)), ir.Constant(_INDEX, 0))

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


def product_of_rows(n_rows: int) -> Any:
    """A function that adds to so many rows of `out` Σ_{k<n} matrix[r, k] · rows_k, for two vectors of each row.

    The sums stay in registers. Each array comes with the flat offset where it begins and its steps.
    """

    @intrinsic
    def add(
        _: Any,
        out: Any,
        out_at: Any,
        out_step: Any,
        matrix: Any,
        at: Any,
        down: Any,
        along: Any,
        n: Any,
        rows: Any,
        rows_at: Any,
        rows_step: Any,
    ) -> Any:
        kind = Vector(out.dtype)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            out_, out_at, out_step, matrix_, at, down, along, n, rows_, rows_at, rows_step = arguments
            vector, number = context.get_value_type(kind), out.dtype.bitwidth // 8
            both = [ir.Constant(out_at.type, k * vector.count) for k in (0, 1)]

            def place(array_type: Any, array: Any, *terms: Any) -> Any:
                offset = functools.reduce(builder.add, terms)
                return _address(context, builder, array_type, (array, offset), vector)

            def times(step: Any, k: int) -> Any:
                return builder.mul(step, ir.Constant(step.type, k))

            targets = [place(out, out_, out_at, times(out_step, r), v) for r in range(n_rows) for v in both]
            sums = [cgutils.alloca_once_value(builder, builder.load(target, align=number)) for target in targets]
            with cgutils.for_range(builder, n) as loop:
                x = builder.add(rows_at, builder.mul(loop.index, rows_step))
                values = [builder.load(place(rows, rows_, x, v), align=number) for v in both]
                m = builder.add(at, builder.mul(loop.index, along))
                for r in range(n_rows):
                    where = builder.bitcast(place(matrix, matrix_, m, times(down, r)), vector.element.as_pointer())
                    weight = _spread(builder, builder.load(where), vector)
                    for total, value in zip(sums[2 * r : 2 * r + 2], values, strict=True):
                        product = builder.fmul(weight, value, flags=["contract"])
                        builder.store(builder.fadd(builder.load(total), product, flags=["contract"]), total)
            for target, total in zip(targets, sums, strict=True):
                builder.store(builder.load(total), target, align=number)
            return context.get_dummy_value()

        whole = types.intp
        return types.none(out, whole, whole, matrix, whole, whole, whole, whole, rows, whole, whole), generate

    return add


def products_of_rows(count: int) -> Any:
    """A function that adds to a part of a matrix, `count` × `count`, the scalar products of rows of left and right."""

    @intrinsic
    def add(
        _: Any,
        total: Any,
        total_at: Any,
        total_step: Any,
        left: Any,
        left_at: Any,
        right: Any,
        right_at: Any,
        size: Any,
    ) -> Any:
        kind = Vector(total.dtype)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            total_, total_at, total_step, left_, left_at, right_, right_at, size = arguments
            vector, number = context.get_value_type(kind), total.dtype.bitwidth // 8
            sums = [cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in range(count * count)]
            with cgutils.for_range_slice(builder, size.type(0), size, size.type(vector.count), intp=size.type) as (
                m,
                _,
            ):

                def loaded(array_type: Any, array: Any, at: Any) -> list[Any]:
                    places = [builder.add(builder.add(at, m), builder.mul(size, size.type(k))) for k in range(count)]
                    found = [_address(context, builder, array_type, (array, place), vector) for place in places]
                    return [builder.load(each, align=number) for each in found]

                pairs = itertools.product(loaded(left, left_, left_at), loaded(right, right_, right_at))
                for each, (x, y) in zip(sums, pairs, strict=True):
                    product = builder.fmul(x, y, flags=["contract"])
                    builder.store(builder.fadd(builder.load(each), product, flags=["contract"]), each)
            for r in range(count):
                row = _sums(builder, [builder.load(each) for each in sums[r * count : (r + 1) * count]])
                offset = builder.add(total_at, builder.mul(total_step, total_step.type(r)))
                place = _address(context, builder, total, (total_, offset), row.type)
                builder.store(builder.fadd(builder.load(place, align=number), row), place, align=number)
            return context.get_dummy_value()

        whole = types.intp
        return types.none(total, whole, whole, left, whole, right, whole, whole), generate

    return add
