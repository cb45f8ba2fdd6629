"""Random equations solved by `fdeint` against the definition of the scheme, with all derivatives."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import strategies as st
from torch.autograd import forward_ad
from torch.func import jvp, vjp, vmap

from fracdnn.solver import fdeint
from tests.campaign import budget, definition
from tests.campaign.stack_cases import ORDERS
from tests.campaign.trying import assert_same, try_cases
from tests.solver.calls import grouped

TOLERANCES = {"float64": 1e-10, "float32": 2e-4}
COMPRESSED = 1e-8


@dataclass(frozen=True)
class Case:
    """An equation d_t^order u = func(t, u), its grid, and how derivatives are asked for."""

    func: str = "decay"
    order: float = 0.5
    grid: str = "uniform"
    n_steps: int = 4
    horizon: float = 1.0
    start: float = 0.0
    times: str = "float64"
    dtype: str = "float64"
    shape: tuple = (2,)
    compress: bool | str = "auto"
    trajectory: bool = True
    by: tuple = ("y0", "order", "t", "parameter")  # what derivatives are taken by
    mode: str = "backward"
    seed: int = 0


def times(number, t):
    """A product in the dtype of t: of 3.0 * t, t a single number in float32, torch's jvp gives a tangent in float64."""
    return t.new_full((), number) * t


# Of t, u and a parameter; times keep their own dtype until they have become small numbers.
FUNCS = {
    "decay": lambda t, u, a: -a * u,
    "forced": lambda t, u, a: torch.sin(times(3.0, t)).to(u.dtype) - a * u,
    "nonlinear": lambda t, u, a: torch.tanh(a * u) - 0.5 * u * torch.cos(t).to(u.dtype),
    "coupled": lambda t, u, a: torch.cos(a * u.sum() / max(1, u.numel()) + 0.2 * u),
    "of time alone": lambda t, u, a: (a * torch.cos(times(2.0, t)).to(u.dtype)).expand(u.shape),
}


def solve(func, y0, t, order, case):
    """The one call of the solver."""
    way = {"method": "l1", "grid": "given", "compress": case.compress}
    return fdeint(func, y0, t, order=order, trajectory=case.trajectory, **grouped(**way))


def grid_of(case):
    """The times, float64; those of another dtype are rounded to it."""
    n = case.n_steps
    even = torch.linspace(0.0, 1.0, n + 1, dtype=torch.float64)
    generator = torch.Generator().manual_seed(case.seed)
    if case.grid == "graded":
        even = even**2.5
    elif case.grid == "nearly uniform":  # beyond rounding, and far below a step
        even[1:-1] += 1e-5 / n * (0.5 + torch.rand(n - 1, dtype=torch.float64, generator=generator))
    elif case.grid == "random":
        steps = 0.1 + torch.rand(n, dtype=torch.float64, generator=generator)
        even = definition.times_of(steps / steps.sum())
    return (case.start + case.horizon * even).to(getattr(torch, case.times))


def inputs_of(case):
    """y0, order, t and the parameter of func."""
    dtype = getattr(torch, case.dtype)
    y0 = torch.randn(case.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(case.seed + 1)).to(dtype)
    order = torch.tensor(case.order, dtype=torch.float64)
    return {"y0": y0, "order": order, "t": grid_of(case), "parameter": torch.tensor(0.7, dtype=dtype)}


def solution(case, y0, order, t, parameter):
    return solve(lambda s, u: FUNCS[case.func](s, u, parameter), y0, t, order, case)


def equal_steps(case):
    """Whether the grid counts as one of equal steps: up to rounding of its times, where none is learned or traced."""
    even = case.grid == "uniform" or (case.grid == "nearly uniform" and case.times == "float32")
    return even and "t" not in case.by and case.mode in ("backward", "dual numbers")


def solution_by_definition(case, y0, order, t, parameter):
    steps = (t[-1] - t[0]).expand(case.n_steps) / case.n_steps
    grid = definition.times_of(steps) if equal_steps(case) else t
    states = definition.states(lambda j, u: FUNCS[case.func](t[j], u, parameter), y0, order, grid)
    return torch.stack(states) if case.trajectory else states[-1]


def derivatives(solution, case, inputs):
    """The solution and its derivatives: all of a weighted sum, or one along a random direction."""
    taken = {name: inputs[name] for name in case.by}
    rest = {name: value for name, value in inputs.items() if name not in taken}

    def random(like, number):
        generator = torch.Generator().manual_seed(100 * case.seed + number)
        return torch.randn(like.shape, dtype=torch.float64, generator=generator).to(like.dtype)

    if case.mode in ("backward", "func"):
        return _reverse(solution, case, taken, rest, random)
    # Directions in t that keep it increasing are not needed: a tangent moves nothing.
    along = {name: random(value, k) for k, (name, value) in enumerate(taken.items())}
    if "t" in along:
        along["t"] = along["t"] * unit_of(taken["t"])
    if case.mode == "jvp":
        y, tangent = jvp(lambda given: solution(case, **given, **rest), (taken,), (along,))
    else:
        with forward_ad.dual_level():
            dual = {name: forward_ad.make_dual(value, along[name]) for name, value in taken.items()}
            y, tangent = forward_ad.unpack_dual(solution(case, **dual, **rest))
    return {"y": y, "tangent": torch.zeros_like(y) if tangent is None else tangent}


def unit_of(times):
    """The shorter of the steps next to a time: rounding of a slope by times grows as these shrink."""
    steps = times.diff()
    return torch.minimum(torch.cat([steps[:1], steps]), torch.cat([steps, steps[-1:]]))


def _reverse(solution, case, taken, rest, random):
    if case.mode == "func":
        y, back = vjp(lambda given: solution(case, **given, **rest), taken)
        return {"y": y, **back(random(y, 9))[0]}
    taken = {name: value.detach().clone().requires_grad_() for name, value in taken.items()}
    y = solution(case, **taken, **rest)
    if not taken:
        return {"y": y}
    found = torch.autograd.grad(
        (random(y, 9) * y).sum(), list(taken.values()), allow_unused=True, materialize_grads=True
    )
    return {"y": y, **dict(zip(taken, found, strict=True))}


def check(case):
    inputs = inputs_of(case)
    wide = {name: value.double() for name, value in inputs.items()}
    expected = derivatives(solution_by_definition, case, wide)
    found = derivatives(solution, case, inputs)
    assert found["y"].dtype == inputs["y0"].dtype
    if "t" in found:
        found["t"], expected["t"] = (unit_of(wide["t"]) * each["t"] for each in (found, expected))
    tolerance = TOLERANCES["float32" if "float32" in (case.dtype, case.times) else "float64"]
    tolerance = tolerance if case.compress is False else max(tolerance, COMPRESSED)
    assert_same(found, expected, tolerance, together=tolerance > COMPRESSED)


def check_ensemble(case):
    """Solutions from several starts at once, by vmap, are those one after the other."""
    inputs = inputs_of(case)
    starts = torch.stack([inputs["y0"], 2.0 * inputs["y0"], -inputs["y0"]])
    rest = {name: inputs[name] for name in ("order", "t", "parameter")}
    found = vmap(lambda y0: solution(case, y0, **rest))(starts)
    wide = {name: value.double() for name, value in rest.items()}
    expected = torch.stack([solution_by_definition(case, y0.double(), **wide) for y0 in starts])
    assert_same({"y": found}, {"y": expected}, TOLERANCES["float32" if case.times == "float32" else case.dtype])


@st.composite
def cases(draw, modes):
    grid = draw(st.sampled_from(["uniform", "nearly uniform", "graded", "random"]))
    n_steps = draw(st.integers(1, 12) | st.integers(1, 100) | st.integers(100, 300))
    times = draw(st.sampled_from(["float64", "float64", "float32"]))
    starts = [0.0, -1.0, 0.5, 100.0, 1e6]
    if times == "float32":  # which has no room for a graded mesh but at 0
        starts = starts[:1] if grid == "graded" else starts[:4]
    start = draw(st.sampled_from(starts))
    by = tuple(draw(st.lists(st.sampled_from(["y0", "order", "t", "parameter"]), unique=True, min_size=1)))
    history = ["auto", False]
    if grid == "uniform" and "t" not in by and modes == ("backward",):
        history.append(True)
    func = draw(st.sampled_from(list(FUNCS)))
    precise = grid == "graded" and "t" in by  # derivatives by times divide rounding by the steps
    # Of 0.2 * u, u a single number in float32, torch's jvp gives a tangent in float64.
    precise |= func == "of time alone" and "t" in by and modes != ("backward",)
    dtype = draw(st.sampled_from(["float64"] if precise else ["float64", "float32"]))
    shapes = [(2,), (1, 3), (0,)] + ([()] if dtype == "float64" else [])
    return Case(
        func=func,
        order=draw(ORDERS | st.just(1.0)),
        grid=grid,
        n_steps=n_steps,
        # Late times have no room for short steps.
        horizon=draw(st.sampled_from([1.0, 3.0] if start >= 100.0 else [1.0, 0.01, 3.0])),
        start=start,
        times=times,
        dtype=dtype,
        shape=draw(st.sampled_from(shapes)),
        compress=draw(st.sampled_from(history)),
        trajectory=draw(st.booleans()),
        by=by,
        mode=draw(st.sampled_from(modes)),
        seed=draw(st.integers(0, 999)),
    )


@pytest.mark.parametrize("part", range(budget.cases(1, 4)))
def test_gradients(part):
    try_cases(f"solves, gradients {part}", cases(("backward",)), check, budget.cases(4, 1000))


@pytest.mark.parametrize("part", range(budget.cases(1, 4)))
def test_transformations(part):
    strategy = cases(("func", "jvp", "dual numbers"))
    try_cases(f"solves, transformations {part}", strategy, check, budget.cases(3, 500))


@pytest.mark.parametrize("part", range(budget.cases(1, 2)))
def test_ensembles(part):
    try_cases(f"solves, ensembles {part}", cases(("vmap",)), check_ensemble, budget.cases(2, 300))
