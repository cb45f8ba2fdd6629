"""The product all kernels live on: small matrices times rows of numbers that lie in cache."""

from numba import njit

from fracdnn.compiled.vectors import add_product, lanes_of, load, spread, store


@njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")
def multiply(out, out_at, matrix, at, stride, n_rows, n, rows, rows_at, size):
    """out_r += Σ_{k<n} matrix[r, k] rows_k for r < n_rows; each row is `size` numbers, a multiple of 2 vectors."""
    step = lanes_of(out)
    for i in range(0, size, 2 * step):
        r = 0
        while r + 4 <= n_rows:
            o = out_at + r * size + i
            a0, b0 = load(out, o), load(out, o + step)
            a1, b1 = load(out, o + size), load(out, o + size + step)
            a2, b2 = load(out, o + 2 * size), load(out, o + 2 * size + step)
            a3, b3 = load(out, o + 3 * size), load(out, o + 3 * size + step)
            m = at + r * stride
            x = rows_at + i
            for _ in range(n):
                u, v = load(rows, x), load(rows, x + step)
                w0, w1 = spread(matrix, m), spread(matrix, m + stride)
                w2, w3 = spread(matrix, m + 2 * stride), spread(matrix, m + 3 * stride)
                a0, b0 = add_product(a0, w0, u), add_product(b0, w0, v)
                a1, b1 = add_product(a1, w1, u), add_product(b1, w1, v)
                a2, b2 = add_product(a2, w2, u), add_product(b2, w2, v)
                a3, b3 = add_product(a3, w3, u), add_product(b3, w3, v)
                m += 1
                x += size
            store(out, o, a0)
            store(out, o + step, b0)
            store(out, o + size, a1)
            store(out, o + size + step, b1)
            store(out, o + 2 * size, a2)
            store(out, o + 2 * size + step, b2)
            store(out, o + 3 * size, a3)
            store(out, o + 3 * size + step, b3)
            r += 4
        while r < n_rows:
            o = out_at + r * size + i
            a, b = load(out, o), load(out, o + step)
            m = at + r * stride
            x = rows_at + i
            for _ in range(n):
                w = spread(matrix, m)
                a, b = add_product(a, w, load(rows, x)), add_product(b, w, load(rows, x + step))
                m += 1
                x += size
            store(out, o, a)
            store(out, o + step, b)
            r += 1
