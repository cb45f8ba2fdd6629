"""Stacks, networks and solves under torch's own machinery, each against the plain run."""

import textwrap
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from fracdnn import fdeint
from fracdnn.exceptions import FracdnnError
from fracdnn.nn import DenseLayer, FractionalNetwork, FractionalStack
from fracdnn.solver import Given
from tests.nn.processes import run_as_two_processes
from tests.slow import each_once, slow_but
from tests.solver.calls import grouped


class Solve(nn.Module):
    """The end of a solve with a learned order."""

    def __init__(self, n_steps=3, **options):
        super().__init__()
        self.linear, self.order = nn.Linear(4, 4), nn.Parameter(torch.tensor(0.6))
        self.n_steps, self.options = n_steps, options

    def forward(self, x):
        times = torch.linspace(0, 1, self.n_steps + 1, dtype=torch.float64)
        slope = lambda t, y: torch.tanh(self.linear(y))  # noqa: E731
        return fdeint(
            slope,
            x,
            times,
            order=self.order,
            method="l1",
            grid=Given(),
            trajectory=False,
            **grouped(**self.options),
        )


def stack(n_layers=3, **options):
    return FractionalStack([nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(n_layers)], **options)


MODELS = {
    "stack": stack,
    "compressed": partial(stack, compress=True),
    "residual": partial(stack, order=1.0),
    "learned order": partial(stack, learn_order=True),
    "learned steps": partial(stack, learn_steps=True),
    "network": partial(FractionalNetwork, 4, 2, n_layers=3),
    "learned network": partial(FractionalNetwork, 4, 2, n_layers=3, learn_order=True),
    "fdeint": Solve,
    "fdeint compressed": partial(Solve, compress=True),
}


def made(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODELS[name]().double()


def batch(n=3, seed=0):
    return torch.randn(n, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def values_and_gradients(model, run, x):
    model.zero_grad()
    x = x.clone().requires_grad_()
    y = run(x)
    y.pow(2).sum().backward()
    return [y.detach(), x.grad, *[parameter.grad for parameter in model.parameters()]]


def assert_same(mine, theirs, tolerance=1e-9):
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def compiled_autograd(*, fullgraph):
    torch._dynamo.reset()
    return torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=fullgraph))


# Torch's own, where it compiles a backward pass.
not_a_leaf = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")


@not_a_leaf
@pytest.mark.slow  # the step below is compiled with its backward pass, too
@pytest.mark.parametrize("name", MODELS)
def test_compiled_autograd(name):
    model, x = made(name), batch()
    expected = values_and_gradients(model, model, x)
    with compiled_autograd(fullgraph=True):
        found = values_and_gradients(model, model, x)
    assert_same(found, expected)


@not_a_leaf
def test_a_training_step_compiled_with_its_backward_pass():
    model, x = made("learned order"), batch()
    expected = values_and_gradients(model, model, x)[2:]

    def step(x):
        loss = model(x).pow(2).sum()
        loss.backward()
        return loss

    torch._dynamo.reset()
    model.zero_grad()
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(step, backend="eager")(x)
    assert_same([parameter.grad for parameter in model.parameters()], expected)


@not_a_leaf
def test_compiled_autograd_of_a_forward_pass_without_it_is_refused():
    y = made("stack")(batch())
    with compiled_autograd(fullgraph=False), pytest.raises(FracdnnError, match="must be on for the forward pass too"):
        y.sum().backward()


@pytest.mark.parametrize(
    ("name", "products"), each_once(MODELS, [CheckpointPolicy.MUST_SAVE, CheckpointPolicy.MUST_RECOMPUTE])
)
def test_selective_checkpoints(name, products):
    """Every product is kept and all else computed again, or the other way round."""
    aten, other = torch.ops.aten, {
        CheckpointPolicy.MUST_SAVE: CheckpointPolicy.MUST_RECOMPUTE,
        CheckpointPolicy.MUST_RECOMPUTE: CheckpointPolicy.MUST_SAVE,
    }[products]  # fmt: skip

    def policy(context, operation, *arguments, **options):
        return products if operation.overloadpacket in (aten.mm, aten.addmm, aten.bmm, aten.addmm_) else other

    model, x = made(name), batch()
    expected = values_and_gradients(model, model, x)
    contexts = partial(create_selective_checkpoint_contexts, policy)
    run = partial(checkpoint, model, use_reentrant=False, context_fn=contexts)
    assert_same(values_and_gradients(model, run, x), expected)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"learn_order": True}, marks=pytest.mark.slow),
        {"learn_order": "layer"},
        pytest.param({"compress": True}, marks=pytest.mark.slow),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore")  # of the exporter itself
def test_onnx_of_a_stack(options, tmp_path):
    """Fixed weights are constants of the program; learned ones are computed from the order by elementary operations."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    stack = FractionalStack([nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(5)], order=0.5, **options)
    x = torch.randn(3, 4)
    path = tmp_path / "stack.onnx"
    shapes = ({0: torch.export.Dim("n", min=2)},)
    torch.onnx.export(stack, (x,), dynamo=True, dynamic_shapes=shapes, verbose=False).save(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    other = torch.randn(7, 4)
    found = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: other.numpy()})[0])
    torch.testing.assert_close(found, stack(other).detach(), rtol=1e-5, atol=1e-6)


FORMS = [{"order": 0.5}, {"order": 0.5, "compress": True}, {"order": 1.0}]


@pytest.mark.parametrize("name", slow_but(["compressed", "learned network", "fdeint"], list(MODELS)))
def test_export_with_a_batch_of_any_size(name):
    model, x = made(name), batch()
    model(x)
    sizes = ({0: torch.export.Dim("n", min=2)},)
    exported = torch.export.export(model, (x,), dynamic_shapes=sizes).module()
    for other in (x, batch(7, seed=1)):
        torch.testing.assert_close(exported(other), model(other), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", slow_but(FORMS[1:2], FORMS), ids=str)
def test_an_exported_stack_is_saved_and_loaded(form, tmp_path):
    stack = FractionalStack([nn.Linear(4, 4) for _ in range(3)], **form)
    x, path = torch.randn(3, 4), tmp_path / "stack.pt2"
    torch.export.save(torch.export.export(stack, (x,)), path)
    torch.testing.assert_close(torch.export.load(path).module()(x), stack(x))


@pytest.mark.parametrize(
    ("form", "dtype", "space"),
    each_once(FORMS, [torch.float64, torch.float32, torch.bfloat16], [(8, 8), (4, 4, 4)]),
    ids=str,
)
@pytest.mark.parametrize("transformed", [False, True])
def test_channels_last_stays(form, dtype, space, transformed):
    """In the states that layers see and in what they become; for small states and for those of compiled sums."""
    convolution, channels_last = (
        (nn.Conv2d, torch.channels_last) if len(space) == 2 else (nn.Conv3d, torch.channels_last_3d)
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [convolution(4, 4, 3, padding=1).to(dtype) for _ in range(20)]
        x = torch.randn(8, 4, *space).to(dtype)
    model, seen = FractionalStack(layers, **form), []
    expected = model(x)
    assert expected.is_contiguous()
    for layer in layers:
        layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    given = x.to(memory_format=channels_last)
    with torch.no_grad():
        result = torch.func.jvp(model, (given,), (given,))[0] if transformed else model(given)
    assert all(state.is_contiguous(memory_format=channels_last) for state in [*seen, result])
    assert len(seen) == 20
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 0.05}[dtype]
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("form", [{}, {"compress": True}], ids=str)
def test_gradients_of_channels_last(form):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = FractionalStack([nn.Conv2d(4, 4, 3, padding=1) for _ in range(20)], **form).double()
        x = torch.randn(2, 4, 6, 6, dtype=torch.float64)
    expected = values_and_gradients(model, model, x)
    assert_same(values_and_gradients(model, model, x.to(memory_format=torch.channels_last)), expected, 1e-11)


@pytest.fixture
def quantized_engine():
    if "qnnpack" not in torch.backends.quantized.supported_engines:
        pytest.skip("needs torch's QNNPACK, and this build has none")
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "qnnpack"
    yield
    torch.backends.quantized.engine = before


@pytest.mark.usefixtures("quantized_engine")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize("bias", [True, "scalar", False])
def test_quantization_of_linear_layers(bias):
    x = batch(20).float()
    network = FractionalNetwork(4, 2, n_layers=6, width=16, bias=bias, generator=torch.Generator().manual_seed(0))
    modules = network.as_modules(linear_layers=True)
    torch.testing.assert_close(modules(x), network(x))
    quantized = torch.ao.quantization.quantize_dynamic(modules, {nn.Linear})
    kinds = [type(module) for module in quantized.modules()]
    assert kinds.count(torch.ao.nn.quantized.dynamic.Linear) == 8  # input projection, six layers, W
    difference = (quantized(x) - network(x)).abs().max()
    assert 0 < difference < 0.05 * network(x).abs().max()


def test_modules_of_linear_layers_are_for_dense_networks():
    stencil = FractionalNetwork(4, 2, n_layers=2, operator="nine-point", grid_shape=(2, 2))
    with pytest.raises(FracdnnError, match="linear_layers must be False for operator='nine-point', got True"):
        stencil.as_modules(linear_layers=True)
    with pytest.raises(FracdnnError, match="linear_layers must be True or False, got 'yes'"):
        stencil.as_modules(linear_layers="yes")


def test_single_numbers_have_an_axis():
    """`fully_shard` takes none without."""
    assert all(parameter.dim() for parameter in stack(learn_order=True, order=0.7).parameters())
    assert stack(learn_order=True).order.dim() == 0
    assert DenseLayer(torch.eye(4), torch.tensor(0.5), "tanh").b.shape == (1,)


def test_distributed_and_sharded_training_give_the_gradient_of_the_whole_batch(tmp_path):
    """Two real processes with gloo, half a batch each; sharded also with layers and root in bfloat16."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, torch
            from torch import nn, distributed
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
            from fracdnn.nn import FractionalNetwork, FractionalStack
            rank, store, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
            distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
            mesh, x = init_device_mesh("cpu", (2,)), torch.randn(8, 4, generator=torch.Generator().manual_seed(1))

            def stack(n_layers=3, **options):
                layers = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(n_layers)]
                return FractionalStack(layers, learn_order=True, **options)

            def checkpoints():
                return stack(9, checkpoint=True)

            def compressed_checkpoints():
                return stack(20, checkpoint=True, compress=True)

            def network():
                return FractionalNetwork(4, 4, n_layers=3, learn_order=True)

            def modules():
                return FractionalNetwork(4, 4, n_layers=3, bias="scalar", learn_order=True).as_modules()

            def gradient_of_whole(model):
                return torch.autograd.grad(model(x).pow(2).mean(), list(model.parameters()))

            for checkpoint in (False, True):
                torch.manual_seed(0)
                model = stack(5, checkpoint=checkpoint)
                whole, parallel = gradient_of_whole(model), nn.parallel.DistributedDataParallel(model)
                parallel(x[4 * rank : 4 * rank + 4]).pow(2).mean().backward()
                for parameter, full in zip(model.parameters(), whole, strict=True):
                    torch.testing.assert_close(parameter.grad, full)

            half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            for make in (stack, checkpoints, compressed_checkpoints, network, modules):
                for policy, tolerance in ((MixedPrecisionPolicy(), 1e-5), (half, 0.05)):
                    torch.manual_seed(0)
                    plain = make()
                    expected, whole = plain(x), gradient_of_whole(plain)
                    torch.manual_seed(0)
                    model = make()
                    for part in list(model.modules()):
                        if isinstance(part, FractionalStack):
                            for layer in part:
                                fully_shard(layer, mesh=mesh, mp_policy=policy)
                            fully_shard(part.memory.learned_order, mesh=mesh)
                    fully_shard(model, mesh=mesh, mp_policy=policy)
                    y = model(x[4 * rank : 4 * rank + 4])
                    assert y.dtype == (policy.param_dtype or torch.float32)
                    torch.testing.assert_close(
                        y.float(), expected[4 * rank : 4 * rank + 4], rtol=tolerance, atol=tolerance
                    )
                    y.pow(2).mean().backward()
                    for parameter, full in zip(model.parameters(), whole, strict=True):
                        difference = parameter.grad.full_tensor() - full
                        assert difference.norm() <= tolerance * full.norm(), (make, policy)
            open(out + str(rank), "w").write("agrees")
            # without this gloo's threads may still run while Python ends, and abort the process (pytorch issue 190489)
            distributed.destroy_process_group()
            """
        ),
        encoding="utf-8",
    )
    run_as_two_processes(script)
