"""Stacks in CUDA graphs: captured whole, by `make_graphed_callables`, and by torch.compile's "reduce-overhead"."""

import pytest
import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalStack
from tests.memory.cuda_graphs import captured

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores", "ignore:The CUDA Graph is empty"),
]
MEMORIES = {
    "exact": {"compress": False},
    "compressed": {"compress": True},
    "learned": {"learn_order": True},
    "frozen": {"learn_order": True, "frozen": True},
    "by layer": {"learn_order": "layer"},
    "steps": {"learn_steps": True},
    "order 1": {"order": 1.0},
    "checkpoint": {"checkpoint": True},
}


def made(options, n_layers=20):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(n_layers)]
    options, frozen = dict(options), "frozen" in options
    options.pop("frozen", None)
    stack = FractionalStack(layers, **{"order": 0.5, **options}).cuda()
    stack.memory.requires_grad_(not frozen)
    return stack


def batch(seed):
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(seed)).cuda()


def found(stack, parameters, x):
    x = x.clone().requires_grad_()
    result = stack(x)
    return [result.detach(), *torch.autograd.grad(result.square().sum(), [x, *trained(parameters)])]


def trained(parameters):
    return [parameter for parameter in parameters if parameter.requires_grad]


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")  # torch warns of its own modules, too
@pytest.mark.parametrize("options", MEMORIES.values(), ids=MEMORIES)
def test_graphed_callables(options):
    stack = made(options)
    expected = found(stack, list(stack.parameters()), batch(1))
    graphed = torch.cuda.make_graphed_callables(made(options), (batch(0).requires_grad_(),))
    for mine, theirs in zip(found(graphed, list(graphed.parameters()), batch(1)), expected, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("options", MEMORIES.values(), ids=MEMORIES)
def test_a_whole_step_in_a_graph_follows_the_parameters(options):
    """Also learned orders: weights of the memory are made anew in each replay."""
    stack, x = made(options), batch(0)
    parameters = list(stack.parameters())

    def run():
        result = stack(x)
        return [result, *torch.autograd.grad(result.square().sum(), trained(parameters))]

    graph, results = captured(run)
    with torch.no_grad():
        for parameter in parameters:
            parameter += 0.1
        x.copy_(batch(1))
    graph.replay()
    for mine, theirs in zip(results, run(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_inference_with_a_learned_order():
    stack, x = made({"learn_order": True}), batch(0)
    with torch.no_grad():
        graph, results = captured(lambda: [stack(x)])
        for parameter in stack.parameters():
            parameter += 0.1
        graph.replay()
        torch.testing.assert_close(results[0], stack(x))


def test_a_compressed_history_of_a_learned_order_is_refused():
    stack, x = made({"learn_order": True, "compress": True}), batch(0)
    message = "compress must be False or 'auto' for a learned order in a CUDA graph"
    with pytest.raises(InvalidArgumentError, match=message):
        captured(lambda: [stack(x)])


@pytest.mark.parametrize("name", ["exact", "learned", "by layer", "order 1"])
def test_reduce_overhead(name):
    stack = made(MEMORIES[name], 4)
    expected = found(stack, list(stack.parameters()), batch(1))
    compiled = torch.compile(stack, mode="reduce-overhead")
    for _ in range(3):
        mine = [each.clone() for each in found(compiled, list(stack.parameters()), batch(1))]
    for one, other in zip(mine, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
