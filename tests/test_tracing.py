"""Each private call into torch, so that a new version of torch that moves one is noticed here."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from fracdnn import tracing


def test_nothing_is_traced_by_default():
    assert not tracing.being_traced()
    assert not tracing.being_transformed()
    assert not tracing.in_dispatch_mode()
    assert tracing.Watch.now() == (False, False)


class Ask(nn.Module):
    """Adds 1 where a question is answered with yes."""

    def __init__(self, question):
        super().__init__()
        self.question = question

    def forward(self, x):
        return x + 1 if self.question() else x.clone()


@pytest.mark.parametrize(
    "question",
    [tracing.being_traced, tracing.being_transformed, lambda: all(tracing.Watch.now())],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_traced(question):
    x, ask = torch.zeros(3), Ask(question)
    assert ask(x).sum() == 0
    assert torch.jit.trace(ask, x, check_trace=False)(x).sum() == 3
    assert torch.func.vmap(ask)(x).sum() == 3
    assert torch.func.grad(lambda y: ask(y).sum())(x).sum() == 3
    assert torch.export.export(ask, (x,)).module()(x).sum() == 3
    torch._dynamo.reset()
    assert torch.compile(ask, backend="eager", fullgraph=True)(x).sum() == 3


def test_forward_mode_is_a_transform_but_no_trace():
    with torch.autograd.forward_ad.dual_level():
        assert tracing.being_transformed()
        assert not tracing.being_traced()


def test_what_a_backward_pass_will_be():
    x, seen = torch.zeros(3, requires_grad=True), []
    with torch._dynamo.compiled_autograd._enable(lambda graph: graph):
        assert tracing.being_transformed()
        y = x.clone()
        y.register_hook(lambda _: seen.append(tracing.backward_is_compiled()))
        y.sum().backward()
    assert seen == [True]
    assert not tracing.being_transformed()
    assert not tracing.backward_is_compiled()


def test_selective_checkpoints():
    seen = []

    def ask(x):
        seen.append(tracing.being_transformed())
        return x.sin()

    def contexts():
        return create_selective_checkpoint_contexts(lambda *_, **__: CheckpointPolicy.PREFER_RECOMPUTE)

    with Dispatched():
        assert not tracing.being_transformed()
    x = torch.zeros(3, requires_grad=True)
    checkpoint(ask, x, use_reentrant=False, context_fn=contexts).sum().backward()
    assert seen == [True] * 2  # and again on the way back
    checkpoint(ask, x, use_reentrant=False)
    assert not seen[-1]


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        return function(*arguments, **(options or {}))


def test_a_dispatch_mode():
    assert not tracing.in_dispatch_mode()
    with Dispatched():
        assert tracing.in_dispatch_mode()


@pytest.mark.parametrize(
    "change",
    [
        lambda module: module.register_forward_hook(lambda *_: None),
        lambda module: module.register_forward_pre_hook(lambda *_: None),
        lambda module: module.register_full_backward_hook(lambda *_: None),
        lambda module: module.register_full_backward_pre_hook(lambda *_: None),
        lambda module: setattr(module, "forward", lambda x: x),
        lambda module: module.compile(),
    ],
)
def test_hooks_on_a_module(change):
    module = nn.Linear(2, 2)
    assert not tracing.has_module_hooks(module)
    change(module)
    assert tracing.has_module_hooks(module)


class Look(torch.autograd.Function):
    """The identity; notes what a question answers in its backward pass."""

    @staticmethod
    def forward(ctx, x, question, seen):
        ctx.question, ctx.seen = question, seen
        return x.clone()

    @staticmethod
    def backward(ctx, cotangent):
        ctx.seen.append(ctx.question(cotangent))
        return cotangent, None, None


def test_batches_of_cotangents():
    seen, x = [], torch.zeros(3, requires_grad=True)
    y = Look.apply(x, tracing.is_batch_of_cotangents, seen)
    torch.autograd.grad(y, x, torch.ones(3), retain_graph=True)
    torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)
    assert seen == [False, True]


def test_backward_passes_have_numbers_and_ends():
    seen, ends, x = [], [], torch.zeros(3, requires_grad=True)

    def look(_):
        tracing.when_backward_ends(lambda: ends.append(len(seen)))
        return tracing.backward_task()

    first, second = (Look.apply(Look.apply(x, look, seen), look, seen) for _ in range(2))
    first.sum().backward()
    assert len(seen) == 2
    assert ends == [2, 2]  # not while it was under way
    second.sum().backward()
    assert seen[0] == seen[1] != seen[2] == seen[3]
    assert tracing.backward_task() == -1


def test_a_function_is_applied_outside_of_transforms():
    x = torch.ones(3, requires_grad=True)
    seen = []
    result = tracing.apply_outside_of_transforms(Look)(x, lambda _: "called", seen)
    assert result.grad_fn is not None
    result.sum().backward()
    assert seen == ["called"]
    assert x.grad is not None


def test_what_carries_a_derivative():
    x, seen = torch.zeros(3), []

    def ask(t):
        seen.append((tracing.carries_derivative(t), tracing.carries_derivative(x)))
        return t.sum()

    ask(x)
    ask(x.clone().requires_grad_())
    torch.func.jvp(ask, (x,), (x,))
    torch.func.grad(ask)(x)
    torch.func.vmap(ask)(torch.zeros(2, 3))
    with torch.autograd.forward_ad.dual_level():
        ask(torch.autograd.forward_ad.make_dual(x, torch.ones(3)))
    assert seen == [(False, False)] + 5 * [(True, False)]


def test_constants_are_made_outside_of_all_modes():
    def make():
        autocast = torch.is_autocast_enabled("cpu")
        seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled(), autocast, tracing.being_traced()))
        return torch.ones(2) + 1.0

    class Noted(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            noted.append(function)
            return function(*arguments, **(options or {}))

    seen, noted, made_in_transform = [], [], []
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), FakeTensorMode(), torch.device("meta"), Noted():
        made = tracing.outside_of_modes(make)
    assert seen == [(False, False, False, False)]
    assert torch.Tensor.add not in noted
    assert torch.ones not in noted
    torch.func.vmap(lambda x: (made_in_transform.append(tracing.outside_of_modes(make)), x)[1])(torch.zeros(3))
    assert type(made) is type(made_in_transform[0]) is torch.Tensor
    torch.testing.assert_close(made_in_transform[0], torch.full((2,), 2.0))
    assert made.is_cpu
    assert not made.is_inference()
    with pytest.raises(ZeroDivisionError):
        tracing.outside_of_modes(lambda: 1 / 0)


def test_hooks_on_saved_tensors_are_taken_away_and_put_back():
    x, saved = torch.ones(2, requires_grad=True), []

    def hooks(name):
        return saved_tensors_hooks(lambda tensor: (saved.append(name), tensor)[1], lambda tensor: tensor)

    def gradient():
        return torch.func.grad(lambda x: (x * x).sum())(torch.ones(2))

    with hooks("outer"), hooks("inner"):
        with pytest.raises(RuntimeError, match="saved tensor hooks"):
            gradient()
        with tracing.outside_of_saved_tensor_hooks():
            assert gradient().tolist() == [2.0, 2.0]
            x.exp()
            assert not saved
        with pytest.raises(ZeroDivisionError), tracing.outside_of_saved_tensor_hooks():
            1 / 0  # noqa: B018
        x.exp()
        assert saved == ["inner"]
    with tracing.outside_of_saved_tensor_hooks():
        x.exp()
    assert saved == ["inner"]
