"""Small products of matrices with samples, and their sums over samples. Needs Numba."""

import functools
import itertools
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fracdnn.kernels.compiling import compiled
from fracdnn.kernels.vectors import Vector, across, broadcast, element_pointer, lanes_of, load, sums_side_by_side, zeros


def product_of_rows(n_rows: int) -> Any:
    """Make the function out_r += Σ_{k<n} matrix[r, k] · rows_k for r < n_rows, on the first two vectors of each row.

    The sums stay in registers. Each array is given with the flat offset of its first element, and with its strides.
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
                return element_pointer(context, builder, array_type, (array, offset), vector)

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
                    weight = broadcast(builder, builder.load(where), vector)
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
    """Make the function total[o, i] += left_o · right_i for o, i < count: scalar products of rows of `size` numbers."""

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
                    found = [element_pointer(context, builder, array_type, (array, place), vector) for place in places]
                    return [builder.load(each, align=number) for each in found]

                pairs = itertools.product(loaded(left, left_, left_at), loaded(right, right_, right_at))
                for each, (x, y) in zip(sums, pairs, strict=True):
                    product = builder.fmul(x, y, flags=["contract"])
                    builder.store(builder.fadd(builder.load(each), product, flags=["contract"]), each)
            for r in range(count):
                row = sums_side_by_side(builder, [builder.load(each) for each in sums[r * count : (r + 1) * count]])
                offset = builder.add(total_at, builder.mul(total_step, total_step.type(r)))
                place = element_pointer(context, builder, total, (total_, offset), row.type)
                builder.store(builder.fadd(builder.load(place, align=number), row), place, align=number)
            return context.get_dummy_value()

        whole = types.intp
        return types.none(total, whole, whole, left, whole, right, whole, whole), generate

    return add


_times_8, _times_4, _times_2, _times_1 = (product_of_rows(count) for count in (8, 4, 2, 1))
_products_4, _products_2, _products_1 = (products_of_rows(count) for count in (4, 2, 1))


@compiled
def multiply(out, out_at, matrix, at, down, along, n_rows, n, rows, rows_at, size):
    """out_r += Σ_{k<n} matrix[r, k] rows_k for r < n_rows, for rows of `size` numbers, an even number of vectors.

    matrix[r, k] is at `at` + r · `down` + k · `along`.
    """
    for i in range(0, size, 2 * lanes_of(out)):
        o, x, m, r = out_at + i, rows_at + i, at, 0
        while r + 8 <= n_rows:
            _times_8(out, o + r * size, size, matrix, m + r * down, down, along, n, rows, x, size)
            r += 8
        if r + 4 <= n_rows:
            _times_4(out, o + r * size, size, matrix, m + r * down, down, along, n, rows, x, size)
            r += 4
        if r + 2 <= n_rows:
            _times_2(out, o + r * size, size, matrix, m + r * down, down, along, n, rows, x, size)
            r += 2
        if r < n_rows:
            _times_1(out, o + r * size, size, matrix, m + r * down, down, along, n, rows, x, size)


@compiled
def add_products(total, total_at, left, n_left, right, right_at, n_right, size):
    """total[o, i] += Σ over samples of left_o · right_i: what a tile adds to the gradient of a matrix.

    As many elements as possible are computed four by four, what is left two by two, and the rest one by one.
    """
    for o in range(0, n_left - 3, 4):
        for i in range(0, n_right - 3, 4):
            _products_4(total, total_at + o * n_right + i, n_right, left, o * size, right, right_at + i * size, size)
    for o in range(0, n_left - 1, 2):
        for i in range(n_right // 4 * 4 if o < n_left // 4 * 4 else 0, n_right - 1, 2):
            _products_2(total, total_at + o * n_right + i, n_right, left, o * size, right, right_at + i * size, size)
    for o in range(n_left):
        for i in range(n_right // 2 * 2 if o < n_left // 2 * 2 else 0, n_right):
            _products_1(total, total_at + o * n_right + i, n_right, left, o * size, right, right_at + i * size, size)


@compiled
def add_sums(total, total_at, total_step, rows, n_rows, size):
    """total[r · total_step] += Σ over samples of rows_r: what a tile adds to the gradient of b."""
    for r in range(n_rows):
        found = zeros(rows)
        for m in range(r * size, (r + 1) * size, lanes_of(rows)):
            found = found + load(rows, m)
        total[total_at + r * total_step] += across(found)
