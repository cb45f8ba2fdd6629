"""Against which residual network a fractional one is held.

At a fixed step size τ the order also sets the factor c = τ^order Γ(2−order) of a step, and the horizon
T^order / Γ(1+order), T = Nτ: what a constant right-hand side of 1 adds from the first layer to the last in the limit of
small steps. Where the residual network has the same c, or the same horizon, only the memory differs.
"""

import math
from collections.abc import Callable, Sequence

ARMS = {"step": "same τ", "factor": "same c", "horizon": "same horizon"}
TUNED = "tuned"
STEP_SIZES = (0.05, 0.1, 0.2, 0.4, 0.8)


def step_factor(order: float, step_size: float) -> float:
    return step_size**order * math.gamma(2 - order)


def horizon(order: float, final_time: float) -> float:
    return final_time**order / math.gamma(1 + order)


def residual_step(arm: str, order: float, step_size: float, n_layers: int) -> float:
    """The step of a residual network that shares `arm` with the network of `order` and `step_size`."""
    if arm == "step":
        return step_size
    if arm == "factor":
        return step_factor(order, step_size)
    return horizon(order, n_layers * step_size) / n_layers


def networks(orders: Sequence[float], step_size: float, n_layers: int) -> list[tuple[str, float, float]]:
    """Name, order and step of what is run: "order 0.5", its residual rivals "1, same c as 0.5" …, and "order 1" once."""
    found = [("order 1", 1.0, step_size)]
    for order in orders:
        found.append((name_of(order), order, step_size))
        for arm in ("factor", "horizon"):
            found.append((rival_of(order, arm), 1.0, residual_step(arm, order, step_size, n_layers)))
    return found


def name_of(order: float) -> str:
    return f"order {order:g}"


def rival_of(order: float, arm: str) -> str:
    """The name of the residual network that an order is held against."""
    return "order 1" if arm == "step" else f"order 1, {ARMS[arm]} as {order:g}"


def tuned(runs: Sequence[dict], score: Callable[[dict], float]) -> dict:
    """Of one order's runs with several step sizes the one that is best on held-out data; of equals the first."""
    return max(runs, key=score)
