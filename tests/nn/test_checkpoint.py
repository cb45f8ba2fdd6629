"""`FractionalStack(checkpoint=True)`: the same values and gradients from less memory."""

import copy
import math
import re
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch import nn
from torch._dynamo import lookup_backend
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from fracdnn.exceptions import FracdnnError, StateChangedError
from fracdnn.memory import recomputation as lengths
from fracdnn.nn import FractionalStack, WithoutSkip
from tests.nn.problems import Seen, bytes_held
from tests.slow import each_once, slow_but

STEPS = [0.1, 0.2, 0.3, 0.1, 0.2]
ORDERS = [0.3, 0.9, 1.0, 0.5, 0.7]
SETTINGS = {
    "0.3": {"order": 0.3},
    "0.9": {"order": 0.9},
    "1": {"order": 1.0},
    "compressed": {"order": 0.3, "compress": True},
    "steps": {"order": 0.3, "step_size": STEPS},
    "steps of order 1": {"order": 1.0, "step_size": STEPS},
    "orders": {"order": ORDERS},
    "learned order": {"order": 0.9, "learn_order": True},
    "learned order, compressed": {"order": 0.3, "learn_order": True, "compress": True},
    "learned orders": {"order": 0.7, "learn_order": "layer"},
    "learned steps": {"order": 0.3, "learn_steps": True},
    "learned steps of order 1": {"order": 1.0, "learn_steps": True},
    "both": {"order": 0.9, "learn_order": "layer", "learn_steps": True},
}


def dense(n_layers, width=4, dtype=torch.float64, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return [nn.Sequential(nn.Linear(width, width), nn.Tanh()).to(dtype) for _ in range(n_layers)]


def batch(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def pair(layers, dtype=torch.float64, **options):
    """A stack without checkpoints, and one with, of copies of the same layers."""
    n_layers = len(layers)
    options = {
        name: (value * n_layers)[:n_layers] if isinstance(value, list) else value for name, value in options.items()
    }
    stacks = [FractionalStack(copy.deepcopy(layers), checkpoint=again, **options) for again in (False, True)]
    return [stack.to(dtype) for stack in stacks]


def loss(y):
    return (y * torch.cos(torch.arange(y.numel(), dtype=y.dtype, device=y.device)).view_as(y)).sum()


def outcome(stack, x, **options):
    """The values, and the gradients by input and parameters."""
    x = x.clone().requires_grad_()
    y = stack(x, **options)
    return [y.detach(), *torch.autograd.grad(loss(y), [x, *stack.parameters()])]


def assert_same(mine, theirs, tolerance=1e-12):
    for one, two in zip(mine, theirs, strict=True):
        assert (one - two).norm() <= tolerance * two.norm()


class Counted(nn.Module):
    """Counts its calls, in a plain attribute."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.calls = layer, 0

    def forward(self, y, *arguments):
        self.calls += 1
        return self.layer(y, *arguments)


DEEP = slow_but(  # of several segments
    [("1", 130), ("learned order, compressed", 130)],
    [(name, 130) for name in ("0.3", "1", "compressed", "learned order, compressed", "both")],
)


@pytest.mark.parametrize(("name", "n_layers"), [*each_once(SETTINGS, (9, 33, 1, 2)), *DEEP])
def test_values_and_gradients_are_the_same(name, n_layers):
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
        plain, again = pair(dense(n_layers, dtype=dtype), dtype, **SETTINGS[name])
        x = batch(3, 4, dtype=dtype)
        assert_same(outcome(again, x), outcome(plain, x), tolerance)
        assert again.compressed_ == plain.compressed_
        mine, theirs = (outcome(stack, x, trajectory=True) for stack in (again, plain))
        assert mine[0].shape == (n_layers + 1, 3, 4)
        assert_same(mine, theirs, tolerance)


@pytest.mark.parametrize("learn_order", [False, True])
def test_large_states_on_compiled_sums(learn_order):
    plain, again = pair(dense(100, width=16), order=0.5, learn_order=learn_order)
    x = batch(64, 16)
    assert_same(outcome(again, x), outcome(plain, x))


ON = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none")
    ),
]


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize(("n_layers", "learn_order"), each_once([17, 40], [True, "layer"]))
def test_large_states_with_weights_of_their_own_dtype(n_layers, learn_order, device):
    """Weights in float64, like the states, are used as they are: a segment begins again inside a block of them."""
    plain, again = pair(dense(n_layers, width=64), order=0.5, learn_order=learn_order, compress=False)
    x = batch(256, 64).to(device)
    assert_same(outcome(again.to(device), x), outcome(plain.to(device), x))


@pytest.mark.parametrize(("compress", "learn_order"), each_once([False, True], [False, True]))
def test_channels_last(compress, learn_order):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 3, 3, padding=1).double() for _ in range(40)]
    x = batch(2, 3, 5, 4).contiguous(memory_format=torch.channels_last)
    formats = []
    layers = [
        Seen(layer, lambda y: formats.append(y.is_contiguous(memory_format=torch.channels_last))) for layer in layers
    ]
    plain, again = pair(layers, order=0.5, step_size=0.1, compress=compress, learn_order=learn_order)
    assert_same(outcome(again, x), outcome(plain, x))
    assert all(formats)


@pytest.mark.parametrize(("compress", "dtype"), each_once([False, True], [torch.float16, torch.bfloat16]))
def test_half_precision(compress, dtype):
    """Bit by bit, but for the learned order: its gradient is a sum over states that need not be rounded here."""
    plain, again = pair(dense(40, dtype=dtype), dtype, order=0.5, learn_order=True, compress=compress)
    x, names = batch(3, 4, dtype=dtype), ["y", "x", *(name for name, _ in again.named_parameters())]
    exact = outcome(copy.deepcopy(plain).double(), x.double())
    for name, mine, theirs, right in zip(names, outcome(again, x), outcome(plain, x), exact, strict=True):
        if "order" in name:
            assert_same([mine.double()], [right], 4 * torch.finfo(dtype).eps)
        else:
            assert torch.equal(mine, theirs), name


@pytest.mark.parametrize("order", [0.5, 1.0])
def test_layers_run_twice_and_in_segments(order):
    layers = [Counted(layer) for layer in dense(60)]
    stack = FractionalStack(layers, order=order, checkpoint=True)
    y = stack(batch(3, 4))
    assert [layer.calls for layer in layers] == [1] * 60
    y.sum().backward(retain_graph=True)
    assert [layer.calls for layer in layers] == [2] * 60
    y.sum().backward()
    assert [layer.calls for layer in layers] == [3] * 60
    stack.layers = stack.layers[:50]
    stack(batch(3, 4)).sum().backward()
    assert [layer.calls for layer in layers] == [5] * 50 + [3] * 10, "a part of it computes again, too"


@pytest.mark.parametrize("compress", [False, True])
def test_losses_on_parts_of_a_trajectory(compress):
    plain, again = pair(dense(70), order=0.3, learn_order=True, compress=compress)
    x = batch(3, 4)
    for chosen in ([0], [5], [40], [0, 17, 52], [70]):
        found = [
            torch.autograd.grad(
                loss(stack(x, trajectory=True)[chosen]),
                list(stack.parameters()),
                allow_unused=True,
                materialize_grads=True,
            )
            for stack in (again, plain)
        ]
        assert_same(*found)


def most_alive(n_layers, **options):
    """Results of layers that are in memory at once, at most, and how many are between the passes."""
    alive, counts = weakref.WeakSet(), []

    def count(layer, inputs, result):
        alive.add(result.untyped_storage())
        counts.append(len(alive))

    layers = dense(n_layers)
    for layer in layers:
        layer.register_forward_hook(count)
    y = FractionalStack(layers, **options)(batch(3, 4))
    between = len(alive)
    y.sum().backward()
    return max(counts), between


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ({"order": 1.0}, 10),
        ({"order": 1.0, "learn_steps": True}, 10),
        ({"compress": False}, 2),
        ({"compress": False, "learn_order": True}, 2),
        ({"compress": True}, 48),
        ({"compress": True, "learn_order": True}, 56),  # a few more exponentials
    ],
)
def test_what_layers_make_is_there_for_one_segment_only(options, length):
    assert most_alive(400, **options) == (400, 400)
    most, between = most_alive(400, checkpoint=True, **options)
    assert between <= 1
    assert length - 2 <= most <= length + 2


def test_between_the_passes_there_is_one_state_for_each_segment():
    stack, x = FractionalStack(dense(100), order=1.0, checkpoint=True), batch(1000, 4).requires_grad_()
    n_segments = len(lengths.segments(100, states=1, block=1))
    assert n_segments <= bytes_held(lambda: stack(x)) / (x.numel() * x.element_size()) < n_segments + 6


@pytest.mark.parametrize("training", [True, False])
def test_dropout_draws_the_same_masks_again(training):
    layers = [nn.Sequential(layer, nn.Dropout(0.5)) for layer in dense(40)]
    plain, again = (stack.train(training) for stack in pair(layers, order=0.5, learn_order=True))
    found = []
    for stack in (again, plain):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            found.append(outcome(stack, batch(3, 4)))
            found[-1].append(torch.rand(2, dtype=torch.float64))  # what is drawn after is the same, too
    assert_same(*found)


@pytest.mark.parametrize("compress", [False, True])
def test_running_statistics_change_once(compress):
    layers = [nn.Sequential(layer, nn.BatchNorm1d(4).double()) for layer in dense(40)]
    plain, again = pair(layers, order=0.5, compress=compress)
    for seed in range(3):
        assert_same(outcome(again, batch(6, 4, seed=seed)), outcome(plain, batch(6, 4, seed=seed)))
    assert again.layers[7][1].num_batches_tracked == 3
    for mine, theirs in zip(again.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    for stack in (plain.eval(), again.eval()):
        stack(batch(6, 4)).sum().backward()
    assert again.layers[7][1].num_batches_tracked == 3


def test_layers_that_compute_with_what_they_count_compute_the_same_again():
    """The power iterations of spectral normalisation move with each call; one layer many times moves them often."""
    (layer,) = dense(1)
    parametrizations.spectral_norm(layer[0])
    for layers in ([copy.deepcopy(layer) for _ in range(20)], [layer] * 20):
        plain, again = pair(layers, order=0.5)
        assert_same(outcome(again, batch(3, 4)), outcome(plain, batch(3, 4)))
        for mine, theirs in zip(again.buffers(), plain.buffers(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


class Drifting(nn.Module):
    """Computes something else in each call, by a number that is a plain attribute or a buffer."""

    def __init__(self, layer, *, buffer, amount=0.02):
        super().__init__()
        self.layer, self.amount = layer, torch.as_tensor(amount, dtype=torch.float64)
        if buffer:
            self.register_buffer("calls", torch.zeros((), dtype=torch.float64))
        else:
            self.calls = 0.0

    def forward(self, y):
        self.calls += 1
        return self.layer(y) * (1 + self.amount * self.calls)


OTHERWISE = (
    r"layer \d+ \(\w+\)( to layer \d+ \(\w+\))? must compute the same when called again, as checkpointing does in "
    "the backward pass, got another state; keep what a layer changes from call to call in buffers, change parameters "
    "after the backward pass, or pass checkpoint=False"
)


@pytest.mark.parametrize(
    ("name", "drifting"), each_once(["0.3", "1", "compressed", "learned order, compressed", "both"], [0, 17, 39])
)
def test_layers_with_plain_state_are_refused(name, drifting):
    layers = dense(40)
    layers[drifting] = Drifting(layers[drifting], buffer=False)
    _, again = pair(layers, **SETTINGS[name])
    with pytest.raises(StateChangedError, match=f"^{OTHERWISE}$") as caught:
        outcome(again, batch(3, 4))
    first, *last = (int(number) for number in re.findall(r"layer (\d+)", str(caught.value)))
    assert first <= drifting <= (last or [first])[0]
    # As the message says: a buffer is put back, and without checkpoints there is no second call.
    layers[drifting] = Drifting(layers[drifting].layer, buffer=True)
    plain, again = pair(layers, **SETTINGS[name])
    for _ in range(2):
        assert_same(outcome(again, batch(3, 4)), outcome(plain, batch(3, 4)))


@pytest.mark.parametrize("amount", [1e-6, 0.02])
@pytest.mark.parametrize("order", [0.5, 1.0])
def test_a_small_component_that_drifts_is_noticed(order, amount):
    """One of four, 1e6 times smaller than the others."""
    scale = torch.tensor([1.0, 1.0, 1e-6, 1.0], dtype=torch.float64)
    amounts = torch.tensor([0.0, 0.0, amount, 0.0])
    layers = [Drifting(nn.Tanh(), buffer=False, amount=amounts) for _ in range(9)]
    stack = FractionalStack(layers, order=order, checkpoint=True)
    with pytest.raises(StateChangedError, match=OTHERWISE):
        stack((batch(3, 4) * scale).requires_grad_()).sum().backward()


def test_a_loss_on_a_state_inside_a_segment_is_held_to_it_too():
    layers = [Drifting(layer, buffer=False) for layer in dense(40)]
    states = FractionalStack(layers, order=1.0, checkpoint=True)(batch(3, 4), trajectory=True)
    with pytest.raises(StateChangedError, match=OTHERWISE):
        states[2].sum().backward()


@pytest.mark.parametrize("order", [0.5, 1.0])
def test_what_is_done_to_the_result_is_no_change_of_a_layer(order):
    plain, again = pair(dense(20), order=order)
    found = []
    for stack in (again, plain):
        y = stack(batch(3, 4)).mul_(3.0)
        found.append(torch.autograd.grad(loss(y.relu_()), list(stack.parameters())))
    assert_same(*found)


def test_parameters_that_change_between_the_passes_are_noticed():
    stack = FractionalStack([nn.Sequential(nn.Linear(4, 4).double(), nn.Tanh()) for _ in range(9)], checkpoint=True)
    y = stack(batch(3, 4))
    with torch.no_grad():
        stack[3][0].weight.mul_(1.01)
    with pytest.raises(StateChangedError, match=OTHERWISE):
        y.sum().backward()


class Jittery(nn.Module):
    """Computes the same up to rounding, as kernels do that sum in another order each time; each component by itself."""

    def __init__(self, scale):
        super().__init__()
        self.scale, self.calls = scale, 0

    def forward(self, y):
        self.calls += 1
        return self.scale * torch.cos(2 * y / self.scale) * (1 + 4 * torch.finfo(y.dtype).eps * (self.calls % 2))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("order", [0.5, 1.0])
def test_rounding_is_no_change(order, dtype):
    """Also of components 1e6 apart, and next to 0 in single samples."""
    scale = torch.tensor([1.0, 1e-6, 1e6, 1.0], dtype=dtype)
    x = (batch(64, 4, dtype=dtype) * scale).requires_grad_()
    layers = [Jittery(scale) for _ in range(30)]
    stack = FractionalStack(layers, order=order, checkpoint=True)
    for _ in range(3):
        (gradient,) = torch.autograd.grad(loss(stack(x)), x)
        assert bool(torch.isfinite(gradient).all())
    assert {layer.calls for layer in layers} == {6}


@pytest.mark.parametrize("compress", [False, True])
def test_autocast(compress):
    plain, again = pair(dense(40, dtype=torch.float32), torch.float32, order=0.5, learn_order=True, compress=compress)
    found, seen = [], []
    for stack in (again, plain):
        stack[39].register_forward_hook(lambda _, __, output: seen.append(output.dtype))
        x = batch(3, 4, dtype=torch.float32).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            y = stack(x)
        assert y.dtype is torch.float32
        found.append([y.detach(), *torch.autograd.grad(loss(y), [x, *stack.parameters()])])  # outside of autocast
    assert seen == [torch.bfloat16] * 3
    assert_same(*found, 1e-5)


@pytest.mark.parametrize("compress", [False, True])
def test_gradients_at_states_are_whole_and_hooks_change_them(compress):
    found = []
    for again in (True, False):
        states, clipped = [], []

        def look(y, states=states, clipped=clipped):
            if len(states) < 30:  # those of the first call
                states.append(y)
                y.register_hook(lambda gradient: gradient.clamp(-0.05, 0.05))
                y.register_hook(lambda gradient: clipped.append(gradient))

        layers = [Seen(layer, look) for layer in dense(30)]
        stack = FractionalStack(layers, order=0.5, compress=compress, checkpoint=again)
        backward = []
        stack[3].register_full_backward_hook(lambda _, received, __, backward=backward: backward.append(received[0]))
        x = batch(3, 4).requires_grad_()
        y = stack(x)
        for state in states:
            state.retain_grad()
        loss(y).backward()
        assert len(clipped) == 30
        assert len(backward) == 1
        found.append(
            [*(state.grad for state in states), *clipped, *backward, x.grad, *(p.grad for p in stack.parameters())]
        )
    assert_same(*found)


@pytest.mark.parametrize("way", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("order", [0.5, 1.0])
def test_without_gradients_it_makes_no_difference(way, order):
    layers = [Counted(layer) for layer in dense(70)]
    plain, again = pair(layers, order=order)
    with way():
        for stack in (plain.eval(), again.eval()):
            stack(batch(3, 4), trajectory=True)
        assert torch.equal(again(batch(3, 4)), plain(batch(3, 4)))
    assert again[0].calls == 2
    for parameter in again.parameters():
        parameter.requires_grad_(False)
    assert not again(batch(3, 4)).requires_grad


@pytest.mark.parametrize("compress", [False, True])
def test_second_derivatives_and_many_cotangents(compress):
    plain, again = pair(dense(20), order=0.5, learn_order=True, compress=compress)
    found = []
    for stack in (again, plain):
        x = batch(3, 4).requires_grad_()
        inputs = [x, *stack.parameters()]
        first = torch.autograd.grad(loss(stack(x)), inputs, create_graph=True)
        second = torch.autograd.grad(sum(gradient.pow(2).sum() for gradient in first), inputs)
        y = stack(x).reshape(-1)
        jacobian = torch.autograd.grad(y, inputs, torch.eye(len(y), dtype=y.dtype), is_grads_batched=True)
        found.append([*first, *second, *jacobian])
    assert_same(*found)


@pytest.fixture
def nan_for_unwritten_memory():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("compress", [False, True])
def test_nested_checkpoints_and_backward_passes_in_threads(compress, nan_for_unwritten_memory):
    plain, again = pair(dense(40), order=0.5, learn_order=True, compress=compress)
    x = batch(3, 4).requires_grad_()
    expected = torch.autograd.grad(loss(plain(x)), list(plain.parameters()))
    outer = checkpoint(again, x, use_reentrant=False)
    assert_same(torch.autograd.grad(loss(outer), list(again.parameters())), expected)
    whole = loss(again(x))
    backward = partial(torch.autograd.grad, whole, list(again.parameters()), retain_graph=True)
    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(backward) for _ in range(6)]:
            assert_same(each.result(), expected)


def test_further_arguments_and_attention():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [
            WithoutSkip(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True)).double() for _ in range(6)
        ]
    plain, again = pair(layers, order=0.5)
    mask, found = torch.triu(torch.full((5, 5), -math.inf, dtype=torch.float64), 1), []
    for stack in (again, plain):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            found.append(outcome(stack, batch(2, 5, 4), src_mask=mask))
    assert_same(*found)


@pytest.mark.parametrize("order", slow_but([0.5], [0.5, 1.0]))
def test_compiled_and_transformed_stacks_run_without(order):
    plain, again = pair(dense(6), order=order)
    x = batch(3, 4)
    expected = outcome(plain, x)
    assert_same(outcome(torch.compile(again, backend="aot_eager", fullgraph=True), x), expected)
    exported = torch.export.export(again, (x,)).module()
    torch.testing.assert_close(exported(x), expected[0], rtol=1e-12, atol=1e-12)
    _, tangent = torch.func.jvp(again, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent, torch.func.jvp(plain, (x,), (torch.ones_like(x),))[1], rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch's own
def test_compiled_layers():
    layers, graphs = [nn.Sequential(layer, nn.BatchNorm1d(4).double()) for layer in dense(9)], []
    plain, again = pair(layers, order=0.5)

    def backend(graph, inputs):
        graphs.append(graph)
        return lookup_backend("aot_eager")(graph, inputs)

    torch._dynamo.reset()
    again.layers = nn.ModuleList([torch.compile(layer, backend=backend) for layer in again])
    assert_same(outcome(again, batch(6, 4)), outcome(plain, batch(6, 4)))
    assert len(graphs) == 1  # which serves all layers, and their second calls
    for mine, theirs in zip(again.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bad", [1, "yes", None, math.nan])
def test_a_flag_that_is_none_is_refused(bad):
    with pytest.raises(FracdnnError, match=r"checkpoint must be True or False, got .*; pass a bool"):
        FractionalStack(dense(2), checkpoint=bad)


def test_an_error_in_the_first_call_names_the_layer():
    layers = [*dense(9), nn.ReLU(inplace=True), *dense(3)]
    with pytest.raises(FracdnnError, match=r"layer 9 \(ReLU\) must not change the state it is given"):
        FractionalStack(layers, checkpoint=True)(batch(3, 4))
    layers[9] = nn.Linear(5, 4).double()
    with pytest.raises(RuntimeError) as caught:
        FractionalStack(layers, checkpoint=True)(batch(3, 4))
    assert "in layer 9 (Linear) of a FractionalStack" in caught.value.__notes__[0]


@pytest.mark.parametrize("block", [1, 8, 32])
@pytest.mark.parametrize("n_layers", [1, 2, 7, 8, 9, 64, 1000])
def test_segments_hold_every_layer_once(n_layers, block):
    found = lengths.segments(n_layers, states=22, block=block)
    assert [j for segment in found for j in segment] == list(range(1, n_layers + 1))
    assert all(segment.start % block == 0 for segment in found[1:])
    assert all(found)


def test_segments_grow_like_the_root_of_the_depth():
    few, many = (lengths.segments(n_layers, states=4, block=1) for n_layers in (100, 10_000))
    assert (len(few), len(many)) == (11, 101)
    assert {len(segment) for segment in many[1:-1]} == {100}
