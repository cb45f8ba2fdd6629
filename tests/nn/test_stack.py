import copy
import io
import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jvp, vmap

import fracdnn
from fracdnn.caputo import l1_step_factor, memory_matrix
from fracdnn.exceptions import FracdnnError
from fracdnn.memory import reference
from fracdnn.nn import FractionalStack, Memory, WithoutSkip, parameter_groups
from tests.nn.problems import Seen
from tests.slow import each_once, slow_but

SETTINGS = {
    "fixed": {"order": 0.5},
    "residual": {"order": 1.0},
    "learned order": {"order": 0.7, "learn_order": True},
    "learned orders": {"order": 0.7, "learn_order": "layer"},
    "learned steps": {"order": 0.5, "learn_steps": True},
    "both": {"order": 0.5, "learn_order": True, "learn_steps": True},
    "steps": {"order": 0.5, "step_size": [0.1, 0.2, 0.3, 0.1, 0.2, 0.3]},
    "orders": {"order": [0.1, 0.2, 0.3, 0.5, 0.9, 1.0]},
    "compressed": {"order": 0.5, "compress": True},
}


def dense(width=4, n_layers=6, dtype=torch.float64, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return [nn.Sequential(nn.Linear(width, width), nn.Tanh()).to(dtype) for _ in range(n_layers)]


def batch(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def gradients(stack, x):
    return torch.autograd.grad(stack(x).pow(2).sum(), list(stack.parameters()))


@pytest.fixture(params=SETTINGS)
def stack(request):
    return FractionalStack(dense(), **SETTINGS[request.param]).double()


def test_a_stack_is_the_definition():
    layers = dense(n_layers=20)
    x = batch(5, 4)
    factors = l1_step_factor(0.3, 0.1).expand(20)
    expected = reference.propagate(memory_matrix(0.3, 20), factors, lambda j, y: layers[j](y), x)
    stack = FractionalStack(layers, order=0.3, step_size=0.1)
    torch.testing.assert_close(stack(x), expected[-1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(stack(x, trajectory=True), torch.stack(expected), rtol=1e-12, atol=1e-12)


def test_order_one_is_a_residual_network():
    layers, x = dense(n_layers=50), batch(5, 4)
    y = x
    for layer in layers:
        y = y + 0.2 * layer(y)
    stack = FractionalStack(layers, order=1.0)
    torch.testing.assert_close(stack(x), y, rtol=1e-12, atol=1e-12)
    assert stack.compressed_ is False
    torch.testing.assert_close(stack(x, trajectory=True)[-1], y, rtol=1e-12, atol=1e-12)
    theirs = torch.autograd.grad(y.pow(2).sum(), list(stack.parameters()))
    for mine, other in zip(gradients(stack, x), theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("compress", [False, True])
def test_limits_of_the_order(compress):
    """Order → 1 is the residual network, order → 0 gives Y_0 + f(Y_{N−1})."""
    layers, x = dense(n_layers=80), batch(5, 4)
    near_one = FractionalStack(layers, order=1 - 1e-9, compress=compress)(x)
    torch.testing.assert_close(near_one, FractionalStack(layers, order=1.0)(x), rtol=1e-6, atol=1e-6)
    states = FractionalStack(layers, order=1e-9, compress=compress)(x, trajectory=True)
    torch.testing.assert_close(states[-1], x + layers[-1](states[-2]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("order", [0.2, 0.9])
def test_convolutions_and_attention(order):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, y):
            return self.attention(y, y, y, need_weights=False)[0]

    mixed = [nn.Sequential(nn.LayerNorm(8), Attention()), nn.Linear(8, 8), Attention()]
    assert FractionalStack(mixed, order=order)(torch.randn(2, 5, 8)).shape == (2, 5, 8)
    convolutions = [nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU()) for _ in range(4)]
    stack = FractionalStack(convolutions, order=order)
    x = torch.randn(2, 3, 6, 6)
    stack(x).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in stack.parameters())
    channels_last = x.to(memory_format=torch.channels_last)
    torch.testing.assert_close(stack(channels_last), stack(x))


def test_splitting_a_batch_changes_nothing(stack):
    x = batch(6, 4)
    torch.testing.assert_close(torch.cat([stack(x[:2]), stack(x[2:])]), stack(x), rtol=1e-12, atol=1e-12)
    shuffled = torch.tensor([3, 1, 5, 0, 2, 4])
    torch.testing.assert_close(stack(x[shuffled]), stack(x)[shuffled], rtol=1e-12, atol=1e-12)


def test_an_empty_batch_and_one_sample(stack):
    assert stack(batch(0, 4)).shape == (0, 4)
    assert stack(batch(4)).shape == (4,)


def test_every_parameter_gets_a_gradient(stack):
    stack(batch(5, 4)).sum().backward()
    for name, parameter in stack.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


# The others trace what these do.
@pytest.mark.parametrize("stack", slow_but(["learned orders"], SETTINGS), indirect=True)
def test_compile_gives_the_same_values_and_gradients(stack):
    torch._dynamo.reset()
    stack, x = stack[:3], batch(5, 4)
    compiled = torch.compile(stack, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), stack(x), rtol=1e-9, atol=1e-9)
    for mine, other in zip(gradients(compiled, x), gradients(stack, x), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
def test_compile_with_the_default_compiler():
    torch._dynamo.reset()
    stack, x = FractionalStack(dense(n_layers=20), order=0.5, learn_order=True), batch(5, 4)
    compiled = torch.compile(stack, fullgraph=True)
    torch.testing.assert_close(compiled(x), stack(x), rtol=1e-9, atol=1e-9)
    for mine, other in zip(gradients(compiled, x), gradients(stack, x), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("stack", slow_but(["compressed"], SETTINGS), indirect=True)
def test_export(stack):
    stack, x = stack[:3], batch(5, 4)
    exported = torch.export.export(stack, (x,)).module()
    torch.testing.assert_close(exported(x), stack(x), rtol=1e-9, atol=1e-9)


def test_functional_transforms(stack):
    x = batch(5, 4)
    parameters = dict(stack.named_parameters())

    def loss(parameters, sample):
        return functional_call(stack, parameters, (sample,)).pow(2).sum()

    per_sample = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for name, other in zip(parameters, gradients(stack, x), strict=True):
        torch.testing.assert_close(per_sample[name].sum(0), other, rtol=1e-8, atol=1e-9)
    ensemble = {name: torch.stack([p, 1.01 * p]) for name, p in parameters.items()}
    outputs = vmap(lambda p: functional_call(stack, p, (x,)))(ensemble)
    torch.testing.assert_close(outputs[0], stack(x), rtol=1e-9, atol=1e-9)


def test_forward_mode(stack):
    x, direction = batch(5, 4), batch(5, 4, seed=1)
    _, tangent = jvp(stack, (x,), (direction,))
    difference = (stack(x + 1e-6 * direction) - stack(x - 1e-6 * direction)) / 2e-6
    torch.testing.assert_close(tangent, difference, rtol=1e-6, atol=1e-8)
    with torch.autograd.forward_ad.dual_level():
        dual = stack(torch.autograd.forward_ad.make_dual(x, direction))
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(dual).tangent, tangent)


def test_second_derivatives_by_reverse_over_reverse(stack):
    x, parameters = batch(5, 4), dict(stack.named_parameters())
    first = torch.autograd.grad(stack(x).pow(2).sum(), list(parameters.values()), create_graph=True)
    directions = [batch(*g.shape, seed=i) for i, g in enumerate(first)]
    products = torch.autograd.grad(first, list(parameters.values()), directions)

    def gradient_of(parameters):
        return grad(lambda p: functional_call(stack, p, (x,)).pow(2).sum())(parameters)

    tangents = dict(zip(parameters, directions, strict=True))
    detached = {name: p.detach() for name, p in parameters.items()}
    _, expected = jvp(gradient_of, (detached,), (tangents,))
    for mine, other in zip(products, expected.values(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-8)


def test_state_dict_copies_and_devices(stack):
    x = batch(5, 4)
    other = copy.deepcopy(stack)
    torch.testing.assert_close(other(x), stack(x), rtol=0, atol=0)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    other.load_state_dict(stack.state_dict())
    torch.testing.assert_close(other(x), stack(x), rtol=0, atol=0)
    assert stack.float()(x.float()).dtype == torch.float32


def test_autocast_keeps_the_state_in_the_dtype_of_the_input():
    stack = FractionalStack(dense(dtype=torch.float32), order=0.5)
    x = batch(5, 4, dtype=torch.float32).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = stack(x)
    assert y.dtype == torch.float32
    y.sum().backward()
    torch.testing.assert_close(y, stack(x), rtol=2e-2, atol=2e-2)
    assert all(p.grad.dtype == torch.float32 for p in stack.parameters())


def test_saving_and_loading_whole_modules(stack):
    """As people do with torch.save; the weights of the memory are made again."""
    x = batch(5, 4)
    expected = stack(x)
    buffer = io.BytesIO()
    torch.save(stack, buffer)
    buffer.seek(0)
    again = torch.load(buffer, weights_only=False)
    torch.testing.assert_close(again(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("order", [0.5, 1.0])
def test_functional_calls_keep_the_memory_out_of_autocast(order):
    """Layers that autocast leaves alone: any rounding to 16 bits would be the memory's."""
    stack = FractionalStack([nn.Tanh() for _ in range(40)], order=order)
    x = batch(5, 4, dtype=torch.float32)
    expected = stack(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(stack(x), expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(vmap(stack)(x), expected, rtol=1e-5, atol=1e-6)


def test_construction_on_the_meta_device():
    with torch.device("meta"):
        stack = FractionalStack([nn.Linear(2, 2) for _ in range(3)], order=0.5)
    assert stack.layers[0].weight.is_meta
    assert stack.order.item() == 0.5


def test_writing_into_the_state_is_noticed_in_inference_mode():
    stack = FractionalStack([nn.ReLU(inplace=True)], order=0.5)
    with torch.inference_mode(), pytest.raises(FracdnnError, match="must not change the state it is given"):
        stack(batch(2, 4))


@pytest.mark.parametrize("order", [0.5, 1.0])
def test_traced_calls_give_layers_a_copy(order):
    stack = FractionalStack([nn.ReLU(inplace=True), *dense(n_layers=3)], order=order)
    plain = FractionalStack([nn.ReLU(), *stack.layers[1:]], order=order)
    x = batch(3, 4)
    given = x.clone()
    torch.testing.assert_close(vmap(stack)(given), plain(x), rtol=1e-12, atol=1e-12)
    torch._dynamo.reset()
    compiled = torch.compile(stack, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(given), plain(x), rtol=1e-12, atol=1e-12)
    assert torch.equal(given, x)


def test_hooks_are_called():
    stack = FractionalStack(dense(), order=0.5)
    seen = []
    for j, layer in enumerate(stack.layers):
        layer.register_forward_hook(lambda *_, j=j: seen.append(j))
        layer.register_full_backward_hook(lambda *_, j=j: seen.append(-j))
    stack(batch(5, 4).requires_grad_()).sum().backward()
    assert seen == [0, 1, 2, 3, 4, 5, -5, -4, -3, -2, -1, 0]


def test_frozen_layers_and_no_gradient_at_all():
    stack = FractionalStack(dense(), order=0.5)
    for parameter in stack.layers[:3].parameters():
        parameter.requires_grad_(False)
    stack(batch(5, 4)).sum().backward()
    assert stack.layers[0][0].weight.grad is None
    assert stack.layers[3][0].weight.grad is not None
    stack.requires_grad_(False)
    assert not stack(batch(5, 4)).requires_grad


def test_learning_moves_order_and_steps_within_their_ranges():
    stack = FractionalStack(dense(), order=0.5, learn_order=True, learn_steps=True)
    optimizer = torch.optim.SGD(stack.parameters(), lr=0.5)
    x = batch(20, 4)
    before = stack.order.item(), stack.step_sizes.tolist()
    for _ in range(50):
        optimizer.zero_grad()
        (stack(x) - x.flip(1)).pow(2).mean().backward()
        optimizer.step()
    assert 0 < stack.order.item() <= 1
    assert (stack.step_sizes > 0).all()
    assert abs(stack.order.item() - before[0]) > 1e-3
    assert stack.step_sizes.tolist() != before[1]


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none")


@needs_cuda
@pytest.mark.parametrize("n_layers", [6, 70])
@pytest.mark.parametrize("setting", SETTINGS)
def test_cuda_agrees_with_the_cpu(setting, n_layers):
    options = SETTINGS[setting]
    if n_layers != 6 and setting in ("steps", "orders"):
        options = {
            name: value * 10 + value[:4] if isinstance(value, list) else value for name, value in options.items()
        }
        n_layers = 64
    stack = FractionalStack(dense(n_layers=n_layers), **options).double()
    x = batch(5, 4)
    expected, expected_gradients = stack(x), gradients(stack, x)
    stack.cuda()
    torch.testing.assert_close(stack(x.cuda()).cpu(), expected, rtol=1e-9, atol=1e-9)
    for mine, other in zip(gradients(stack, x.cuda()), expected_gradients, strict=True):
        torch.testing.assert_close(mine.cpu(), other, rtol=1e-8, atol=1e-9)


@needs_cuda
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("options", [{}, {"compress": True}, {"learn_order": True}, {"order": 1.0}])
def test_cuda_does_not_wait_inside_the_layer_loop(options):
    """From the first layer of the forward pass to the end of the backward pass nothing waits for the device."""
    stack = FractionalStack(dense(n_layers=80), **{"order": 0.5, **options}).double().cuda()
    x = batch(5, 4).cuda()
    stack(x).sum().backward()  # weights are copied to the device once
    stack.layers[0].register_forward_pre_hook(lambda *_: torch.cuda.set_sync_debug_mode("error"))
    try:
        stack(x).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("order", [0.5, 1.0])
def test_layers_added_after_a_first_call(order):
    stack, x = FractionalStack(dense(), order=order), batch(5, 4)
    stack(x)
    stack.layers.append(nn.Tanh())
    torch.testing.assert_close(stack(x), FractionalStack(stack.layers, order=order)(x), rtol=0, atol=0)
    by_layer = FractionalStack(dense(), order=[0.5] * 6)
    by_layer.layers.append(nn.Tanh())
    with pytest.raises(FracdnnError, match="order must hold one number for each of the 7 layers, got 6; layers were"):
        by_layer(x)


@pytest.mark.parametrize("order", [0.5, 1.0, [0.2, 0.5, 0.9, 0.4, 0.3, 0.7]])
def test_layers_taken_away_after_a_first_call(order):
    stack, x = FractionalStack(dense(), order=order), batch(5, 4)
    stack(x)
    stack.layers = stack.layers[:4]
    fewer = order[:4] if isinstance(order, list) else order
    torch.testing.assert_close(stack(x), FractionalStack(stack.layers, order=fewer)(x), rtol=0, atol=0)


def test_what_a_stack_says_of_itself():
    assert "order=0.5, step_size=0.2, compress='auto'" in repr(FractionalStack(dense()))
    assert "order=0.7 (learned), step_size=0.2," in repr(FractionalStack(dense(), order=0.7, learn_order=True))
    learned = FractionalStack(dense(n_layers=8), step_size=0.25, learn_steps=True)
    assert "step_size=[0.25, 0.25, 0.25, …, 0.25, 0.25] (learned)" in repr(learned)
    assert "order=[0.1, 0.2, 0.3, 0.5, 0.9, 1]" in repr(FractionalStack(dense(), **SETTINGS["orders"]))


@pytest.mark.parametrize(
    ("options", "n_layers", "expected"),
    [
        ({}, 6, False),
        ({}, 400, True),
        ({}, 150, False),  # small states
        ({"compress": True}, 150, True),  # what was asked for
        ({"compress": True}, 3, True),
        ({"compress": False}, 400, False),
        ({"order": 1.0}, 400, False),
        ({"order": 1.0, "learn_steps": True}, 6, False),
    ],
)
def test_what_ran_is_said(options, n_layers, expected):
    stack = FractionalStack([nn.Tanh() for _ in range(n_layers)], **options)
    assert stack.compressed_ is None
    stack(torch.zeros(2, 3))
    assert stack.compressed_ is expected


def test_the_number_of_layers_indexing_and_iteration():
    layers = dense()
    stack = FractionalStack(layers, order=0.5)
    assert len(stack) == 6
    assert list(stack) == layers
    assert stack[2] is layers[2]
    assert stack[-1] is layers[-1]
    with pytest.raises(IndexError):
        stack[6]


def test_a_slice_is_a_stack_of_the_same_layers(stack):
    x, part = batch(5, 4), stack[1:4]
    assert isinstance(part, FractionalStack)
    assert list(part) == list(stack)[1:4]
    assert len(stack) == 6
    order, steps = stack.order.detach(), stack.memory.step_size.detach()
    order, steps = (value[1:4] if value.dim() else value for value in (order, steps))
    expected = FractionalStack(list(stack)[1:4], order=order, step_size=steps, compress=stack.memory.compress)
    torch.testing.assert_close(part(x), expected(x), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(part.order, order)
    part(x).sum().backward()
    assert stack[1][0].weight.grad is not None
    with pytest.raises(FracdnnError, match="a slice must hold at least one of the 6 layers"):
        stack[4:4]


def test_one_learned_order_is_shared_by_slices():
    stack = FractionalStack(dense(), learn_order=True)
    assert stack[1:4].memory.learned_order is stack.memory.learned_order
    by_layer = FractionalStack(dense(), learn_order="layer")
    assert by_layer[1:4].memory.learned_order.raw.shape == (3,)
    assert by_layer.memory.learned_order.raw.shape == (6,)


def test_further_arguments_go_to_every_layer():
    class Masked(nn.Module):
        def forward(self, y, mask, *, scale=1.0):
            return scale * mask * torch.tanh(y)

    stack, x, mask = FractionalStack([Masked() for _ in range(5)], order=0.5), batch(3, 4), batch(3, 4, seed=1) > 0
    plain = FractionalStack([nn.Tanh() for _ in range(5)], order=0.5)
    result = stack(x, mask, scale=1.0, trajectory=True)
    assert result.shape == (6, 3, 4)
    torch.testing.assert_close(result[-1][mask], plain(x)[mask])
    torch.testing.assert_close(result[-1][~mask], x[~mask], rtol=1e-14, atol=0)
    assert not torch.equal(stack(x, mask, scale=2.0), stack(x, mask))


def test_layers_with_a_skip_connection_of_their_own():
    """As they are they warn, and states grow; wrapped, they add what they add."""

    def encoder():
        torch.manual_seed(0)
        return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True, dropout=0.0)

    x = batch(2, 5, 8, dtype=torch.float32)
    message = r"leave the skip connection to the stack, got TransformerEncoderLayer, which"
    with pytest.warns(UserWarning, match=message) as warned:
        grown = FractionalStack([encoder() for _ in range(12)], order=0.5, step_size=1.0)
    assert [each.filename for each in warned] == [__file__]
    wrapped = FractionalStack([WithoutSkip(encoder()) for _ in range(12)], order=0.5, step_size=1.0)
    assert grown(x).norm() > 100 * x.norm()
    assert wrapped(x).norm() < 5 * x.norm()
    layer = encoder()
    torch.testing.assert_close(WithoutSkip(layer)(x), layer(x) - x)
    mask = torch.full((5, 5), -torch.inf).triu(1)
    changed = x.clone()
    changed[:, -1] = 0.0  # what comes last is seen by none before it
    torch.testing.assert_close(wrapped(x, src_mask=mask)[:, :-1], wrapped(changed, src_mask=mask)[:, :-1])


def test_a_state_dict_knows_the_order_and_steps_it_was_made_with(stack):
    again = copy.deepcopy(stack)
    again.load_state_dict(stack.state_dict())
    half = {name: value.to(torch.bfloat16) for name, value in stack.state_dict().items()}
    again.load_state_dict(half)  # cast, but the same
    other = FractionalStack(dense(), order=0.37, step_size=0.2).double()
    with pytest.raises(Exception, match=r"must be one of order|orders and steps|Missing key|Unexpected key"):
        other.load_state_dict(stack.state_dict())


def test_a_state_dict_of_other_orders_or_steps_is_refused():
    stack = FractionalStack(dense(), order=0.9)
    with pytest.raises(FracdnnError, match=r"must be one of order 0.9 and step 0.2, got one of order 0.3 and step 0.2"):
        stack.load_state_dict(FractionalStack(dense(), order=0.3).state_dict())
    with pytest.raises(FracdnnError, match=r"must be one of order 0.9 and step 0.2, got one of order 0.9 and step 0.1"):
        stack.load_state_dict(FractionalStack(dense(), order=0.9, step_size=0.1).state_dict())
    with pytest.raises(FracdnnError, match=r"must hold 2 orders and steps for this memory, got \(12,\)"):
        stack.load_state_dict(FractionalStack(dense(), order=[0.9] * 6, step_size=[0.2] * 6).state_dict())
    larger, other = nn.Sequential(stack), nn.Sequential(FractionalStack(dense(), order=0.3))
    with pytest.raises(RuntimeError, match=r"must be one of order 0.9 and step 0.2, got one of order 0.3 and step 0.2"):
        larger.load_state_dict(other.state_dict())
    without = {name: value for name, value in stack.state_dict().items() if "extra" not in name}
    with pytest.raises(RuntimeError, match=r"Missing key.*memory._extra_state"):
        stack.load_state_dict(without)
    stack.load_state_dict(without, strict=False)


@pytest.mark.parametrize("options", [{"order": 0.3}, {"order": [0.9] * 6, "step_size": [0.2] * 6}])
def test_a_state_dict_of_another_order_is_loaded_where_it_need_not_be_the_same(options):
    """For fine-tuning at another order: the layers are loaded, the order stays."""
    stack, other = FractionalStack(dense(), order=0.9), FractionalStack(dense(), **options)
    with torch.no_grad():
        other.layers[0][0].weight.fill_(0.25)
    whole = nn.Sequential(nn.Identity(), stack)
    found = whole.load_state_dict(nn.Sequential(nn.Identity(), other).state_dict(), strict=False)
    assert not found.missing_keys
    assert found.unexpected_keys[0].startswith("1.memory._extra_state (a state dict must")
    assert bool((stack.layers[0][0].weight == 0.25).all())
    assert stack.order.item() == 0.9


def test_getters_change_nothing():
    stack = FractionalStack(dense())
    stack.layers.append(nn.Tanh())
    assert len(stack.step_sizes) == 7
    assert stack.order.item() == 0.5
    assert stack.memory.n_layers == 6


def test_weight_decay_leaves_learned_orders_alone():
    """With a gradient of 0 AdamW moves a parameter by its decay alone."""
    stack = FractionalStack(dense(), order=0.9, learn_order=True, learn_steps=True)
    groups = parameter_groups(nn.Sequential(stack, nn.Linear(4, 4).double()), weight_decay=0.1)
    assert sum(len(group["params"]) for group in groups) == 2 * 6 + 2 + 2
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    weight = stack[0][0].weight.detach().clone()
    for group in groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    for _ in range(100):
        optimizer.step()
    assert stack.order.item() == pytest.approx(0.9, abs=1e-7)
    torch.testing.assert_close(stack.step_sizes, torch.full((6,), 0.2, dtype=torch.float64), rtol=1e-6, atol=0)
    assert stack[0][0].weight.norm() < 0.95 * weight.norm()


def test_groups_have_the_rates_they_are_given():
    stack = FractionalStack(dense(), order=0.9, learn_order="layer", learn_steps=True)

    def settings(**rates):
        return [
            {name: value for name, value in group.items() if name != "params"}
            for group in parameter_groups(stack, **rates)
        ]

    assert settings() == [{}, {"lr": 0.01, "weight_decay": 0.0}]
    assert settings(weight_decay=0.1) == [{"weight_decay": 0.1}, {"lr": 0.01, "weight_decay": 0.0}]
    assert settings(lr=0.2) == [{"lr": 0.2}, {"lr": 0.01, "weight_decay": 0.0}]
    assert settings(order_lr=0.3) == [{}, {"lr": 0.3, "weight_decay": 0.0}]
    assert settings(lr=0.2, order_lr=0, weight_decay=0.1) == [
        {"lr": 0.2, "weight_decay": 0.1},
        {"lr": 0, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(parameter_groups(stack, order_lr=0.0), lr=0.1)
    weight = stack[0][0].weight.detach().clone()
    stack(batch(5, 4)).square().sum().backward()
    optimizer.step()
    assert torch.equal(stack.order, FractionalStack(dense(), order=0.9, learn_order="layer").order)
    assert not torch.equal(stack[0][0].weight, weight)


@pytest.mark.parametrize("name", ["lr", "weight_decay", "order_lr"])
@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf, "0.1", True])
def test_rates_that_are_none_are_refused(name, bad):
    stack = FractionalStack(dense(), learn_order=True)
    with pytest.raises(FracdnnError, match=rf"^{name} must be a finite number, not negative, got .*; pass 0.01, say"):
        parameter_groups(stack, **{name: bad})


WHY = (
    "it was learned, with too large steps: go back to an earlier state and use a smaller learning rate for it, as "
    r"parameter_groups\(model, lr=1e-3, order_lr=1e-4\)"
)


@pytest.mark.parametrize("options", [{"learn_order": True}, {"learn_order": "layer"}, {"learn_steps": True}], ids=str)
@pytest.mark.parametrize("learned", [-1e6, 1e6, math.inf, math.nan])
def test_what_was_learned_too_fast_is_refused_with_the_reason(options, learned):
    """Orders are reflected into (0, 1]; repr and `order` still work, to look at what happened."""
    stack = FractionalStack(dense(), **options)
    rule = "step_size must be positive and finite" if "learn_steps" in options else r"order must lie in \(0, 1\]"
    raw = next(parameter for name, parameter in stack.named_parameters() if name.endswith(".raw"))
    with torch.no_grad():
        raw[-1] = learned
    assert "learned" in repr(stack)
    if "learn_order" in options and math.isfinite(learned):
        assert stack.order.reshape(-1)[-1] == 1.0
        assert bool(torch.isfinite(stack(batch(5, 4))).all())
        return
    where = "" if options == {"learn_order": True} else r" at index \[5\]"
    with pytest.raises(FracdnnError, match=rf"^{rule}, got (0\.0|inf|nan){where}; {WHY}$"):
        stack(batch(5, 4))


def test_an_order_that_is_learned_too_fast_is_never_0():
    """By training, and at a parameter that stands for order 0; compiled, too."""
    stack = FractionalStack(dense(), learn_order="layer", step_size=1.0)
    optimizer = torch.optim.SGD(parameter_groups(stack, lr=0.0, order_lr=1e8))

    def train(model):
        for _ in range(5):
            optimizer.zero_grad()
            model(batch(5, 4)).square().sum().backward()
            optimizer.step()

    train(stack)
    assert bool(((stack.order > 0) & (stack.order <= 1)).all())
    with torch.no_grad():
        stack.memory.learned_order.raw.fill_(-1.0)
    compiled = torch.compile(stack.memory.learned_order, backend="eager", fullgraph=True)
    assert bool((stack.order > 0).all())
    assert bool((compiled() > 0).all())
    assert bool(stack(batch(5, 4)).isfinite().all())


def test_what_is_reported_is_not_what_is_used():
    stack, x = FractionalStack(dense(), order=0.5), batch(5, 4)
    expected = stack(x)
    stack.order.fill_(0.1)
    assert stack.order.item() == 0.5
    assert torch.equal(stack(x), expected)


class Grow(nn.Module):
    def forward(self, y):
        return torch.cat([y, y], dim=-1)


class Poison(nn.Module):
    def forward(self, y):
        return y / 0


class Recurrent(nn.Module):
    def forward(self, y):
        return y, y


BAD = [
    (
        lambda: FractionalStack(dense(), order=nn.Parameter(torch.tensor(0.5))),
        "order must be a constant, got a tensor that requires a gradient; pass numbers and set learn_order=True",
    ),
    (lambda: FractionalStack([Recurrent()])(batch(2, 4)), r"layer 0 \(Recurrent\) must return a tensor, got tuple"),
    (lambda: FractionalStack([]), "layers must hold at least one module, got an empty list"),
    (lambda: FractionalStack(nn.Linear(2, 2)), r"layers must be a list of modules, got Linear; pass \[Linear"),
    (
        lambda: FractionalStack([torch.tanh]),
        "layers must hold torch modules, got builtin_function_or_method at index 0",
    ),
    (lambda: FractionalStack(dense(), order=0.0), r"order must lie in \(0, 1\], got 0.0"),
    (lambda: FractionalStack(dense(), order=1.5), r"order must lie in \(0, 1\], got 1.5"),
    (lambda: FractionalStack(dense(), order=[0.5, 0.5]), r"order must be one number or one for each of the 6 layers"),
    (lambda: FractionalStack(dense(), step_size=0), "step_size must be positive and finite, got 0"),
    (lambda: FractionalStack(dense(), step_size=-0.1), "step_size must be positive and finite, got -0.1"),
    (
        lambda: FractionalStack(dense(), step_size=[0.1]),
        r"step_size must be one number or one for each of the 6 layers",
    ),
    (lambda: FractionalStack(dense(), learn_order="all"), "learn_order must be True, False or 'layer', got 'all'"),
    (lambda: FractionalStack(dense(), compress="some"), "compress must be True, False or 'auto'"),
    (
        lambda: FractionalStack(dense(), learn_steps=True, compress=True),
        "compress must be False or 'auto' for unequal steps or an order for each layer, got True",
    ),
    (lambda: FractionalStack(dense(), compress_tol=0), "compress_tol must be positive and finite, got 0"),
    (lambda: FractionalStack(dense())([1.0]), "x must be a floating-point tensor, got list"),
    (lambda: FractionalStack(dense())(torch.ones(2, 4).long()), "x must be a floating-point tensor, got torch.int64"),
    (
        lambda: FractionalStack(dense())(torch.ones(2, 4)),
        "x must have the dtype of the layers' parameters, torch.float64, got torch.float32; use x.to",
    ),
    (
        lambda: FractionalStack([*dense(), Grow()])(batch(2, 4)),
        r"layer 6 \(Grow\) must keep the shape of its input, got \(2, 8\) from \(2, 4\); put layers that change",
    ),
    (
        lambda: FractionalStack([*dense(), Poison(), *dense()])(batch(2, 4)),
        r"layer 6 \(Poison\) made the state not finite \(NaN or inf\); check its parameters and scale",
    ),
    (lambda: FractionalStack([*dense(), Poison()])(batch(2, 4)), r"layer 6 \(Poison\) made the state not finite"),
    (
        lambda: FractionalStack([*dense(n_layers=70), Poison(), *dense()], order=1.0)(batch(2, 4)),
        r"layer 70 \(Poison\) made the state not finite",
    ),
    (lambda: FractionalStack(dense())(batch(2, 4) / 0), "the input must be finite, got NaN or inf in it"),
    (
        lambda: FractionalStack([nn.ReLU(inplace=True)])(batch(2, 4)),
        r"layer 0 \(ReLU\) must not change the state it is given, but it wrote into it",
    ),
    (
        lambda: FractionalStack([nn.ReLU(inplace=True)], order=1.0)(batch(2, 4)),  # a state that nobody wrote into yet
        r"layer 0 \(ReLU\) must not change the state it is given, but it wrote into it",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input(call, message):
    with pytest.raises(FracdnnError, match=message):
        call()


def test_an_error_inside_a_layer_says_which_layer():
    with pytest.raises(RuntimeError) as caught:
        FractionalStack(dense())(batch(2, 5))
    assert "in layer 0 (Sequential) of a FractionalStack, for a state of shape (2, 5)" in caught.value.__notes__


class Sparse(nn.Module):
    def forward(self, x):
        return torch.tanh(x).to_sparse()


@pytest.mark.parametrize("n", [4, 4000])
def test_a_layer_may_return_a_sparse_tensor(n):
    """Small states and those of compiled sums."""
    x = batch(n, 3)
    expected = FractionalStack([nn.Tanh() for _ in range(20)], order=0.5)(x)
    torch.testing.assert_close(FractionalStack([Sparse() for _ in range(20)], order=0.5)(x), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("n", [4, pytest.param(4000, marks=pytest.mark.slow)])
def test_a_traced_stack_computes_with_what_it_is_given(n):
    module = FractionalStack(dense(n_layers=20), order=0.5)
    with torch.no_grad():
        traced = torch.jit.trace(module, batch(n, 4))
        other = batch(n, 4, seed=9)
        torch.testing.assert_close(traced(other), module(other))


def test_complex_layers_are_refused_by_name():
    module = FractionalStack([nn.Tanh(), Turn()], order=0.5)
    with pytest.raises(FracdnnError, match=r"layer 1 \(Turn\) must return real numbers, got torch.complex128"):
        module(batch(4, 3))


class Turn(nn.Module):
    def forward(self, x):
        return x * 1j


def by_definition(layers, x, order=0.5):
    factors = l1_step_factor(order, 0.2).expand(len(layers))
    return reference.propagate(memory_matrix(order, len(layers)), factors, lambda j, y: layers[j](y), x)


@pytest.mark.parametrize("compress", [False, True])
def test_gradients_at_states_are_whole(compress):
    """What a layer sees carries all that the loss has from it: by the layer, and by the memory of all later ones."""
    layers, x, seen = dense(n_layers=20), batch(5, 4).requires_grad_(), []
    stack = FractionalStack([Seen(layer, seen.append) for layer in layers], order=0.5, compress=compress)
    found = torch.autograd.grad(stack(x).pow(2).sum(), [*seen, x])
    states = by_definition(layers, x)
    expected = torch.autograd.grad(states[-1].pow(2).sum(), [*states[:-1], x])
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("compress", [False, True])
def test_hooks_on_states_change_what_goes_back(compress):
    """Clipping the cotangent of a state, and what `retain_grad` keeps, as in the definition."""
    layers, x = dense(n_layers=12), batch(5, 4).requires_grad_()

    def clip(gradient):
        return gradient.clamp(-0.05, 0.05)

    kept = []

    def look(y):
        if y.requires_grad:
            y.register_hook(clip)
            y.retain_grad()
            kept.append(y)

    stack = FractionalStack([Seen(layer, look) for layer in layers], order=0.5, compress=compress)
    parameters = list(stack.parameters())
    stack(x).pow(2).sum().backward()
    found = [p.grad.clone() for p in parameters]
    mine = [y.grad for y in kept]
    stack.zero_grad()
    states = by_definition([Seen(layer, look) for layer in layers], x * 1.0)
    states[-1].pow(2).sum().backward()
    for one, two in zip(found, (p.grad for p in parameters), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-8, atol=1e-10)
    for one, two in zip(mine, (y.grad for y in kept[len(mine) :]), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("depth_and_dtype", "order"),
    each_once([(100, torch.bfloat16), (400, torch.bfloat16), (100, torch.float16)], [0.9, 0.5]),
)
def test_half_precision_is_as_good_as_at_order_one(depth_and_dtype, order):
    """State and gradient against double precision: never worse than the residual network of the same layers."""
    n_layers, dtype = depth_and_dtype

    def errors(order):
        layers = dense(8, n_layers)
        stack = FractionalStack(layers, order=order, step_size=0.05)
        x = batch(16, 8)
        result, slopes = stack(x), torch.cat([g.reshape(-1) for g in gradients(stack, x)])
        stack.to(dtype)
        half, half_slopes = stack(x.to(dtype)), torch.cat([g.reshape(-1) for g in gradients(stack, x.to(dtype))])
        return [
            float(((a.double() - b).norm() / b.norm()).detach()) for a, b in ((half, result), (half_slopes, slopes))
        ]

    for mine, residual in zip(errors(order), errors(1.0), strict=True):
        assert mine <= residual


def test_constants_are_made_outside_of_the_callers_hooks_and_modes():
    """The first call decides what is kept for all others: nothing of it may be in there."""
    layers, x = dense(n_layers=7), batch(5, 4).requires_grad_()

    def learned():
        return FractionalStack(layers, order=0.7, learn_order=True)

    expected = gradients(learned(), x)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.to(torch.bfloat16), lambda t: t.double()):
        stack = learned()
        stack(x).sum().backward()
    for mine, theirs in zip(gradients(stack, x), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    stack = learned()
    again = torch.utils.checkpoint.checkpoint(stack, x, use_reentrant=False)
    for mine, theirs in zip(torch.autograd.grad(again.pow(2).sum(), list(stack.parameters())), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10)
    fixed = FractionalStack(layers, order=0.3)
    with torch.device("meta"), torch.autocast("cpu", torch.bfloat16):
        fixed(x)
    torch.testing.assert_close(fixed(x), FractionalStack(layers, order=0.3)(x), rtol=0, atol=0)


def test_inference_mode_first_and_forward_mode_then():
    stack, x = FractionalStack(dense(n_layers=70), order=0.5), batch(5, 4)
    with torch.inference_mode():
        stack(x)
    _, tangent = jvp(stack, (x,), (torch.ones_like(x),))
    assert torch.isfinite(tangent).all()
    stack(x.requires_grad_()).sum().backward()


def test_threads_with_other_dtypes_share_a_stack():
    from concurrent.futures import ThreadPoolExecutor

    stack = FractionalStack([nn.Tanh() for _ in range(20)], order=0.5)
    many = [batch(3, 4, dtype=dtype, seed=seed) for seed in range(40) for dtype in (torch.float32, torch.float64)]
    expected = [stack(x) for x in many]
    with ThreadPoolExecutor(4) as pool:
        for mine, theirs in zip(pool.map(stack, many * 5), expected * 5, strict=True):
            assert torch.equal(mine, theirs)


def test_steps_of_very_different_size():
    """The factor of a step is that of the step as it was given, and the weights those of the steps between."""
    stack = FractionalStack([nn.Tanh(), nn.Tanh(), nn.Tanh()], order=0.5, step_size=[1.0, 1e-12, 1e-12])
    plan = stack.memory.plan(batch(1, 4), len(stack))
    expected = math.gamma(1.5) * 1e-6
    assert plan.factor_numbers[1] == pytest.approx(expected, rel=1e-14)
    equal = Memory(2, order=0.5, step_size=[1e-12, 1e-12]).plan(batch(1, 4), 2)
    torch.testing.assert_close(equal.weights(batch(1)).matrix, memory_matrix(0.5, 2), rtol=1e-13, atol=1e-15)


def test_a_refused_state_dict_changes_nothing():
    stack, other = FractionalStack(dense(seed=0), order=0.9), FractionalStack(dense(seed=1), order=0.3)
    before = [p.clone() for p in stack.parameters()]
    with pytest.raises(FracdnnError, match="must be one of order"):
        stack.load_state_dict(other.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(before, stack.parameters(), strict=True))


def test_slices_have_their_own_hooks_and_may_go_backwards():
    stack, seen = FractionalStack(dense(), order=[0.2, 0.3, 0.4, 0.5, 0.6, 0.7], learn_steps=True), []
    part = stack[::-2]
    assert list(part) == list(stack)[::-2]
    assert part.order.tolist() == [0.7, 0.5, 0.3]
    assert part.compressed_ is None
    part.register_forward_hook(lambda *_: seen.append(1))
    stack(batch(2, 4))
    assert not seen
    part(batch(2, 4))
    assert seen


def test_steps_of_layers_that_were_added_or_taken_away():
    stack = FractionalStack(dense(), step_size=[0.1] * 6)
    del stack.layers[5]
    assert stack.step_sizes.tolist() == [0.1] * 5
    stack.layers.extend(dense(n_layers=2))
    with pytest.raises(FracdnnError, match="step_size must hold one number for each of the 7 layers, got 6"):
        stack.step_sizes  # noqa: B018


@pytest.mark.parametrize(("learned", "most"), [(False, 2600), (True, 3200)])
def test_a_layer_costs_a_handful_of_calls(learned, most):
    """Forward and back together, inside the package: small stacks spend their time in such calls."""
    home, calls = str(Path(fracdnn.__file__).parent), 0
    layers = [nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(200)]
    deep, x = FractionalStack(layers, learn_order=learned), torch.randn(2, 3)
    deep(x).sum().backward()

    def count(frame, event, _):
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(home)

    sys.setprofile(count)
    try:
        deep(x).sum().backward()
    finally:
        sys.setprofile(None)
    assert 600 < calls <= most


def test_layers_are_added_as_to_a_sequential():
    first, second, third, fourth = dense(n_layers=4)
    stack = FractionalStack([second], order=0.3, learn_order=True)
    assert stack.append(third).extend([fourth]).insert(0, first) is stack
    assert list(stack) == [first, second, third, fourth]
    assert stack.step_sizes.tolist() == [0.2] * 4
    expected = FractionalStack([first, second, third, fourth], order=0.3, learn_order=True)
    torch.testing.assert_close(stack(batch(5, 4)), expected(batch(5, 4)))
    with pytest.raises(FracdnnError, match="layers must hold torch modules, got str at index 0"):
        stack.append("tanh")


@pytest.mark.parametrize("options", [{"order": [0.5] * 3}, {"learn_steps": True}, {"learn_order": "layer"}], ids=str)
def test_values_for_single_layers_allow_no_other_layers(options):
    stack = FractionalStack(dense(n_layers=3), **options)
    with pytest.raises(FracdnnError, match="one order and one step size for all layers to get more of them"):
        stack.append(dense(n_layers=1)[0])
    assert len(stack) == 3


@pytest.mark.parametrize("learn_order", [True, "layer"])
def test_learned_orders_and_steps_start_again_where_they_started(learn_order):
    stack = FractionalStack(dense(), order=0.3, step_size=0.4, learn_order=learn_order, learn_steps=True)
    for part in (stack, stack[1:3]):
        before = part.order.clone(), part.step_sizes.clone()
        with torch.no_grad():
            for learned in (part.memory.learned_order, part.memory.learned_steps):
                learned.raw.add_(1.0)
        part.memory.reset_parameters()
        torch.testing.assert_close((part.order, part.step_sizes), before)
