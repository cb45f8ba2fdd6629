"""Residual networks that exist as stacks: `FractionalStack.from_residual`."""

import warnings

import pytest
import torch
from torch import nn

from fracdnn.nn import FractionalStack, WithoutSkip


class Block(nn.Module):
    """A residual block as people write it; one that counts its batches, too."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, y):
        return y + torch.tanh(self.linear(self.norm(y)))


def trained_blocks(n=5):
    torch.manual_seed(0)
    blocks = nn.Sequential(*[Block() for _ in range(n)])
    blocks(torch.randn(32, 4))  # running statistics
    return blocks.eval()


@pytest.mark.parametrize("learn_order", [False, True])
def test_at_order_one_it_is_the_residual_network(learn_order):
    blocks, x = trained_blocks(), torch.randn(7, 4)
    stack = FractionalStack.from_residual(blocks, learn_order=learn_order)
    assert stack.order.item() == 1.0
    assert bool((stack.step_sizes == 1).all())
    torch.testing.assert_close(stack(x), blocks(x), rtol=1e-5, atol=1e-6)
    assert stack.layers[2].layer is blocks[2]
    stack(x).square().sum().backward()
    mine = [parameter.grad.clone() for parameter in blocks.parameters()]
    blocks.zero_grad()
    blocks(x).square().sum().backward()
    for each, parameter in zip(mine, blocks.parameters(), strict=True):
        torch.testing.assert_close(each, parameter.grad, rtol=1e-4, atol=1e-5)


def test_options_are_those_of_a_stack():
    stack = FractionalStack.from_residual(list(trained_blocks()), order=0.7, step_size=0.5, checkpoint=True)
    assert stack.order.item() == 0.7
    assert stack.checkpoint
    assert bool((stack.step_sizes == 0.5).all())


@pytest.mark.parametrize("options", [{}, {"order": 0.9}, {"learn_order": "layer", "learn_steps": True}])
def test_state_dicts_of_the_original_network_load(options):
    trained, x = trained_blocks(), torch.randn(7, 4)
    expected = FractionalStack.from_residual(trained, **options).eval()(x)
    stack = FractionalStack.from_residual([Block() for _ in trained], **options).eval()
    stack.load_state_dict(trained.state_dict())
    torch.testing.assert_close(stack(x), expected)

    def model(middle):
        return nn.ModuleDict({"first": nn.Linear(2, 4), "blocks": middle, "last": nn.Linear(4, 1)})

    original = model(nn.ModuleList(trained))
    replaced = model(FractionalStack.from_residual([Block() for _ in trained], **options).eval())
    replaced.load_state_dict(original.state_dict())
    torch.testing.assert_close(replaced["blocks"](x), expected)
    again = model(FractionalStack.from_residual([Block() for _ in trained], **options).eval())
    again.load_state_dict(replaced.state_dict())  # that of a stack, too
    torch.testing.assert_close(again["blocks"](x), expected)


def test_a_network_of_another_depth_does_not_load():
    stack = FractionalStack.from_residual(trained_blocks(4))
    with pytest.raises(RuntimeError, match=r"Unexpected key.*layers\.4\.layer\.linear"):
        stack.load_state_dict(trained_blocks(5).state_dict())
    with pytest.raises(RuntimeError, match=r"Missing key.*layers\.3\.layer\.linear"):
        stack.load_state_dict(trained_blocks(3).state_dict())
    with pytest.raises(RuntimeError, match=r"Unexpected key.*0\.linear"):  # its layers add nothing themselves
        FractionalStack([nn.Tanh()]).load_state_dict(trained_blocks(1).state_dict())


def test_layers_of_torch_that_add_their_input_are_no_surprise():
    encoders = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True).eval() for _ in range(3)]
    x = torch.randn(2, 5, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stack = FractionalStack.from_residual(encoders).eval()
    torch.testing.assert_close(stack(x), encoders[2](encoders[1](encoders[0](x))), rtol=1e-4, atol=1e-5)
    assert all(isinstance(layer, WithoutSkip) for layer in stack)
