"""(I − W ⊗ J)⁻¹ for many components of one order: with W = V Λ V⁻¹, one I − λ J for each pair of eigenvalues λ.

J is func's Jacobian at one point of the panel: of Newton's method, iterates have to be more, the solution is the same.
It is dense for few components. For many it is found as a sparse matrix, from what func makes of a few hundred
directions, whatever its pattern; where it has none, there are products with it alone. (Source of the eigenbasis:
Hairer, Wanner, "Solving Ordinary Differential Equations II", IV.8.)
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
import torch

from fracdnn.solver.arrays import as_numpy, sizes
from fracdnn.solver.convergence import solved_linear
from fracdnn.solver.jacobians import Products, pulled_back, unhooked
from fracdnn.solver.problem import Problem

_DENSE, _MOST_DENSE = 300, 1500  # components up to which J is dense, and may be
_ALONE = 1000  # components up to which threads do not pay
_BUCKETS, _ROUNDS = 32, 12  # of rows that are added up, and draws of them
_BATCH = 2**24  # numbers of directions at once
_WHOLE = 0.02  # of a number that is taken for whole
_SMALL = 1e-10  # of the largest entry, below which one is left out
_LOPSIDED = 0.5  # part of the entries without one across the diagonal, from which a matrix is not nearly symmetric
_FULL = 0.2  # part of a matrix that is not 0, from which it is dense
# For products alone: the part of a residual that is left, since each iteration of Newton's method gains so much; how
# many there may be for one; and deviations of a sum of terms with signs at random.
_PART, _MOST, _SIGNS = 1e-4, 200, 4.0


class OnePoint:
    """The kind of matrix that `coupled` takes for many components: `Shifted`, or `Krylov` where J is too large.

    Its inverse is known by what it makes of a vector alone, so that nothing bounds it.
    """

    is_costly = True

    def __new__(cls, weights: torch.Tensor, jacobian: Any) -> Any:
        return object.__new__(Krylov if isinstance(jacobian, Products) else Shifted)

    @staticmethod
    def jacobians(solver: Any, clock: tuple[torch.Tensor, ...], states: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Slopes, and their derivative at the point in the middle, or its products at all points."""
        middle = len(clock) // 2
        jacobian = jacobian_at(solver.problem, clock[middle], states[:, middle])
        slopes = solver.slopes(clock, states)
        return slopes, Products(solver.problem, clock, states) if jacobian is None else jacobian

    def moved(self, residual: torch.Tensor, rounding: torch.Tensor) -> torch.Tensor:
        """How far a rounding of the equations may move the states: any way, where the residual is no more."""
        return torch.where(sizes(residual) <= sizes(rounding), math.inf, 0.0)


class Krylov(OnePoint):
    """For weights W [1, S, S], from products with func's Jacobians alone; by GMRES, in units of each component."""

    def __init__(self, weights: torch.Tensor, jacobian: Products) -> None:
        self.weights, self.jacobian = weights, jacobian

    def solve(self, values: torch.Tensor) -> torch.Tensor:
        """Of values [1, S, d]; not a number where the products that are allowed do not do."""
        unit = self.jacobian.unit

        def less(x: torch.Tensor) -> torch.Tensor:
            return x - self.weights @ self.jacobian(unit * x) / unit

        found, _ = solved_linear(less, values / unit, _MOST, _PART)
        return math.nan * values if found is None else unit * found

    def transposed(self) -> None:
        """Left to the caller."""

    def times(self, values: torch.Tensor) -> torch.Tensor:
        return self.jacobian(values)

    def times_sizes(self, values: torch.Tensor) -> torch.Tensor:
        """About |J| |values|, as far as rounding makes it: with signs at random."""
        signs = torch.randint(2, values.shape, generator=torch.Generator().manual_seed(0)).to(values)
        return _SIGNS * self.jacobian((2.0 * signs - 1.0) * values).abs()


class Shifted(OnePoint):
    """For weights W [1, S, S] and a Jacobian J [n, n]."""

    def __init__(self, weights: torch.Tensor, jacobian: Any) -> None:
        eigenvalues, vectors = np.linalg.eig(as_numpy(weights[0]))
        chosen = eigenvalues.imag >= 0.0  # the others are conjugates
        self._out = (vectors * np.where(eigenvalues.imag > 0.0, 2.0, 1.0))[:, chosen]
        self._in = np.linalg.inv(vectors)[chosen]
        many = scipy.sparse.issparse(jacobian) and jacobian.shape[0] > _ALONE
        self._threads = min(torch.get_num_threads(), int(chosen.sum())) if many else 1
        self._solvers = self._each(partial(_solver, jacobian), eigenvalues[chosen])
        self.weights, self.jacobian = weights, jacobian

    def solve(self, values: torch.Tensor, *, transposed: bool = False) -> torch.Tensor:
        """(I − W ⊗ J)⁻¹ of values [1, S, n], or its transpose."""
        first, last = (self._out.T, self._in.T) if transposed else (self._in, self._out)
        with np.errstate(all="ignore"):  # what is not finite is no solution
            parts = first @ as_numpy(values[0])
            parts = np.stack(self._each(lambda solver, part: solver(part, transposed), self._solvers, parts))
        return torch.from_numpy((last @ parts).real[None]).to(values)

    def _each(self, function: Callable[..., Any], *rows: Any) -> list[Any]:
        """In threads where there is much to do, since SciPy's factors keep no thread waiting."""
        if self._threads == 1:
            return list(map(function, *rows))
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(function, *rows))

    def transposed(self) -> Callable[[torch.Tensor], torch.Tensor]:
        return partial(self.solve, transposed=True)

    def times(self, values: torch.Tensor) -> torch.Tensor:
        return _by_points(self.jacobian, values)

    def times_sizes(self, values: torch.Tensor) -> torch.Tensor:
        return _by_points(abs(self.jacobian), values.abs())


@np.errstate(all="ignore")
def _by_points(matrix: Any, values: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy((matrix @ as_numpy(values[0]).T).T[None]).to(values)


def _solver(jacobian: Any, shift: complex) -> Callable[[np.ndarray, bool], np.ndarray]:
    """(I − λ J)⁻¹, by factors; not a number where there are none."""
    n = jacobian.shape[0]
    if scipy.sparse.issparse(jacobian):
        try:
            factors = scipy.sparse.linalg.splu((scipy.sparse.eye(n) - shift * jacobian).tocsc(), **_ordering(jacobian))
        except RuntimeError:
            return lambda values, transposed: np.nan * values
        return lambda values, transposed: factors.solve(values, "T" if transposed else "N")
    factors = scipy.linalg.lu_factor(np.eye(n) - shift * jacobian, check_finite=False)
    return lambda values, transposed: scipy.linalg.lu_solve(factors, values, int(transposed), check_finite=False)


def _ordering(jacobian: Any) -> dict[str, Any]:
    """Of unknowns: where most depend on one another both ways, factors have half the entries in another one."""
    pattern = jacobian.astype(bool)
    if (pattern != pattern.T).nnz > _LOPSIDED * pattern.nnz:
        return {}
    return {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.1, "options": {"SymmetricMode": True}}


def jacobian_at(problem: Problem, time: torch.Tensor, state: torch.Tensor) -> Any:
    """Func's derivative by the state [1, n], as an array, or as a sparse matrix; None where it is large and full."""
    n, known = state.numel(), problem.pattern
    with torch.inference_mode(False), torch.enable_grad(), unhooked():
        at = state.detach().clone().requires_grad_()
        slope = problem.packed_slope(time.detach().clone(), at)
        if not slope.requires_grad:
            return scipy.sparse.csr_array((n, n))
        times = partial(_rows_times, slope, at)
        found = None if known is None else _of_pattern(times, known)
        if found is not None:
            return found
        found = sparse_matrix(times, n) if n > _DENSE else None
        if found is not None and found.nnz <= _FULL * n * n:
            # Entries that are 0 at one state may not be at another.
            problem.pattern = found.tocsc() if known is None else (abs(known) + abs(found)).tocsc()
            return found
        if n > _MOST_DENSE:
            return None
        eye = np.eye(n)
        return np.concatenate([times(eye[rows]) for rows in _batches(n, n)])


def _rows_times(slope: torch.Tensor, at: torch.Tensor, rows: np.ndarray) -> np.ndarray:
    found = pulled_back(slope, at, torch.from_numpy(rows).to(slope).unsqueeze(1))
    return np.zeros_like(rows) if found is None else as_numpy(found[:, 0])


def _batches(count: int, n: int) -> list[slice]:
    size = max(_BATCH // n, 1)
    return [slice(begin, begin + size) for begin in range(0, count, size)]


def sparse_matrix(times: Callable[[np.ndarray], np.ndarray], n: int) -> Any:
    """The matrix [n, n] with which rows are multiplied; None where it has too many entries that are not 0.

    Rows are drawn into buckets and added up, once as they are and once with each digit of their numbers as a factor.
    Where one entry alone of a column is in a bucket, quotients of the sums tell its row. What is found is taken off,
    and the next draw tells more, until nothing is left.
    """
    random, base = np.random.default_rng(0), int(np.ceil(np.sqrt(n)))
    numbers = np.arange(n)
    digits = np.stack([np.ones(n), 1.0 + numbers // base, 1.0 + numbers % base])
    found = scipy.sparse.csr_array((n, n))
    largest = 0.0
    for _ in range(_ROUNDS):
        bucket = random.integers(_BUCKETS, size=n)
        rows = scipy.sparse.csr_array(
            (digits.ravel(), ((np.arange(3)[:, None] * _BUCKETS + bucket).ravel(), np.tile(numbers, 3))),
            shape=(3 * _BUCKETS, n),
        )
        whole = rows.toarray()
        sums = np.concatenate([times(whole[batch]) for batch in _batches(len(whole), n)])
        largest = max(largest, float(abs(sums).max()))
        if not np.isfinite(largest):
            return None
        left = (sums - rows @ found).reshape(3, _BUCKETS, n)
        size = abs(left[0])
        where = np.nonzero(np.maximum(size, abs(left[1]) / base) > _SMALL * largest)
        if not len(where[0]):
            return found
        one, high, low = (part[where] for part in left)
        with np.errstate(all="ignore"):
            high, low = high / one - 1.0, low / one - 1.0
            whole_numbers = (abs(high - high.round()) < _WHOLE) & (abs(low - low.round()) < _WHOLE)
            row = np.where(whole_numbers, base * high.round() + low.round(), -1.0)
        row = np.where((row >= 0) & (row < n), row, -1.0).astype(int)
        alone = (row >= 0) & (bucket[row] == where[0])
        if not alone.any():
            return None
        entries = (one[alone], (row[alone], where[1][alone]))
        found = (found + scipy.sparse.csr_array(entries, shape=(n, n))).tocsr()
    return None


def _of_pattern(times: Callable[[np.ndarray], np.ndarray], columns: Any) -> Any:
    """The matrix, if it has no other entries than one of sparse columns; None else.

    By least squares for each column, from twice as many random rows as the fullest one has entries.
    """
    counts = np.diff(columns.indptr)
    n, most = len(counts), int(counts.max(initial=0))
    if not 0 < 2 * most * most * n <= _BATCH:
        return None
    inside, rows = np.arange(most) < counts[:, None], np.zeros((n, most), int)
    rows[inside] = columns.indices
    drawn = np.random.default_rng(0).standard_normal((2 * most + 2, n))
    sums = times(drawn)
    factors = np.where(inside[:, None], drawn[:, rows].swapaxes(0, 1), 0.0)
    normal = factors.swapaxes(1, 2) @ factors + np.eye(most) * ~inside[:, None]
    entries = np.linalg.solve(normal, factors.swapaxes(1, 2) @ sums.T[..., None])
    left = (factors @ entries)[..., 0] - sums.T
    if not abs(left).max() <= _SMALL * abs(sums).max():
        return None
    places = (columns.indices, np.repeat(np.arange(n), counts))
    return scipy.sparse.csr_array((entries[..., 0][inside], places), shape=(n, n))
