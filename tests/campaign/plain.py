"""Training of the paper's network in plain NumPy, float64, from the formulas; nothing of the library.

Samples are rows. A network is a dict of K [N, width, width], b [N, width] and W [n_outputs, width].
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np


@dataclass(frozen=True)
class Problem:
    """Data and objective; `target` holds classes for the loss "cross_entropy" and values for "squared_error"."""

    x: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    order: float
    step_size: float
    loss: str
    smoothing: float
    class_map: float
    operator: float
    bias: float
    decay: float
    rounding: float = 0.0  # a relative error of tanh, to see what its rounding does

    def part(self, rows):
        return replace(self, x=self.x[rows], target=self.target[rows], weight=self.weight[rows])


def memory_weights(order, n):
    """a_0 … a_{n−1}, a_m = (m+1)^(1−order) − m^(1−order), a_0 = 1."""
    return np.array([1.0] + [(m + 1) ** (1 - order) - m ** (1 - order) for m in range(1, n)])


def forward(network, problem):
    """Y_0 … Y_N: Y_j = Y_{j−1} − Σ_{k=1}^{j−1} a_{j−k} (Y_k − Y_{k−1}) + c f_{j−1}(Y_{j−1})."""
    K, b = network["K"], network["b"]
    a, c = memory_weights(problem.order, len(K) + 1), step_factor(problem)
    Y = [problem.x]
    for j in range(1, len(K) + 1):
        remembered = sum(a[j - k] * (Y[k] - Y[k - 1]) for k in range(1, j))
        Y.append(Y[j - 1] - remembered + c * tanh(Y[j - 1] @ K[j - 1].T + b[j - 1], problem))
    return Y


def tanh(argument, problem):
    return (1 - problem.rounding) * np.tanh(argument)


def step_factor(problem):
    return problem.step_size**problem.order * math.gamma(2 - problem.order)


def loss_and_cotangent(outputs, problem):
    """The mean loss by weight, and its gradient for the outputs."""
    share = (problem.weight / problem.weight.sum())[:, None]
    n_outputs = outputs.shape[1]
    if problem.loss == "squared_error":
        error = outputs - problem.target
        return float((share * error**2).sum() / (2 * n_outputs)), share * error / n_outputs
    labels = (1 - problem.smoothing) * np.eye(n_outputs)[problem.target] + problem.smoothing / n_outputs
    shifted = outputs - outputs.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-(share * labels * logs).sum()), share * (np.exp(logs) - labels)


def objective(network, problem):
    """The objective and its gradient, by the exact discrete adjoint."""
    K, b, W = network["K"], network["b"], network["W"]
    N, a, c = len(K), memory_weights(problem.order, len(K) + 1), step_factor(problem)
    Y = forward(network, problem)
    value, cotangent = loss_and_cotangent(Y[N] @ W.T, problem)
    Q = {N: -cotangent @ W}
    back = {}  # σ′(K_j Y_j + b_j) · Q_{j+1}
    for j in reversed(range(N)):
        back[j] = (1 - tanh(Y[j] @ K[j].T + b[j], problem) ** 2) * Q[j + 1]
        Q[j] = Q[j + 1] - a[N - j] * Q[N] + c * back[j] @ K[j]
        Q[j] = Q[j] + sum(a[k - j] * (Q[k + 1] - Q[k]) for k in range(j + 1, N))
    gradient = {
        "K": np.stack([-c * back[j].T @ Y[j] for j in range(N)]),
        "b": np.stack([-c * back[j].sum(0) for j in range(N)]),
        "W": cotangent.T @ Y[N],
    }
    return add_regularization(value, gradient, network, problem)


def add_regularization(value, gradient, network, problem):
    """ξ_W/2 ‖W‖² + ξ_K/(2N) ‖−Δ K‖² + ξ_b/(2N) ‖b‖² + ξ/2 ‖K‖², −Δ over the layers with reflecting ends."""
    K, b, W = network["K"], network["b"], network["W"]
    N = len(K)
    image, twice = minus_laplacian(K), minus_laplacian(minus_laplacian(K))
    value += problem.class_map / 2 * (W**2).sum() + problem.operator / (2 * N) * (image**2).sum()
    value += problem.bias / (2 * N) * (b**2).sum() + problem.decay / 2 * (K**2).sum()
    return float(value), {
        "K": gradient["K"] + problem.operator / N * twice + problem.decay * K,
        "b": gradient["b"] + problem.bias / N * b,
        "W": gradient["W"] + problem.class_map * W,
    }


def minus_laplacian(K):
    before, after = np.concatenate([K[:1], K[:-1]]), np.concatenate([K[1:], K[-1:]])
    return 2 * K - before - after


NAMES = ("K", "b", "W")


def flat(network):
    return np.concatenate([network[name].ravel() for name in NAMES])


def unflat(x, like):
    ends = np.cumsum([like[name].size for name in NAMES])
    parts = np.split(x, ends[:-1])
    return {name: part.reshape(like[name].shape) for name, part in zip(NAMES, parts, strict=True)}


@dataclass
class Walk:
    """The points that were accepted, how many trials each took, and why it ended."""

    points: list = field(default_factory=list)
    trials: list = field(default_factory=list)
    status: str = ""


def minimise(f, x, method, max_iter, tolerance=1e-6, by_products=False):
    """A direction times Armijo's rule; `f` gives a value and a gradient; see `direction` for `by_products`."""
    walk, pairs, last = Walk(), [], None
    value, g = f(x)
    for _ in range(max_iter):
        if np.linalg.norm(g) <= tolerance:
            break
        trials, found = 0, None
        while found is None:
            d = direction(method, g, pairs, by_products)
            fresh = not pairs
            if fresh or g @ d < 0:
                first = (2 * last if last else 1.0) if method == "steepest" else first_length(g, fresh)
                found, tried = armijo(lambda t, d=d, x=x: f(x + t * d), value, g @ d, first)
                trials += tried
            if found is None and fresh:
                walk.status = "line search failed"
                return walk
            if found is None:
                pairs = []  # once more, along steepest descent
        last, new_value, new_g = found
        s, y = last * d, new_g - g
        if method != "steepest" and s @ y > 1e-10 * np.linalg.norm(s) * np.linalg.norm(y):
            pairs = [*pairs, (s, y)] if method == "bfgs" else [*pairs, (s, y)][-10:]
        x, value, g = x + last * d, new_value, new_g
        walk.points.append(x)
        walk.trials.append(trials)
    walk.status = "converged" if np.linalg.norm(g) <= tolerance else "iteration limit"
    return walk


def direction(method, g, pairs, by_products=False):
    """−H g; H of BFGS starts from sᵀs/sᵀy of the first step, H of L-BFGS from sᵀy/yᵀy of the last of ten.

    As a matrix, or by the same products with vectors alone: other roundings.
    """
    if not pairs:
        return -g
    if by_products:
        return -product(method, g, pairs)
    s, y = pairs[0] if method == "bfgs" else pairs[-1]
    H = np.eye(len(g)) * ((s @ s) / (s @ y) if method == "bfgs" else (s @ y) / (y @ y))
    for s, y in pairs:
        E = np.eye(len(g)) - np.outer(s, y) / (s @ y)
        H = E @ H @ E.T + np.outer(s, s) / (s @ y)
    return -H @ g


def product(method, g, pairs):
    """H g = Eᵀ-fold inward, H₀, outward again."""
    s, y = pairs[0] if method == "bfgs" else pairs[-1]
    inner, shares = g, []
    for s_k, y_k in reversed(pairs):
        shares.append((s_k @ inner) / (s_k @ y_k))
        inner = inner - shares[-1] * y_k
    outer = inner * ((s @ s) / (s @ y) if method == "bfgs" else (s @ y) / (y @ y))
    for (s_k, y_k), share in zip(pairs, reversed(shares), strict=True):
        outer = outer + (share - (y_k @ outer) / (s_k @ y_k)) * s_k
    return outer


def first_length(g, fresh):
    return min(1.0, 1.0 / np.abs(g).sum()) if fresh else 1.0


def armijo(f, start, slope, length):
    """The length, the value and the gradient that decrease enough, and how many were tried; None where there is none.

    The next length minimises a quadratic, from the third trial on a cubic, between a tenth and half of the last.
    """
    before = None
    for trial in range(1, 21):
        value, gradient = f(length)
        if value < start and value <= start + 1e-4 * length * slope:
            return (length, value, gradient), trial
        guess = interpolated(start, slope, (length, value), before)
        before = (length, value)
        length = min(max(guess, 0.1 * length), 0.5 * length)
    return None, 20


def interpolated(start, slope, last, before):
    """The minimiser of start + slope t + β t², or of start + slope t + β t² + α t³ through two trials."""
    t, value = last
    quadratic = -slope / (2 * (value - start - slope * t) / t**2)
    if before is None:
        return quadratic
    powers = np.array([[t**2, t**3], [before[0] ** 2, before[0] ** 3]])
    beta, alpha = np.linalg.solve(powers, [v - start - slope * u for u, v in (last, before)])
    discriminant = beta**2 - 3 * alpha * slope
    if discriminant < 0 or (alpha == 0 and beta <= 0):
        return quadratic
    root = math.sqrt(discriminant)
    return -slope / (beta + root) if beta > 0 else (root - beta) / (3 * alpha)


def adam(gradient_of, x, batches, learning_rate):
    """Adam over batches of rows, the learning rate falling linearly to 0; the points after each of them."""
    m, v, points = np.zeros_like(x), np.zeros_like(x), []
    for step, rows in enumerate(batches):
        g = gradient_of(x, rows)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        mean, square = m / (1 - 0.9 ** (step + 1)), v / (1 - 0.999 ** (step + 1))
        x = x - learning_rate * (1 - step / len(batches)) * mean / (np.sqrt(square) + 1e-8)
        points.append(x)
    return points
