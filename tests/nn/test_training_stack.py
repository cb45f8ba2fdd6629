"""A stack in everyday training: summed gradients, 16 bits, scaled losses, checkpoints, compiled layers, attention."""

import copy
from functools import partial
from itertools import product

import pytest
import torch
from torch import nn
from torch._dynamo import lookup_backend
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from fracdnn.caputo import l1_step_factor, memory_matrix
from fracdnn.memory import reference
from fracdnn.nn import FractionalStack, WithoutSkip
from tests.slow import each_once, slow_but

SETTINGS = {
    "exact": {},
    "compressed": {"compress": True},
    "learned order": {"learn_order": True},
    "learned steps": {"learn_steps": True},
    "residual": {"order": 1.0},
    "checkpoint": {"learn_order": True, "checkpoint": True},
}


def seeded(make, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def dense(n_layers=12, width=4, dtype=torch.float64, dropout=0.0):
    def layer():
        return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(dropout)).to(dtype)

    return seeded(lambda: [layer() for _ in range(n_layers)])


def batch(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def outcome(stack, x, run=None, seed=0):
    """The values, and the gradients by input and parameters; dropout draws the same masks each time."""
    x = x.clone().requires_grad_()
    y = seeded(lambda: (run or stack)(x), seed)
    stack.zero_grad()
    y.pow(2).sum().backward()
    return [y.detach(), x.grad, *[parameter.grad for parameter in stack.parameters()]]


def assert_same(mine, theirs, tolerance=1e-11):
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("options", "forward_first"), each_once(SETTINGS.values(), [False, True]), ids=str)
def test_half_batches_add_up_to_the_gradient_of_the_whole(options, forward_first):
    """One after the other, and with both forward passes before any backward pass; into the tensors that are there."""
    stack, x = FractionalStack(dense(), **options).double(), batch(6, 4)
    parameters = list(stack.parameters())
    expected = torch.autograd.grad(stack(x).pow(2).mean(), parameters)

    def half(part):
        return stack(part).pow(2).mean() / 2

    losses = [half(part) for part in (x[:3], x[3:])] if forward_first else (half(part) for part in (x[:3], x[3:]))
    held = []
    for loss in losses:
        loss.backward()
        held.append([parameter.grad for parameter in parameters])
    assert all(first is second for first, second in zip(*held, strict=True))
    assert_same(held[1], expected)


class Counted(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.calls = layer, 0

    def forward(self, y):
        self.calls += 1
        return self.layer(y)


class Checkpointed(nn.Module):
    """Torch's own checkpoint around one layer."""

    def __init__(self, layer, *, reentrant):
        super().__init__()
        self.layer, self.reentrant = layer, reentrant

    def forward(self, y):
        return checkpoint(self.layer, y, use_reentrant=self.reentrant)


@pytest.mark.parametrize(
    ("options", "way"),
    each_once(SETTINGS.values(), product(["stack", "layers"], [False, True])),
    ids=str,
)
def test_torch_checkpoints_around_a_stack_and_around_its_layers(options, way):
    around, reentrant = way
    layers, x = [Counted(layer) for layer in dense(dropout=0.3)], batch(3, 4)
    expected = outcome(FractionalStack(layers, **options).double(), x)
    before = layers[5].calls
    if around == "layers":
        stack = FractionalStack([Checkpointed(layer, reentrant=reentrant) for layer in layers], **options).double()
        run = stack
    else:
        stack = FractionalStack(layers, **options).double()
        run = partial(checkpoint, stack, use_reentrant=reentrant)
    assert_same(outcome(stack, x, run), expected)
    assert layers[5].calls - before == before + 1


@pytest.mark.parametrize("options", slow_but([{}, SETTINGS["checkpoint"]], SETTINGS.values()), ids=SETTINGS)
def test_parameters_of_16_bits_train_like_those_of_32(options):
    """Values and gradients are those of single precision up to rounding, where sums of 16 bits would be off by 7 %."""
    stack = FractionalStack(dense(30, 8), **{"order": 0.9, "step_size": 0.05, **options}).to(torch.bfloat16)
    exact, x = copy.deepcopy(stack).float(), batch(16, 8, dtype=torch.bfloat16)
    for found, expected in zip(outcome(stack, x), outcome(exact, x.float()), strict=True):
        assert found.dtype is torch.bfloat16
        assert (found - expected).norm() <= 0.03 * expected.norm()
    (first, last), (_, expected) = losses(stack, x), losses(exact, x.float())
    assert last < 0.6 * first
    assert last == pytest.approx(expected, rel=0.01)


def losses(stack, x):
    """Before and after twenty steps of gradient descent on turning the columns round."""
    optimizer, found = torch.optim.SGD(stack.parameters(), lr=2.0), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (stack(x) - x.flip(1)).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found[0], found[-1]


DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none"),
    ),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("options", "dtype"), each_once(SETTINGS.values(), [torch.float16, torch.bfloat16]), ids=str)
def test_a_scaled_loss_under_autocast(options, device, dtype):
    """Gradients too small for float16 come through scaled; one that overflows costs its step and halves the scale."""
    stack = FractionalStack(dense(dtype=torch.float32), **options).float().to(device)
    parameters, x = list(stack.parameters()), batch(6, 4, dtype=torch.float32).to(device)
    optimizer = torch.optim.SGD(parameters, lr=1e5)

    def gradients(scaler, factor=1e-7):
        optimizer.zero_grad()
        with torch.autocast(device, dtype):
            y = stack(x)
        scaler.scale(factor * y.pow(2).mean()).backward()
        scaler.unscale_(optimizer)
        return torch.cat([parameter.grad.reshape(-1) for parameter in parameters])

    def step(scaler):
        before = [parameter.detach().clone() for parameter in parameters]
        scaler.step(optimizer)
        scaler.update()
        return [not torch.equal(one, other) for one, other in zip(before, parameters, strict=True)]

    exact = torch.autograd.grad(1e-7 * stack(x).pow(2).mean(), parameters)
    exact = torch.cat([gradient.reshape(-1) for gradient in exact])
    lost = (gradients(torch.amp.GradScaler(device, init_scale=1.0)) - exact).norm() > 0.9 * exact.norm()
    assert lost == (dtype is torch.float16)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**16)
    assert (gradients(scaler) - exact).norm() <= torch.finfo(dtype).eps * exact.norm()
    assert all(step(scaler))
    assert scaler.get_scale() == 2.0**16
    scaler = torch.amp.GradScaler(device, init_scale=2.0**127)
    assert not gradients(scaler, 100.0).isfinite().any()
    assert not any(step(scaler))
    assert scaler.get_scale() == 2.0**126


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch's own
@pytest.mark.parametrize("options", slow_but([SETTINGS["checkpoint"], {}], SETTINGS.values()), ids=SETTINGS)
def test_compiled_layers_in_a_plain_stack(options):
    layers, x, graphs = dense(), batch(3, 4), []

    def backend(graph, inputs):
        graphs.append(graph)
        return lookup_backend("aot_eager")(graph, inputs)

    expected = outcome(FractionalStack(layers, **options).double(), x)
    torch._dynamo.reset()
    compiled = FractionalStack([torch.compile(layer, backend=backend) for layer in layers], **options).double()
    assert_same(outcome(compiled, x), expected)
    assert len(graphs) == 1  # which serves all layers


class Block(nn.Module):
    """A block as in GPT: y + attention(norm y), then + MLP(norm of that); no position sees a later one."""

    def __init__(self, width=8, n_heads=2):
        super().__init__()
        self.first_norm, self.second_norm, self.n_heads = nn.LayerNorm(width), nn.LayerNorm(width), n_heads
        self.attention, self.output = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, y):
        parts = self.attention(self.first_norm(y)).unflatten(-1, (3, self.n_heads, -1)).transpose(1, 3).unbind(2)
        seen = scaled_dot_product_attention(*parts, is_causal=True)
        y = y + self.output(seen.transpose(1, 2).flatten(2))
        return y + self.mlp(self.second_norm(y))


MASK = torch.full((5, 5), -torch.inf, dtype=torch.float64).triu(1)
BLOCKS = {
    "torch": (partial(nn.TransformerEncoderLayer, 8, 2, 16, dropout=0.0, batch_first=True), {"src_mask": MASK}),
    "gpt": (Block, {}),
}


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("block", BLOCKS)
def test_transformer_blocks_are_the_definition(block, compress):
    """Values and gradients, with what a block adds to its input as f; a later position changes no earlier one."""
    make, given = BLOCKS[block]
    blocks, x = seeded(lambda: [make().double() for _ in range(20)]), batch(2, 5, 8)
    stack = FractionalStack([WithoutSkip(each) for each in blocks], order=0.6, step_size=0.5, compress=compress)
    found = outcome(stack, x, partial(stack, **given))

    def definition(x):
        factors = l1_step_factor(0.6, 0.5).expand(20)
        return reference.propagate(memory_matrix(0.6, 20), factors, lambda j, y: blocks[j](y, **given) - y, x)[-1]

    assert_same(found, outcome(stack, x, definition), 1e-8)
    changed = x.clone()
    changed[:, -1] = 1.0
    other = stack(changed, **given)
    assert_same([other[:, :-1]], [found[0][:, :-1]])
    assert (other[:, -1] - found[0][:, -1]).abs().min() > 1e-3
