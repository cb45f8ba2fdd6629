"""Ways to call a module, and to ask for its derivatives.

A call takes parameters by name, or None for the module's own, and x. A derivative takes a call, the module, x and a
`Question`, and gives the outputs "y" and what it found for x and the parameters, by name.
"""

import copy
import io
from dataclasses import dataclass, replace

import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

from tests.campaign.layers import WITH_HOOKS_ON_GRADIENTS


@dataclass(frozen=True)
class Question:
    """What the loss sees: the outputs with random weights, but for the last `unseen` states of a trajectory."""

    trajectory: bool
    unseen: int
    seed: int

    def random(self, like, number=0):
        generator = torch.Generator().manual_seed(100 * self.seed + number)
        return torch.randn(like.shape, dtype=torch.float64, generator=generator).to(like.dtype)

    def weights(self, y):
        weights = self.random(y)
        if self.trajectory and self.unseen:
            weights[-self.unseen :] = 0.0
        return weights

    def loss(self, y):
        return (self.weights(y) * y).sum()


def called(module, trajectory, wrappers=()):
    """A call of the module through these wrappers, the first of them outermost."""
    keywords = {"trajectory": True} if trajectory else {}

    def call(parameters, x):
        return module(x, **keywords) if parameters is None else functional_call(module, parameters, (x,), keywords)

    for name in reversed([name for name in wrappers if name in _WRAPPERS]):
        call = _WRAPPERS[name](call, trajectory)
    return call


def copied(module, wrappers):
    """The module, or the copy of it that some wrappers ask for."""
    if "deepcopy" in wrappers:
        module = copy.deepcopy(module)
    if "state dict" in wrappers:
        other, file = copy.deepcopy(module), io.BytesIO()
        for parameter in other.parameters():
            parameter.data.add_(0.1)
        torch.save(module.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        module = other
    if "compile" in wrappers:
        torch._dynamo.reset()
        module.compile(backend="aot_eager", fullgraph=True)
    return module


def _within(context):
    """Calls inside a context."""

    def wrapper(call, trajectory):
        def inside(parameters, x):
            with context():
                return call(parameters, x)

        return inside

    return wrapper


def _after(context):
    """A call inside a context first, and then one without."""

    def wrapper(call, trajectory):
        def again(parameters, x):
            with context():
                call(parameters, x)
            return call(parameters, x)

        return again

    return wrapper


def _checkpoint(reentrant):
    return lambda call, trajectory: lambda parameters, x: checkpoint(call, parameters, x, use_reentrant=reentrant)


def _by_sample(call, trajectory):
    return lambda parameters, x: vmap(lambda sample: call(parameters, sample), out_dims=int(trajectory))(x)


_WRAPPERS = {
    "checkpoint": _checkpoint(False),
    "reentrant checkpoint": _checkpoint(True),
    "saved tensors": _within(lambda: torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone)),
    "autocast": _within(lambda: torch.autocast("cpu", torch.bfloat16)),
    "inference first": _after(torch.inference_mode),
    "no grad first": _after(torch.no_grad),
    "by sample": _by_sample,
}
WRAPPERS = (*_WRAPPERS, "deepcopy", "state dict")
CALLING_TWICE = ("checkpoint", "reentrant checkpoint", "inference first", "no grad first")


def _inputs(module, x):
    """What requires a gradient, by name."""
    named = {"x": x, **dict(module.named_parameters())}
    return {name: tensor for name, tensor in named.items() if tensor.requires_grad}


def _zeros_for_none(inputs, gradients):
    pairs = zip(inputs.items(), gradients, strict=True)
    return {name: torch.zeros_like(tensor) if each is None else each for (name, tensor), each in pairs}


def by_backward(call, module, x, question):
    inputs, y = _inputs(module, x), call(None, x)
    if y.requires_grad:
        question.loss(y).backward()
    return {"y": y, **_zeros_for_none(inputs, [tensor.grad for tensor in inputs.values()])}


def by_two_backwards(call, module, x, question):
    inputs, y = _inputs(module, x), call(None, x)
    if y.requires_grad:
        loss = question.loss(y)
        loss.backward(retain_graph=True)
        loss.backward()
    halves = [None if tensor.grad is None else 0.5 * tensor.grad for tensor in inputs.values()]
    return {"y": y, **_zeros_for_none(inputs, halves)}


def by_grad(call, module, x, question):
    inputs, y = _inputs(module, x), call(None, x)
    if not y.requires_grad:
        return {"y": y, **_zeros_for_none(inputs, [None] * len(inputs))}
    found = torch.autograd.grad(question.loss(y), list(inputs.values()), allow_unused=True)
    return {"y": y, **_zeros_for_none(inputs, found)}


def by_batch_of_cotangents(call, module, x, question):
    inputs, y = _inputs(module, x), call(None, x)
    if not y.requires_grad:
        return {"y": y, **_zeros_for_none(inputs, [None] * len(inputs))}
    cotangents = torch.stack([question.random(y, 1), question.weights(y)])
    options = {"is_grads_batched": True, "allow_unused": True}
    found = torch.autograd.grad(y, list(inputs.values()), cotangents, **options)
    return {"y": y, **_zeros_for_none(inputs, [None if each is None else each[1] for each in found])}


def second_derivatives(call, module, x, question):
    """The Hessian of the loss times random directions."""
    inputs, y = _inputs(module, x), call(None, x)
    found = [None] * len(inputs)
    if y.requires_grad:
        loss = question.loss(y) + y.square().sum()
        first = torch.autograd.grad(loss, list(inputs.values()), create_graph=True, allow_unused=True)
        slopes = [(g * question.random(g, k)).sum() for k, g in enumerate(first) if g is not None]
        found = torch.autograd.grad(sum(slopes), list(inputs.values()), allow_unused=True)
    return {"y": y, **_zeros_for_none(inputs, found)}


def _detached(module, x):
    """Parameters that are not frozen, and x: what torch.func differentiates by."""
    return {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}, x.detach()


def _named(x, found):
    parameters, of_x = found
    return {**({"x": of_x} if x.requires_grad else {}), **parameters}


def by_vjp(call, module, x, question):
    y, back = vjp(call, *_detached(module, x))
    return {"y": y, **_named(x, back(question.weights(y)))}


def by_jacobian(transformation):
    def derivative(call, module, x, question):
        point = _detached(module, x)
        y = call(*point)
        weights = question.weights(y)
        parameters, of_x = transformation(call, argnums=(0, 1))(*point)

        def contracted(jacobian):
            return (
                torch.tensordot(weights.to(jacobian.dtype), jacobian, y.dim())
                if y.numel()
                else jacobian.sum(tuple(range(y.dim())))
            )

        return {"y": y, **_named(x, ({name: contracted(j) for name, j in parameters.items()}, contracted(of_x)))}

    return derivative


def by_gradients_of_samples(call, module, x, question):
    point = _detached(module, x)
    y, along = call(*point), int(question.trajectory)

    def loss(parameters, sample, weights):
        return (weights * call(parameters, sample)).sum()

    found = vmap(grad(loss, argnums=(0, 1)), in_dims=(None, 0, along))(*point, question.weights(y))
    return {"y": y, **_named(x, ({name: each.sum(0) for name, each in found[0].items()}, found[1]))}


def _directions(module, x, question):
    parameters, x = _detached(module, x)
    along = {name: question.random(p, k + 3) for k, (name, p) in enumerate(parameters.items())}
    return (parameters, x), (along, question.random(x, 2))


def tangents_by_jvp(call, module, x, question):
    y, tangent = jvp(call, *_directions(module, x, question))
    return {"y": y, "tangent": tangent}


def tangents_by_dual_numbers(call, module, x, question):
    (parameters, x), (along, along_x) = _directions(module, x, question)
    with forward_ad.dual_level():
        dual = {name: forward_ad.make_dual(p, along[name]) for name, p in parameters.items()}
        y, tangent = forward_ad.unpack_dual(call(dual, forward_ad.make_dual(x, along_x)))
    return {"y": y, "tangent": torch.zeros_like(y) if tangent is None else tangent}


def forward_over_reverse(call, module, x, question):
    """As `second_derivatives`, along one direction of all inputs together."""

    def loss(parameters, x):
        y = call(parameters, x)
        return question.loss(y) + y.square().sum()

    point, along = _directions(module, x, question)
    _, (parameters, of_x) = jvp(grad(loss, argnums=(0, 1)), point, along)
    return {"y": call(*point), "x": of_x, **parameters}


OF_AUTOGRAD = {
    "backward": by_backward,
    "two backwards": by_two_backwards,
    "grad": by_grad,
    "batch of cotangents": by_batch_of_cotangents,
    "second": second_derivatives,
}
OF_FUNC = {
    "vjp": by_vjp,
    "jacrev": by_jacobian(jacrev),
    "jacfwd": by_jacobian(jacfwd),
    "gradients of samples": by_gradients_of_samples,
    "jvp": tangents_by_jvp,
    "dual numbers": tangents_by_dual_numbers,
    "forward over reverse": forward_over_reverse,
}
DERIVATIVES = OF_AUTOGRAD | OF_FUNC
SECOND = ("second", "forward over reverse")


def by_definition(name):
    """How the definition is asked for the same."""
    if name in SECOND:
        return DERIVATIVES[name]
    return tangents_by_jvp if name in ("jvp", "dual numbers") else by_backward


def made_possible(case):
    """The case, without what torch does not do together."""
    derivative, hooked = case.derivative, any(kind in WITH_HOOKS_ON_GRADIENTS for kind in case.layers)
    # A module's hook runs where its input has a gradient.
    learn_x = case.learn_x or "backward hook" in case.layers
    has_samples = len(case.shape) > 1 and case.shape[0] > 0
    if derivative == "gradients of samples" and not has_samples:
        derivative = "vjp"
    if derivative == "jacrev" and 0 in case.shape:  # torch cannot vectorise over no cotangents at all
        derivative = "vjp"
    impossible = set()
    if derivative in OF_FUNC:
        impossible |= {*CALLING_TWICE, "saved tensors"}
    if hooked or not has_samples or derivative == "gradients of samples":
        impossible |= {"by sample"}
    elif "by sample" in case.wrappers:
        impossible |= {"checkpoint", "reentrant checkpoint", "saved tensors", "inference first"}
    if case.dtype != "float32":
        impossible |= {"autocast"}
    if "clipped" in case.layers and case.order == 1.0:  # a residual network's first state is x: each call hooks it anew
        impossible |= {*CALLING_TWICE}
    impossible |= {"checkpoint"} if learn_x and "reentrant checkpoint" in case.wrappers else {"reentrant checkpoint"}
    wrappers = tuple(name for name in case.wrappers if name not in impossible)
    if "reentrant checkpoint" in wrappers:
        derivative = "backward"
    elif derivative in SECOND and (case.dtype == "bfloat16" or "autocast" in wrappers):
        derivative = "grad" if derivative == "second" else "vjp"
    return replace(case, learn_x=learn_x, derivative=derivative, wrappers=wrappers)
