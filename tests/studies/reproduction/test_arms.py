import math

import pytest
import torch

from fracdnn.caputo.weights import l1_step_factor
from fracdnn.nn import FractionalNetwork
from reproduction.arms import grid, is_tried, networks, residual_step, rival_of, step_factor
from reproduction.comparisons import effects, middle, spread, tuned
from reproduction.learned_order import HOLDS, HeldNetwork, held_factor, held_step
from reproduction.paper_training import paper_network


@pytest.mark.parametrize("order", [0.1, 0.5, 0.9, 1.0])
def test_rivals_share_what_their_arm_says(order):
    assert step_factor(order, 0.2) == pytest.approx(float(l1_step_factor(order, 0.2)), rel=1e-14)
    assert residual_step("step", order, 0.2, 35) == 0.2
    assert step_factor(1.0, residual_step("factor", order, 0.2, 35)) == pytest.approx(step_factor(order, 0.2))
    # A constant right-hand side of 1 adds as much in both, in the limit of small steps.
    for n_layers in (100, 10_000):
        step = residual_step("horizon", order, 7.0 / n_layers, n_layers)
        assert n_layers * step == pytest.approx(7.0**order / math.gamma(1 + order))


def test_each_order_has_its_rivals_and_the_same_budget():
    arms = networks((0.5, 0.1), 0.2, 10) + grid((0.5, 0.1), 0.2, (0.1, 0.2, 0.4))
    names = [arm["network"] for arm in arms]
    assert len(names) == len(set(names)) == 7 + 3 * 2
    for order in (0.5, 0.1):
        for arm in ("step", "factor", "horizon"):
            (rival,) = (each for each in arms if each["network"] == rival_of(order, arm))
            assert rival["order"] == 1.0
            assert rival["step_size"] == residual_step(arm, order, 0.2, 10)
    for order in (1.0, 0.5, 0.1):
        tried = [arm["step_size"] for arm in arms if is_tried(arm["network"], order)]
        assert sorted(tried) == [0.1, 0.2, 0.4]


def run(network, seed, value, validation=0.0):
    return {"network": network, "seed": seed, "value": value, "validation": validation}


def test_effects_pair_seeds_and_tune_on_held_out_data():
    runs = [run("order 0.5", seed, 10.0 + seed) for seed in (2, 1, 0)]
    runs += [run("order 1", seed, 7.0 + seed) for seed in (0, 1, 2)]
    runs += [run("order 1, same c as 0.5", seed, 9.0 + seed) for seed in (1, 0, 2)]
    runs += [run("order 1, τ = 0.4", seed, 20.0 + seed, validation=-1.0 if seed else 1.0) for seed in (0, 1, 2)]
    found = effects(runs, 0.5, lambda r: r["value"], tuned_by=lambda r: r["validation"])
    assert {arm: each.mean for arm, each in found.items()} == {"step": 3.0, "factor": 1.0, "tuned": (3 - 10 - 10) / 3}
    chosen = tuned(runs, 1.0, lambda r: r["validation"])
    assert [chosen[seed]["value"] for seed in (0, 1, 2)] == [7.0, 21.0, 22.0]


def test_spreads_as_text():
    assert spread([1.0, 3.0], ".2f") == "2.00 ± 1.41"
    assert spread([1.0], ".1f") == "1.0 ± 0.0"
    assert middle([5.0, 1.0, 2.0, 3.0, 4.0]) == "3 (2 to 4)"


@pytest.mark.parametrize("order", [0.2, 0.7, 1.0])
@pytest.mark.parametrize("held", HOLDS)
def test_what_is_held_is_that_of_the_residual_network(held, order):
    n_layers, step = 12, 0.3
    factor = float(held_factor(held, torch.tensor(order, dtype=torch.float64), n_layers, step))
    found = held_step(held, order, n_layers, step)
    assert step_factor(order, found) == pytest.approx(factor)
    kept = {"τ": found, "c": factor, "horizon": (n_layers * found) ** order / math.gamma(1 + order)}
    assert kept[held] == pytest.approx({"τ": step, "c": step, "horizon": n_layers * step}[held])


def test_a_learned_order_with_the_step_held_is_the_librarys():
    X = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    y = torch.arange(9) % 4
    start = paper_network(X, y, torch.Generator().manual_seed(1), n_layers=6, order=0.4)
    ours = HeldNetwork(start, 0.4, "τ", 0.3)
    theirs = FractionalNetwork(3, 4, n_layers=6, order=0.4, step_size=0.3, bias="scalar", learn_order=True).double()
    with torch.no_grad():
        for name in ("K", "b", "W"):
            getattr(theirs, name).copy_(getattr(start, name))
        theirs.memory.learned_order.raw.copy_(ours.order().reshape(theirs.memory.learned_order.raw.shape) - 1.0)
    torch.testing.assert_close(ours(X), theirs(X))
    for network in (ours, theirs):
        network(X).square().sum().backward()
    torch.testing.assert_close(ours.K.grad, theirs.K.grad)
    order = ours.order().detach()
    of_order = theirs.memory.learned_order.raw.grad.reshape(())
    torch.testing.assert_close(ours.raw.grad.reshape(()), of_order * order * (1.0 - order))
