"""Against which residual network a fractional one is held.

At a fixed step size τ the order also sets the factor c = τ^order Γ(2−order) of a step, and the horizon
T^order / Γ(1+order), T = Nτ: what a constant right-hand side of 1 adds from the first layer to the last in the limit of
small steps. Where the residual network has the same c, or the same horizon, only the memory differs.
"""

import math
from collections.abc import Sequence

ARMS = {"step": "same τ", "factor": "same c", "horizon": "same horizon"}
TUNED = "tuned"
STEP_SIZES = (0.05, 0.2, 0.8)


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


Arm = dict[str, str | float]


def networks(orders: Sequence[float], step_size: float, n_layers: int) -> list[Arm]:
    """What is run: order 1, and for each other order its network and the residual ones that share c or the horizon."""
    found = [_arm(name_of(1.0), 1.0, step_size)]
    for order in orders:
        found.append(_arm(name_of(order), order, step_size))
        for arm in ("factor", "horizon"):
            found.append(_arm(rival_of(order, arm), 1.0, residual_step(arm, order, step_size, n_layers)))
    return found


def grid(orders: Sequence[float], step_size: float, step_sizes: Sequence[float]) -> list[Arm]:
    """The same budget for each order: its network with every other step size; `step_size` itself runs anyway."""
    return [
        _arm(f"{name_of(order)}, τ = {step:g}", order, step)
        for order in (1.0, *orders)
        for step in step_sizes
        if step != step_size
    ]


def name_of(order: float) -> str:
    return f"order {order:g}"


def rival_of(order: float, arm: str) -> str:
    """The name of the residual network that an order is held against."""
    return name_of(1.0) if arm == "step" else f"order 1, {ARMS[arm]} as {order:g}"


def is_tried(network: str, order: float) -> bool:
    """Whether a network is one of those from which the tuned one of an order is taken."""
    return network == name_of(order) or network.startswith(f"{name_of(order)}, τ = ")


def _arm(name: str, order: float, step_size: float) -> Arm:
    return {"network": name, "order": order, "step_size": step_size}
