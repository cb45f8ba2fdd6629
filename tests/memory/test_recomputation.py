"""Checkpoints of torch, as the package uses them."""

import pytest
import torch

from fracdnn.memory.recomputation import recomputed


def test_the_backward_pass_calls_the_function_again():
    calls = []

    def function(x):
        calls.append(x)
        return x.exp() * x.sin()

    x = torch.linspace(-1, 1, 5, dtype=torch.float64).requires_grad_()
    value = recomputed(function, x)
    assert len(calls) == 1
    (found,) = torch.autograd.grad(value.sum(), x)
    assert len(calls) == 2
    (wanted,) = torch.autograd.grad(function(x).sum(), x)
    assert torch.equal(found, wanted)


def test_what_follows_an_error_is_no_part_of_the_call():
    """While the traceback lives, as in a notebook: torch 2.11 then computed what follows in the failed call's place."""
    calls = []

    def function(x):
        calls.append(x)
        raise ValueError("a layer that fails")

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match="a layer that fails") as caught:
        recomputed(function, x)
    assert any(entry.name == "function" for entry in caught.traceback)
    (gradient,) = torch.autograd.grad(x.square().sum(), x)
    assert torch.equal(gradient, 2 * x)
    assert len(calls) == 1
