"""The ways to make the nodes of an explicit method, held to the definition in values and gradients."""

import pytest
import torch

from fracdnn import fdeint
from fracdnn.solver.explicit import MOST_ROWS
from tests.slow import each_once, slow_but
from tests.solver.calls import grouped
from tests.solver.ways import by_definition, gradients, graph_of

FLOAT64 = torch.float64
# With and without corrections, and of each shape of weights: two sums, one continued, one alone.
METHODS = [("pece", 1), ("pece", 3), ("adams", 1), ("adams", 2), ("euler", 1), ("l1", 1)]
CHAIN, PLAIN, MARCH = "a chain", "a chain without memory", "the definition"
# Nodes of the graph that tell the ways apart: rows of a chain, and the definition's sums over blocks.
ROW, SUM = "_StepBackward", "BmmBackward0"


def number(value, dtype=FLOAT64):
    return torch.tensor(value, dtype=dtype, requires_grad=True)


class Model:
    """A field with parameters, on one state or a tuple of two."""

    def __init__(self, shape=(3, 4), dtype=FLOAT64, *, two=False):
        generator = torch.Generator().manual_seed(1)
        self.y0 = torch.randn(shape, dtype=dtype, generator=generator).requires_grad_()
        self.z0 = torch.randn(2, dtype=dtype, generator=generator).requires_grad_()
        self.slope = torch.randn(shape, dtype=dtype, generator=generator).requires_grad_()
        self.rate = number(0.7, dtype)
        self.two = two
        self.inputs = [self.y0, self.rate, *([self.z0] if two else [])]

    @property
    def start(self):
        return (self.y0, self.z0) if self.two else self.y0

    def field(self, t, y):
        t = t.to(self.rate.dtype)
        if not self.two:
            return torch.sin(self.rate * y.flip(-1)) + t
        return torch.sin(self.rate * y[0]) + t * y[1].sum(), y[0].reshape(-1)[:2] - self.rate * y[1]


def engine_of(method, order):
    """Return the engine of one order: at order 1 the rectangle rule needs no memory."""
    return PLAIN if method in ("euler", "l1") and order == 1.0 else CHAIN


def held_to_definition(model, t, inputs, tolerance, *, engine=CHAIN, **way):
    """Values and gradients of both ways; which quick one it was must show in its graph."""
    start = way.pop("start", model.start)
    checkpoint = way.pop("checkpoint", False)
    fast = fdeint(model.field, start, t, **grouped(checkpoint=checkpoint, **way))
    plain = by_definition(model.field, start, t, **way)
    parts = [(fast, plain)] if isinstance(fast, torch.Tensor) else list(zip(fast, plain, strict=True))
    names, of_definition = map(graph_of, parts[0])
    assert ROW not in of_definition
    assert (ROW in names) == (engine == CHAIN)
    assert engine != PLAIN or SUM in of_definition - names
    for got, expected in parts:
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
    for got, expected in zip(gradients(fast, inputs), gradients(plain, inputs), strict=True):
        assert bool(expected.abs().max() > 1e-6)
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))


@pytest.mark.parametrize(("scheme", "n"), each_once(METHODS, [1, 2, 7, 8, 9, 63, 64, 65, 300]))
def test_on_equal_steps(scheme, n):
    method, corrections = scheme
    model, order = Model(), number(0.6)
    way = {"order": order, "method": method, "corrections": corrections, "n_steps": n}
    engine = MARCH if n * (1 + corrections) > MOST_ROWS else CHAIN
    held_to_definition(model, [0.0, 1.2], [*model.inputs, order], 1e-10, engine=engine, **way)


@pytest.mark.parametrize(("scheme", "trajectory"), each_once(METHODS, [True, False]))
def test_between_nodes_of_a_graded_grid(scheme, trajectory):
    method, corrections = scheme
    model, order = Model(), number(0.4)
    way = {"order": order, "method": method, "corrections": corrections, "trajectory": trajectory}
    t = [0.0, 0.21, 0.22, 0.9, 1.3]
    held_to_definition(model, t, [*model.inputs, order], 1e-10, n_steps=83, grid="graded", power=2.0, **way)


@pytest.mark.parametrize(("scheme", "order"), each_once(METHODS, [0.7, 1.0]))
def test_times_that_are_learned(scheme, order):
    method, corrections = scheme
    steps = torch.rand(73, dtype=FLOAT64, generator=torch.Generator().manual_seed(2)) + 0.2
    t = (steps.cumsum(0) / 40).requires_grad_()
    model = Model()
    way = {"order": order, "method": method, "corrections": corrections, "grid": "given"}
    engine = engine_of(method, order)
    held_to_definition(model, t, [*model.inputs, t], 1e-10, engine=engine, **way)


@pytest.mark.parametrize(("method", "corrections"), slow_but([("pece", 3), ("adams", 1), ("euler", 1)], METHODS))
def test_orders_of_components_and_of_tuples(method, corrections):
    way = {"method": method, "corrections": corrections, "n_steps": 71}
    model, orders = Model(), torch.tensor([0.3, 0.5, 0.9, 1.0], dtype=FLOAT64, requires_grad=True)
    held_to_definition(model, [0.0, 1.2], [*model.inputs, orders], 1e-10, engine=MARCH, order=orders, **way)
    model, each = Model((4,), two=True), (number(0.4), number(0.8))
    held_to_definition(model, [0.0, 1.2], [*model.inputs, *each], 1e-10, engine=MARCH, order=each, **way)
    one = number(0.6)
    held_to_definition(model, [0.0, 1.2], [*model.inputs, one], 1e-10, order=one, **way)


@pytest.mark.parametrize(("method", "corrections"), [each for each in METHODS if each[0] != "l1"])
def test_above_order_one(method, corrections):
    model, order = Model(()), number(1.4)
    model.field = lambda t, y: torch.sin(model.rate * y) + t
    way = {"order": order, "method": method, "corrections": corrections, "n_steps": 130}
    inputs = [*model.inputs, model.slope, order]
    held_to_definition(model, [0.0, 1.2], inputs, 1e-10, engine=MARCH, start=(model.y0, model.slope), **way)


@pytest.mark.parametrize(("scheme", "order"), each_once(METHODS, [0.5, 1.0]))
def test_in_single_precision(scheme, order):
    method, corrections = scheme
    model = Model(dtype=torch.float32)
    way = {"order": order, "method": method, "corrections": corrections, "n_steps": 140}
    engine = engine_of(method, order)
    held_to_definition(model, [0.0, 0.4, 1.2], model.inputs, 2e-5, engine=engine, **way)


@pytest.mark.parametrize(("scheme", "two"), each_once(METHODS, [False, True]))
def test_at_order_one(scheme, two):
    method, corrections = scheme
    model = Model((4,), two=two)
    way = {"order": 1.0, "method": method, "corrections": corrections}
    t = [0.0, 0.21, 0.22, 0.9, 1.3]
    engine = engine_of(method, 1.0)
    held_to_definition(model, t, model.inputs, 1e-11, engine=engine, n_steps=150, **way)
    held_to_definition(model, t, model.inputs, 1e-11, engine=engine, n_steps=90, grid="graded", power=1.5, **way)


@pytest.mark.parametrize("method", ["pece", "adams", "euler"])
def test_whatever_func_depends_on(method):
    """Slopes without the state, without parameters now and then, and without any graph for a while."""
    model = Model()

    def field(t, y):
        if t < 0.3:
            return torch.cos(t) + torch.zeros_like(y).detach()
        if t < 0.6:
            return model.rate * torch.ones_like(y).detach()
        return torch.sin(model.rate * y) if t < 0.9 else y.detach() + model.rate

    model.field = field
    held_to_definition(model, [0.0, 1.0], model.inputs, 1e-11, order=0.5, method=method, n_steps=101)


def test_a_state_that_func_lets_out_has_its_gradient():
    """A loss of what func saw in the middle of a block, guesses among it."""
    model = Model()
    seen = {}

    def losses(solve):
        seen.clear()

        def field(t, y):
            seen.setdefault(round(float(t), 6), []).append(y)
            return torch.sin(model.rate * y)

        solve(field, model.y0, [0.0, 1.0], order=0.5, method="pece", n_steps=100)
        return sum((y**2).sum() for y in seen[0.71])

    fast, plain = (torch.autograd.grad(losses(solve), model.inputs) for solve in (fdeint, by_definition))
    assert len(seen[0.71]) == 2
    for got, expected in zip(fast, plain, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("method", slow_but(["adams"], ["pece", "adams", "euler"]))
def test_second_derivatives_and_many_cotangents(method):
    order = number(0.6)
    model = Model((2,))

    def end(rate, order):
        model.rate = rate
        return fdeint(model.field, model.y0, [0.0, 1.0], order=order, method=method, n_steps=70, trajectory=False)

    assert torch.autograd.gradgradcheck(end, (model.rate, order))
    assert torch.autograd.gradcheck(end, (model.rate, order), check_batched_grad=True)


def test_a_retained_graph_and_two_losses_in_one_pass():
    """Each loss has the definition's gradient, whatever went back over the graph before it, or along with it."""
    model = Model()
    way = {"order": 0.5, "method": "pece", "n_steps": 100}

    def losses(solve):
        solution = solve(model.field, model.y0, [0.0, 0.4, 1.0], **way)
        return solution[1].pow(3).sum(), solution.sin().sum()

    first, second = losses(by_definition)
    expected = [torch.autograd.grad(loss, model.inputs, retain_graph=True) for loss in (first, second)]
    first, second = losses(fdeint)
    found = [torch.autograd.grad(loss, model.inputs, retain_graph=True) for loss in (first, second, first)]
    together = torch.autograd.grad((first, second), model.inputs)
    for got, theirs in zip(found, [*expected, expected[0]], strict=True):
        torch.testing.assert_close(got, theirs, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(together, tuple(map(torch.add, *expected)), rtol=1e-11, atol=1e-11)
