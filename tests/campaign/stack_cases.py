"""Random stacks as plain values: what is built, and what is asked of it."""

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.campaign import ways
from tests.campaign.layers import LAYERS, WITH_HOOKS_ON_GRADIENTS

ORDERS = st.one_of(st.sampled_from([0.5, 0.02, 0.9, 1e-4, 0.999999]), st.integers(20, 999).map(lambda n: n / 1000))
SHAPES = [(2, 3), (1, 1), (3,), (0, 2), (1, 4), (2, 3, 2)]
# From 16 layers on, enough numbers for compiled sums.
LARGE = (64, 33)


@dataclass(frozen=True)
class Case:
    """A stack, its input, and what is asked of it. A layer is a kind, or the place of an earlier one that it shares."""

    layers: tuple = ("dense",)
    order: float | tuple = 0.5
    learn_order: bool | str = False
    steps: float | tuple = 0.2
    learn_steps: bool = False
    compress: bool | str = "auto"
    dtype: str = "float64"
    shape: tuple = (2, 3)
    strided: bool = False
    learn_x: bool = True
    frozen: tuple = ()  # places of layers
    appended: int = 0  # so many of the layers, after the stack was made
    part: tuple = (None, None)  # the slice of it that is run
    trajectory: bool = False
    unseen: int = 0  # so many states at the trajectory's end have no part in the loss
    wrappers: tuple = ()
    derivative: str = "backward"
    seed: int = 0


@st.composite
def memories(draw, n):
    """Whether there are values for single layers; and order, steps, what of them is learned, and the history's sum."""
    step, learn_order = draw(st.sampled_from([0.3, 1.0, 4.0])) / n, draw(st.booleans())
    order = draw(ORDERS if learn_order else ORDERS | st.just(1.0))
    if draw(st.booleans()):
        history = draw(st.sampled_from(["auto", False, True]))
        return False, {"order": order, "steps": step, "learn_order": learn_order, "compress": history}
    orders = draw(st.lists(ORDERS, max_size=3))
    factors = draw(st.lists(st.sampled_from([1.0, 0.1, 0.5, 3.0]), max_size=5))
    return True, {
        "order": tuple(orders[j % len(orders)] for j in range(n)) if orders else order,
        "steps": tuple(round(step * factors[j % len(factors)], 6) for j in range(n)) if factors else step,
        "learn_order": learn_order and (True if not orders and draw(st.booleans()) else "layer"),
        "learn_steps": draw(st.booleans()),
        "compress": draw(st.sampled_from(["auto", False])),
    }


@st.composite
def layer_kinds(draw, n, kinds):
    """A few kinds that repeat; some layers stand in several places."""
    period = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=min(n, 5)))
    layers = [period[j % len(period)] for j in range(n)]
    for j in draw(st.lists(st.integers(1, max(1, n - 1)), max_size=3)) if n > 1 else []:
        layers[j] = draw(st.sampled_from([k for k in range(j) if isinstance(layers[k], str)]))
    return tuple(layers)


@st.composite
def cases(
    draw,
    *,
    derivatives,
    depth=80,
    kinds=(*LAYERS, *WITH_HOOKS_ON_GRADIENTS),
    wrappers=tuple(ways.WRAPPERS),
    n_wrappers=(0, 0),
):
    dtype = draw(st.sampled_from(["float64", "float64", "float32", "bfloat16"]))
    n = draw(st.integers(1, 6) | st.integers(1, depth if dtype != "bfloat16" else 20))
    by_layer, memory = draw(memories(n))
    # Values for single layers are those of the stack as it was made.
    appended = 0 if by_layer else draw(st.integers(0, n - 1))
    part = draw(st.sampled_from([(None, None), (0, (n + 1) // 2), (n // 2, n), (None, None, 2), (None, None, -1)]))
    trajectory = draw(st.booleans())
    case = Case(
        layers=draw(layer_kinds(n, kinds)),
        **memory,
        dtype=dtype,
        shape=draw(st.sampled_from([*SHAPES, LARGE] if n >= 16 else SHAPES)),
        strided=draw(st.booleans()),
        learn_x=draw(st.booleans()),
        frozen=tuple(draw(st.lists(st.integers(0, n - 1), max_size=3, unique=True))),
        appended=appended,
        part=part,
        trajectory=trajectory,
        unseen=draw(st.integers(0, len(range(n)[slice(*part)]))) if trajectory else 0,
        wrappers=tuple(draw(st.permutations(wrappers))[: draw(st.integers(*n_wrappers))]),
        derivative=draw(st.sampled_from(derivatives)),
        seed=draw(st.integers(0, 999)),
    )
    return ways.made_possible(case)
