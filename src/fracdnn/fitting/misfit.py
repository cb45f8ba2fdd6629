"""Residuals of all data sets as a function of the free parameters, with exact derivatives; the posterior."""

import contextlib
import math
import sys
import warnings
from collections.abc import Callable
from functools import partial
from graphlib import TopologicalSorter
from typing import Any

import numpy as np
import torch
from torch.autograd.functional import jacobian

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.extras import require
from fracdnn.fitting.arguments import data_sets, start_parameters

_FUNCTIONS = ("exp", "log", "log10", "sqrt", "sin", "cos", "tan", "tanh", "abs")
# Operations for each number from which on reverse derivatives are cheaper: a solver's long chain of small ones.
_LONG = 10
# Of a parameter, to see whether a derivative of 0 is true.
_NUDGE = 1e-6
_REMEDY = "use functions of torch throughout, not NumPy, math, float(), item() or detach()"


def forward(function: Any, x: torch.Tensor) -> torch.Tensor:
    """By torch.func, which refuses .numpy() and float() in a model; dual numbers alone would lose derivatives there."""
    return torch.func.jacfwd(function)(x)


# All numbers at once; `jacobian` alone takes them one by one.
backward = partial(jacobian, vectorize=True)


class Misfit:
    """r(x) [n] and its Jacobian [n, p]; x [p] are the free parameters as they are, not as bounds transform them."""

    def __init__(self, model: Any, parameters: Any, t: Any, data: Any, sigma: Any) -> None:
        require("lmfit")
        self.sets, self.start = data_sets(model, t, data, sigma), start_parameters(parameters)
        own = [each for each in self.start.values() if not each.expr]
        self._fixed = {each.name: torch.tensor(each.value, dtype=torch.float64) for each in own if not each.vary}
        self._expressions = {name: each.expr for name, each in self.start.items() if each.expr}
        self.free = [each.name for each in own if each.vary]
        self.lower, self.upper = np.array([[each.min, each.max] for each in own if each.vary]).reshape(-1, 2).T
        self.n_numbers, self.verbose, self.stage = sum(each.n_numbers for each in self.sets), False, ""
        self.ways: list[Callable[[Any, torch.Tensor], torch.Tensor]] = []
        self.n_evaluations, self.best = 0, (math.inf, self.point(self.start))
        self._check()

    def _check(self) -> None:
        if not self.free:
            raise InvalidArgumentError(
                f"parameters must have one that may vary, got {', '.join(self.start)}, all fixed; free one"
            )
        for place, each in enumerate(self.sets):
            missing = sorted(each.requires - set(self.start))
            if missing:
                raise InvalidArgumentError(
                    f"parameters must hold all that model {place} takes, got no {missing[0]!r}; add its start value"
                )
        if self.n_numbers <= len(self.free):
            raise InvalidArgumentError(
                f"data must hold more numbers than there are free parameters, got {self.n_numbers} for "
                f"{len(self.free)}; measure more points, or fix parameters"
            )
        start = self.residual(self.best[1])
        if not np.isfinite(start).all():
            raise InvalidArgumentError(
                f"parameters must start where the model is finite, got {start[~np.isfinite(start)][0]} at number "
                f"{int(np.argmin(np.isfinite(start)))}; pass other start values, or exclude t = 0"
            )
        # A derivative of 0 for what changes the model is one that torch was not shown.
        x = self.best[1]
        for k in np.flatnonzero((self._derivatives(x) == 0).all(axis=0)):
            nudged, step = x.copy(), _NUDGE * (abs(x[k]) or 1.0)
            nudged[k] += step if x[k] + step <= self.upper[k] else -step
            if np.nanmax(np.abs(self.residual(nudged) - start)) > 1e-3 * step:
                raise InvalidTypeError(
                    f"model must be differentiable by torch in {self.free[k]!r}, got values that change with it "
                    f"and a derivative of 0; {_REMEDY}"
                )

    def parameters(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """All parameters by name: free, fixed, and those that expressions give, in the user's order."""
        values = dict(zip(self.free, x, strict=True)) | self._fixed
        if not self._expressions:
            return {name: values[name] for name in self.start}
        from asteval import Interpreter, get_ast_names  # lmfit's own interpreter, on tensors

        functions = {name: getattr(torch, name) for name in _FUNCTIONS}
        interpreter = Interpreter(symtable=functions | {"pi": math.pi} | values, use_numpy=False, minimal=True)
        needs = {name: get_ast_names(interpreter.parse(text)) for name, text in self._expressions.items()}
        for name in filter(needs.__contains__, TopologicalSorter(needs).static_order()):
            value = interpreter.eval(self._expressions[name], raise_errors=True)
            values[name] = interpreter.symtable[name] = torch.as_tensor(value, dtype=torch.float64)
        return {name: values[name] for name in self.start}

    def point(self, given: Any) -> np.ndarray:
        return np.array([given[name].value for name in self.free])

    def split(self, row: np.ndarray) -> list[np.ndarray]:
        """Numbers for all residuals as parts, one for each data set."""
        return np.split(row, np.cumsum([each.n_numbers for each in self.sets])[:-1])

    def weighted(self, x: torch.Tensor) -> torch.Tensor:
        parameters = self.parameters(x)
        return torch.cat([each.residual(parameters) for each in self.sets])

    def residual(self, x: np.ndarray) -> np.ndarray:
        """r(x); NaN where the model cannot be computed, unless it is the first time. Remembers the best x."""
        self.n_evaluations += 1
        try:
            with torch.no_grad():
                values = self.weighted(torch.tensor(x, dtype=torch.float64)).numpy()
        except (ArithmeticError, InvalidArgumentError):  # no convergence, or an order that there is not
            if self.n_evaluations == 1:
                raise
            return np.full(self.n_numbers, np.nan)
        size = float(values @ values)
        if size < self.best[0]:
            self.best = (size, np.array(x))
        if self.verbose:  # one line, written again and again
            deviation = math.sqrt(self.best[0] / len(values))
            line = f"{self.stage}: {self.n_evaluations} evaluations, residual {deviation:.3e}"
            print(f"\r{line:<78}", end="", file=sys.stderr, flush=True)
        return values

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """dr/dx [n, p]. Derivatives that are not finite, as at the edge of a domain, count as 0."""
        return np.nan_to_num(self._derivatives(x), nan=0.0, posinf=0.0, neginf=0.0)

    def _derivatives(self, x: np.ndarray) -> np.ndarray:
        """By the first way that the model's operations support."""
        point = torch.tensor(x, dtype=torch.float64)
        if not self.ways:
            self.ways = [forward, jacobian]
            with contextlib.suppress(RuntimeError, TypeError):  # a model without derivatives fails in each way below
                if _n_operations(self.weighted(point.clone().requires_grad_())) > _LONG * len(self.residual(x)):
                    self.ways.insert(0, backward)
        while True:
            try:
                with warnings.catch_warnings():  # torch's own, when it first loads its forward derivatives
                    warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)
                    return self.ways[0](self.weighted, point).detach().numpy()
            except (RuntimeError, TypeError) as error:
                if len(self.ways) == 1:
                    raise InvalidTypeError(
                        f"model must be differentiable by torch, got {str(error).splitlines()[0]!r}; {_REMEDY}"
                    ) from error
                del self.ways[0]

    def derivatives(self, x: np.ndarray) -> np.ndarray:
        """Of all parameters by the free ones, [all, p]: expressions among them."""
        point = torch.tensor(x, dtype=torch.float64)
        return jacobian(lambda free: torch.stack(list(self.parameters(free).values())), point).numpy()


def _n_operations(values: torch.Tensor) -> int:
    seen: set[Any] = set()
    waiting = [values.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [each for each, _ in node.next_functions]
    return len(seen)


class LogDensity:
    """log p(x | data) up to a constant, of the free parameters x [p] in the order of `names`, differentiable.

    With known sigma −χ²/2; else the size of the noise is integrated out under the prior 1/size: −n/2 ln χ², for one
    data set. The prior is uniform within the bounds; outside, and where the model is not finite, the logarithm is −inf.
    Arguments as in `fracdnn.fit`.
    """

    def __init__(self, model: Any, parameters: Any, t: Any, data: Any, sigma: Any = None) -> None:
        self._misfit = Misfit(model, parameters, t, data, sigma)
        unknown = [each.noise for each in self._misfit.sets if each.noise != "known"]
        if unknown and len(self._misfit.sets) > 1:
            raise InvalidArgumentError(
                f"sigma must be known for each of several data sets, got {len(unknown)} without; pass numbers for each"
            )
        self.names, self._is_weighted = list(self._misfit.free), not unknown
        self.start = torch.tensor(self._misfit.best[1], dtype=torch.float64)

    def __call__(self, x: Any) -> torch.Tensor:
        x, misfit = torch.as_tensor(x, dtype=torch.float64), self._misfit
        place = x.detach().numpy()
        if not ((misfit.lower <= place) & (place <= misfit.upper)).all():
            return x.sum() * 0.0 - math.inf
        residual = misfit.weighted(x)
        size = residual @ residual
        value = -0.5 * size if self._is_weighted else -0.5 * len(residual) * torch.log(size)
        return torch.where(value.isnan(), -math.inf, value)

    def value_and_gradient(self, x: Any) -> tuple[float, np.ndarray]:
        """As numbers of NumPy."""
        point = torch.tensor(np.asarray(x), dtype=torch.float64, requires_grad=True)
        value = self(point)
        return float(value.detach()), torch.autograd.grad(value, point)[0].numpy()
