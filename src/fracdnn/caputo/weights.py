"""The weights of the L1 scheme: the one home of every formula with a power of a lag.

With p = 1 − order, the Caputo derivative of the piecewise-linear interpolant of samples is

    d_t^order u(t_j) = 1 / (Γ(2−order) τ^order) · Σ_{k=1}^{j} a_{j−k} (u_k − u_{k−1}),   a_m = (m+1)^p − m^p,

and solving for u_j gives a step in which u_j is a convex combination of all earlier states plus a multiple of
the right-hand side:

    u_j = a_{j−1} u_0 + Σ_{k=1}^{j−1} h_{j−k} u_k + c f_{j−1},   h_m = a_{m−1} − a_m,   c = Γ(2−order) τ^order.

Everything here is float64 and differentiable with respect to `order`, steps and times where these are tensors
that require gradients. For weights by lag an order of shape S gives shape S + (number of lags,).
"""

import math
from functools import lru_cache

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.tracing import outside_of_modes
from fracdnn.validation import check_count, check_order, check_step_size, check_times

Number = float | torch.Tensor

# The binomial series for h_m converges like m^-2k: after this many terms it is below rounding at m = 2 …
_SERIES_TERMS = 27
# … and after so few from this lag on.
_FAR_LAG, _FAR_TERMS = 32, 6
_LANCZOS = [0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059]
_LANCZOS += [12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7]


def l1_weights(order: Number, n: int) -> torch.Tensor:
    """Return a_0, …, a_{n−1} with a_m = (m+1)^(1−order) − m^(1−order), and a_0 = 1 for every order including 1.

    Paper: eq. (a_k). The difference cancels for large m, so it is computed as
    m^p · expm1(p · log1p(1/m)): relative error below 1e-13 up to m = 10⁶ (tested against mpmath).
    """
    order = check_order(order)
    return lag_increments(1.0 - order, check_count(n, "n"))


def lag_increments(exponent: torch.Tensor, n: int) -> torch.Tensor:
    """Return (m+1)^exponent − m^exponent for m = 0, …, n−1, without cancellation; the first is 1."""
    exponent = exponent.unsqueeze(-1)
    lags = torch.arange(1, max(n, 1), dtype=torch.float64, device=exponent.device)
    later = lags**exponent * torch.expm1(exponent * torch.log1p(1.0 / lags))
    return torch.cat([torch.ones_like(exponent), later], dim=-1)[..., :n]


def l1_differences(order: Number, n: int) -> torch.Tensor:
    """Return h_1, …, h_n with h_m = a_{m−1} − a_m: positive, decreasing, summing to 1 − a_n.

    For m ≥ 2 the binomial series of the second difference of m^p has terms of one sign only,

        h_m = order (1−order) m^(−1−order) · [1 + r_1/m² + r_1 r_2/m⁴ + …],
        r_k = (2k−p)(2k+1−p) / ((2k+1)(2k+2)),

    so nothing cancels (the plain second difference has lost ten digits at m = 10⁵): relative error below
    1e-13 for every order and lag. At order 1, h_1 = 1 and the rest is 0.
    """
    return _differences(check_order(order), check_count(n, "n"))


def _differences(order: torch.Tensor, n: int) -> torch.Tensor:
    first = -2.0 * torch.expm1(-order * math.log(2.0)).unsqueeze(-1)
    lags = torch.arange(2, max(n + 1, 2), dtype=torch.float64, device=order.device)
    near, far = lags[: _FAR_LAG - 2], lags[_FAR_LAG - 2 :]
    return torch.cat([first, far_differences(order, near), far_differences(order, far, _FAR_TERMS)], dim=-1)[..., :n]


def far_differences(order: torch.Tensor, lags: torch.Tensor, n_terms: int = _SERIES_TERMS) -> torch.Tensor:
    """Return h_m of `l1_differences` at chosen lags m ≥ 2, by its series."""
    order = order.unsqueeze(-1)
    exponent = 1.0 - order
    twice = 2.0 * torch.arange(1, n_terms + 1, dtype=torch.float64, device=order.device)
    ratios = (twice - exponent) * (twice + 1.0 - exponent) / ((twice + 1.0) * (twice + 2.0))
    # Matrix by matrix: with a vector, vectorised forward-mode derivatives fail.
    terms = torch.exp(torch.log(ratios).cumsum(-1)).unsqueeze(-2) @ lags ** -twice.unsqueeze(-1)
    series = 1.0 + terms.squeeze(-2)
    return order * exponent * lags ** (-1.0 - order) * series


def l1_step_factor(order: Number, step_size: Number) -> torch.Tensor:
    """Return C = Γ(2−order) τ^order with τ = `step_size`, the factor of the right-hand side of a step."""
    return step_factor(check_order(order), check_step_size(step_size))


def step_factor(order: torch.Tensor, step_size: torch.Tensor) -> torch.Tensor:
    """Return the factor of `l1_step_factor` for checked numbers."""
    return gamma(2.0 - order) * step_size.to(order.device) ** order


def gamma(x: torch.Tensor) -> torch.Tensor:
    """Return Γ(x) for x > 0."""
    if torch.compiler.is_exporting():  # to formats that have no such function
        return _gamma_by_lanczos(x)
    return torch.exp(torch.lgamma(x))


def _gamma_by_lanczos(x: torch.Tensor) -> torch.Tensor:
    """Return Γ(x) by elementary operations, to 15 digits, with the usual constants for g = 7.

    Source: Lanczos, "A precision approximation of the gamma function", 1964.
    """
    series = _LANCZOS[0] + sum(c / (x - 1.0 + k) for k, c in enumerate(_LANCZOS[1:], 1))
    shifted = x + 6.5
    return math.sqrt(2.0 * math.pi) * torch.exp((x - 0.5) * torch.log(shifted) - shifted) * series


def memory_weights(order: Number, n: int) -> torch.Tensor:
    """Return the weights of Y_0, …, Y_{n−1} in Y_n for equal steps: a_{n−1}, h_{n−1}, …, h_1.

    Not negative, and summing to 1: the memory is an average of all earlier layers.
    """
    n = check_count(n, "n", minimum=1)
    oldest = l1_weights(order, n)[..., -1:]
    return torch.cat([oldest, l1_differences(order, n - 1).flip(-1)], dim=-1)


def memory_matrix(order: Number, n_layers: int) -> torch.Tensor:
    """Return `memory_weights` of every layer as the rows of a lower triangular matrix [n_layers, n_layers].

    An order of shape [n_layers] gives each layer, that is each row, its own.
    """
    order = check_order(order)
    n_layers = check_count(n_layers, "n_layers", minimum=1)
    _check_orders(order, n_layers)
    row = torch.arange(1, n_layers + 1, device=order.device).unsqueeze(-1)
    lag = row - torch.arange(n_layers, device=order.device)
    differences = _differences(order, n_layers).expand(n_layers, n_layers)
    matrix = differences.gather(1, torch.where(lag > 0, lag - 1, 0)).tril()  # Inductor fails for clamped indices
    oldest = lag_increments(1.0 - order, n_layers).expand(n_layers, n_layers).gather(1, row - 1)
    return torch.cat([oldest, matrix[:, 1:]], dim=1)


def quick_memory_matrix(order: torch.Tensor, n_layers: int) -> torch.Tensor:
    """Return `memory_matrix` for one order that changes in each step of a training; absolute error below 1e-14.

    The formulas above take some seventy operations, and as many on the way back; this takes ten.
    """
    log_lags, log_ratios = _matrix_constants(n_layers, order.device)
    exponent = 1.0 - order
    later = torch.exp(exponent * log_lags) * torch.expm1(exponent * log_ratios)
    increments = torch.nn.functional.pad(later, (1, 1), value=1.0)  # a_0, …, a_{N−1}, and one that is not used
    differences = torch.nn.functional.pad(increments[:-2] - increments[1:-1], (0, 1))  # h_1, …, h_{N−1} and 0
    # Row n of the windows holds h_{n+1}, h_n, … from right to left, after zeros.
    windows = torch.nn.functional.pad(differences, (n_layers - 1, 0)).unfold(0, n_layers, 1).flip(1)
    return torch.cat([increments[:-1].unsqueeze(1), windows[:, 1:]], dim=1)


@lru_cache(maxsize=16)
def _matrix_constants(n_layers: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log m and log(1 + 1/m) for m = 1, …, N − 1."""

    def constants() -> tuple[torch.Tensor, torch.Tensor]:
        lags = torch.arange(1.0, n_layers, dtype=torch.float64)
        return lags.log().to(device), (1.0 / lags).log1p().to(device)

    return outside_of_modes(constants)


def l1_weights_on_grid(order: Number, t: torch.Tensor) -> torch.Tensor:
    """Return the weights for unequal steps, a lower triangular matrix [N, N] for N + 1 times.

    Entry (j−1, k−1) is w_jk = τ_j^order / τ_k · [(t_j − t_{k−1})^p − (t_j − t_k)^p] for k ≤ j, with w_jj = 1,
    so that Σ_k w_jk (u_k − u_{k−1}) = Γ(2−order) τ_j^order d_t^order u(t_j). For equal steps w_jk = a_{j−k}.
    An order of shape [N] gives each row its own. O(N²) time and memory.
    """
    return _grid_weights(check_order(order), check_times(t).diff())


def _grid_weights(order: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    n_steps = len(steps)
    _check_orders(order, n_steps)
    row_order, steps = order.unsqueeze(-1) if order.dim() else order, steps.to(order.device)
    # t_j − t_k as the sum of the steps between, from the later end: no time is rounded to a sum of all before it.
    between = steps.expand(n_steps, -1).tril().flip(-1).cumsum(-1).flip(-1)
    distance, newest = torch.nn.functional.pad(between[:, 1:], (0, 1)), steps.unsqueeze(-1)
    increments = power_difference(newest, distance, steps, 1.0 - row_order).tril()
    weights = increments / steps * newest**row_order
    # τ^order / τ · τ^p is 1 up to rounding; as a constant it is exact, and has the right gradient: none.
    return torch.where(torch.eye(n_steps, dtype=torch.bool, device=weights.device), 1.0, weights)


def memory_weights_of_steps(order: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Return `memory_weights_on_grid` for times that are given by their steps, however much these differ in size."""
    weights = _grid_weights(check_order(order).to(steps.device), steps)
    return torch.cat([weights[:, :1], weights.diff(dim=-1)], dim=-1).tril()


def memory_weights_on_grid(order: Number, t: torch.Tensor) -> torch.Tensor:
    """Return the weights of Y_0, …, Y_{j−1} in Y_j for unequal steps: row j−1 of a lower triangular matrix [N, N].

    Column 0 is w_j1 and column k ≥ 1 is w_{j,k+1} − w_jk; a row sums to 1 and is not negative, up to rounding:
    the subtraction leaves an absolute error of a few roundings of w, which is all that the sum over the history sees.
    """
    order = check_order(order)
    return memory_weights_of_steps(order, check_times(t).diff().to(order.device))


def power(base: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """Return base^exponent, but 0 at 0 for every exponent, with derivatives there."""
    positive = base > 0
    return torch.where(positive, torch.where(positive, base, 1.0) ** exponent, 0.0)


def power_difference(
    larger: torch.Tensor, smaller: torch.Tensor, difference: torch.Tensor, exponent: torch.Tensor
) -> torch.Tensor:
    """Return larger^exponent − smaller^exponent without cancellation, for bases whose difference is known.

    Computed as smaller^e · expm1(e · log1p(difference/smaller)), unless one is 0. The kernel of both the L1 derivative
    (exponent 1 − order) and the product-trapezoidal integral (exponent 1 + order).
    """
    positive = smaller > 0
    base = torch.where(positive, smaller, 1.0)
    growth = torch.where(positive, difference, 1.0) / base
    return torch.where(positive, base**exponent * torch.expm1(exponent * torch.log1p(growth)), power(larger, exponent))


def _check_orders(order: torch.Tensor, n_rows: int) -> None:
    if order.dim() and order.shape != (n_rows,):
        raise InvalidArgumentError(
            f"order must be one number or one for each of the {n_rows} steps, got shape {tuple(order.shape)}; "
            f"pass a tensor of {n_rows} orders"
        )
