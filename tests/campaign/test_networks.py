"""Random networks against the definition: outputs, objectives, and all gradients."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st

from fracdnn.nn import FractionalNetwork
from fracdnn.training import Objective, Regularization, backward
from tests.campaign import budget, network_definition, ways
from tests.campaign.stack_cases import memories
from tests.campaign.trying import assert_same, try_cases

# Torch says so on CPUs without bfloat16.
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")

TOLERANCES = {"float64": 1e-10, "float32": 3e-4, "bfloat16": 8e-2}
COMPRESSED, COMPRESSED_TWICE = 1e-8, 1e-6
# Closer to its kink than this, rounding decides on the slope of a relu.
KINK = {"float64": 1e-11, "float32": 1e-4, "bfloat16": 1e-4}


@dataclass(frozen=True)
class Case:
    """A network, its data, and its objective."""

    n_features: int = 2
    n_outputs: int = 2
    n_layers: int = 2
    width: int | None = None
    activate_input: bool = False
    activation: str = "tanh"
    bias: bool | str = True
    grid: tuple | None = None  # of a stencil
    stencil: str = "nine-point"
    residual: bool = True
    order: float | tuple = 0.5
    learn_order: bool | str = False
    steps: float | tuple = 0.2
    learn_steps: bool = False
    compress: bool | str = "auto"
    dtype: str = "float64"
    rows: tuple = (3,)  # the shape of x but for its features
    strided: bool = False
    learn_x: bool = True
    frozen: tuple = ()
    loss: str = "cross_entropy"
    smoothing: float = 0.0
    weighted: bool = False
    class_map: float = 0.0
    operator: float = 0.0
    bias_decay: float = 0.0
    decay: float = 0.0
    laplacian: str = "time"
    exponent: float = 1.0
    wrappers: tuple = ()  # of `ways`
    derivative: str = "backward"
    seed: int = 0

    @property
    def shape(self):
        return (*self.rows, self.n_features)

    layers = ()


def network_of(case):
    generator = torch.Generator().manual_seed(case.seed)
    stencil = {} if case.grid is None else {"operator": case.stencil, "grid_shape": case.grid}
    network = FractionalNetwork(
        case.n_features,
        case.n_outputs,
        n_layers=case.n_layers,
        width=case.width,
        activate_input=case.activate_input,
        activation=case.activation,
        bias=case.bias,
        residual=case.residual,
        order=case.order,
        learn_order=case.learn_order,
        step_size=case.steps,
        learn_steps=case.learn_steps,
        compress=case.compress,
        generator=generator,
        **stencil,
    ).to(getattr(torch, case.dtype))
    for name, parameter in network.named_parameters():
        if name in ("b", "input_bias"):
            torch.nn.init.normal_(parameter, 0.0, 0.3, generator=generator)
        parameter.requires_grad_(name not in case.frozen)
    return network


def data_of(case):
    generator = torch.Generator().manual_seed(case.seed + 1)
    dtype, features = getattr(torch, case.dtype), case.n_features
    x = torch.randn(*case.rows, 2 * features, dtype=torch.float64, generator=generator).to(dtype)
    x = x[..., ::2] if case.strided else x[..., :features].contiguous()
    n = case.rows[0] if case.rows else 1
    if case.loss == "cross_entropy":
        target = torch.randint(case.n_outputs, (n,), generator=generator)
    else:
        target = torch.randn(n, case.n_outputs, dtype=torch.float64, generator=generator).to(dtype)
    weight = 0.1 + torch.rand(n, dtype=torch.float64, generator=generator)
    weight[1::3] = 0.0
    return x, target, weight.to(dtype) if case.weighted else None


def wide_of(network, x, case):
    """The definition's own copies of what requires a gradient, and of the rest."""
    parameters = {name: p.detach().double().requires_grad_(p.requires_grad) for name, p in network.named_parameters()}
    return parameters, x.detach().double().requires_grad_(case.learn_x)


def gradients(value, inputs):
    if not inputs or not value.requires_grad:
        return {name: torch.zeros_like(tensor) for name, tensor in inputs.items()}
    found = torch.autograd.grad(value, list(inputs.values()), allow_unused=True)
    pairs = zip(inputs.items(), found, strict=True)
    return {name: torch.zeros_like(tensor) if each is None else each for (name, tensor), each in pairs}


def needing_gradients(x, parameters):
    return {name: tensor for name, tensor in {"x": x, **parameters}.items() if tensor.requires_grad}


def tolerance_of(case, network):
    tolerance = TOLERANCES[case.dtype]
    if network.compressed_ is True:
        tolerance = max(tolerance, COMPRESSED_TWICE if case.derivative in ways.SECOND else COMPRESSED)
    return tolerance


def assume_no_kink(case, arguments):
    if case.activation == "relu":
        assume(all(bool((a.abs() > KINK[case.dtype]).all()) for a in arguments))


def check_outputs(case):
    network, (x, _, _) = network_of(case), data_of(case)
    wide, x_wide = wide_of(network, x, case)
    arguments = []
    states = network_definition.network_states(wide, case, x_wide, arguments)
    assume_no_kink(case, arguments)
    outputs = states[-1] @ wide["W"].T
    generator = torch.Generator().manual_seed(case.seed + 2)
    cotangent = torch.randn(outputs.shape, dtype=torch.float64, generator=generator).to(x.dtype)
    expected = {"outputs": outputs, "states": torch.stack(states), "modules": outputs, "without a graph": outputs}
    expected |= gradients((outputs * cotangent).sum(), needing_gradients(x_wide, wide))

    x = x.detach().requires_grad_(case.learn_x)
    mine = network(x)
    found = {"outputs": mine, "states": network(x, trajectory=True), "modules": network.as_modules()(x)}
    found |= gradients((mine * cotangent).sum(), needing_gradients(x, dict(network.named_parameters())))
    with torch.no_grad():
        found["without a graph"] = network(x)
    assert_same(found, expected, tolerance_of(case, network), coarse=case.dtype == "bfloat16")


def check_objective(case):
    network, (x, target, weight) = network_of(case), data_of(case)
    wide, x_wide = wide_of(network, x, replace(case, learn_x=False))
    arguments = []
    outputs = network_definition.network_states(wide, case, x_wide, arguments)[-1] @ wide["W"].T
    assume_no_kink(case, arguments)
    target_wide = target if case.loss == "cross_entropy" else target.double()
    weight_wide = None if weight is None else weight.double()
    value = network_definition.data_loss(outputs, target_wide, weight_wide, case.loss, case.smoothing)
    terms = (case.class_map, case.operator, case.bias_decay, case.decay)
    value = value + network_definition.regularization(wide, *terms, case.laplacian, case.exponent)
    expected = {"value": value, **gradients(value, needing_gradients(x_wide, wide))}

    regularization = Regularization(*terms, laplacian=case.laplacian, exponent=case.exponent)
    objective = Objective(case.loss, regularization, label_smoothing=case.smoothing)
    inputs = {name: p for name, p in network.named_parameters() if p.requires_grad}
    usual = objective(network, x, target, weight)
    by_autograd = {"value": usual, **gradients(usual, inputs)}
    if inputs:
        mine, outputs_found = backward(objective, network, x, target, weight)
        found = {"value": torch.tensor(mine, dtype=torch.float64)}
        found |= {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in inputs.items()}
        assert_same(found, expected, tolerance_of(case, network))
        assert_same({"outputs": outputs_found}, {"outputs": outputs}, tolerance_of(case, network))
    assert_same(by_autograd, expected, tolerance_of(case, network))


class Definition:
    """The network by definition, as `ways` calls a module."""

    def __init__(self, case, parameters):
        self._case, self._parameters, self.arguments = case, parameters, []

    def named_parameters(self):
        return self._parameters.items()

    def __call__(self, parameters, x):
        every = {**self._parameters, **(parameters or {})}
        return network_definition.network_states(every, self._case, x, self.arguments)[-1] @ every["W"].T


def check_ways(case):
    network, (x, _, _) = network_of(case), data_of(case)
    wide, x_wide = wide_of(network, x, case)
    wanted, question = Definition(case, wide), ways.Question(trajectory=False, unseen=0, seed=case.seed)
    with torch.no_grad():
        wanted(None, x_wide)
    assume_no_kink(case, wanted.arguments)
    expected = ways.by_definition(case.derivative)(wanted, wanted, x_wide, question)
    network, x = ways.copied(network, case.wrappers), x.detach().requires_grad_(case.learn_x)
    call = ways.called(network, trajectory=False, wrappers=case.wrappers)
    found = ways.DERIVATIVES[case.derivative](call, network, x, question)
    coarse = case.dtype == "bfloat16" or "autocast" in case.wrappers
    tolerance = max(tolerance_of(case, network), TOLERANCES["bfloat16"] if coarse else 0.0)
    assert_same(found, expected, tolerance, coarse=coarse)


@st.composite
def architectures(draw):
    """Draw everything but data and objective."""
    n_layers = draw(st.integers(1, 6) | st.integers(1, 40))
    grid = draw(st.sampled_from([None, None, None, (2, 2), (1, 3), (3, 2)]))
    width = draw(st.none() | st.integers(1, 20)) if grid is None else draw(st.sampled_from([None, grid[0] * grid[1]]))
    n_features = draw(st.integers(1, 20 if width is None else 5)) if grid is None or width else grid[0] * grid[1]
    residual = draw(st.sampled_from([True, True, True, False]))
    memory = draw(memories(n_layers))[1]
    if not residual or draw(st.booleans()):
        memory |= {"learn_order": False, "learn_steps": False}
    return Case(
        n_features=n_features,
        n_outputs=draw(st.integers(1, 5)),
        n_layers=n_layers,
        width=width,
        activate_input=draw(st.booleans()) if width else False,
        activation=draw(st.sampled_from(list(network_definition.ACTIVATIONS))),
        bias=draw(st.sampled_from([True, "scalar", False])),
        grid=grid,
        stencil=draw(st.sampled_from(["nine-point", "five-point"])),
        residual=residual,
        **memory,
        strided=draw(st.booleans()),
        learn_x=draw(st.booleans()),
        frozen=tuple(draw(st.lists(st.sampled_from(["K", "psi", "b", "W", "input_weight"]), max_size=2, unique=True))),
        seed=draw(st.integers(0, 999)),
    )


@st.composite
def cases_of_outputs(draw):
    case = draw(architectures())
    rows = draw(st.sampled_from([(3,), (1,), (33,), (0,), (), (2, 3)]))
    return replace(case, rows=rows, dtype=draw(st.sampled_from(["float64", "float32", "bfloat16"])))


@st.composite
def cases_of_objectives(draw):
    case = draw(architectures())
    factors = st.sampled_from([0.0, 0.01, 0.3, 2.0])
    matrix = case.grid is None and (case.width or case.n_features) <= 6
    return replace(
        case,
        rows=(draw(st.integers(1, 70)),),
        dtype=draw(st.sampled_from(["float64", "float32"])),
        # The entropy of a single class is 0, and rounding all there is.
        loss=draw(st.sampled_from(["cross_entropy"] * (case.n_outputs > 1) + ["squared_error"])),
        smoothing=draw(st.sampled_from([0.0, 0.1, 0.5])),
        weighted=draw(st.booleans()),
        class_map=draw(factors),
        operator=draw(factors),
        bias_decay=draw(factors),
        decay=draw(factors),
        laplacian=draw(st.sampled_from(["time", "matrix"])) if matrix else "time",
        exponent=draw(st.sampled_from([1.0, 0.4, 0.7, 2.0])),
    )


@pytest.mark.parametrize("part", range(budget.cases(1, 4)))
def test_outputs(part):
    try_cases(f"networks, outputs {part}", cases_of_outputs(), check_outputs, budget.cases(5, 1000))


@st.composite
def cases_of_ways(draw):
    case = replace(
        draw(architectures()),
        rows=draw(st.sampled_from([(3,), (1,), (9,), (0,), (), (2, 2)])),
        dtype=draw(st.sampled_from(["float64", "float64", "float32"])),
        wrappers=tuple(draw(st.permutations(ways.WRAPPERS))[: draw(st.integers(0, 2))]),
        derivative=draw(st.sampled_from(list(ways.DERIVATIVES))),
    )
    case = ways.made_possible(case)
    if case.derivative in ("jacrev", "jacfwd") and case.n_layers * (case.width or case.n_features) ** 2 > 200:
        case = replace(case, derivative="vjp")
    return case


@pytest.mark.parametrize("part", range(budget.cases(1, 4)))
def test_ways_to_call_and_to_differentiate(part):
    try_cases(f"networks, ways {part}", cases_of_ways(), check_ways, budget.cases(4, 800))


@pytest.mark.parametrize("part", range(budget.cases(1, 4)))
def test_objectives(part):
    try_cases(f"networks, objectives {part}", cases_of_objectives(), check_objective, budget.cases(5, 1000))
