"""The objective and its gradients, evaluated: the one place that decides how.

Usually a backward pass of autograd through loss and network, to which the gradients of the regularization are added:
they are known. Where a network runs on a kernel of small networks, that computes loss and gradients in one pass, and
they go to the parameters directly: autograd would take longer than the kernel. Whoever hooks parameters, or subclasses
the objective, has it all by autograd.
"""

import math

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.kernels.tiles import LOSSES, Loss
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.architecture import Weights
from fracdnn.nn.engines import triton
from fracdnn.nn.engines.by_hand import LossLayers, Walk
from fracdnn.nn.engines.choose_engine import LAYERS
from fracdnn.tracing import has_module_hooks, has_tensor_hooks
from fracdnn.training.objective import Objective
from fracdnn.training.regularization import Regularization
from fracdnn.training.samples import Chunk

# The objective, on a GPU as a tensor, and the outputs.
Evaluation = tuple[float | torch.Tensor, torch.Tensor]


def backward(
    objective: Objective,
    network: FractionalNetwork,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
) -> tuple[float, torch.Tensor]:
    """The objective as a number and the outputs; the gradients are added to those of the parameters."""
    value, outputs = evaluate(objective, network, (x, target, weight))
    number = float(value)
    if not math.isfinite(number) and x.is_cuda:
        check_labels(objective.loss, network.architecture.n_outputs, target)
    return number, outputs


def evaluate(objective: Objective, network: FractionalNetwork, chunk: Chunk) -> Evaluation:
    """The same with a value that stays on a GPU, for which nobody waits."""
    (x, target, weight), weights = chunk, network.weights()
    with torch.enable_grad():
        if not is_plain(objective) or has_tensor_hooks(*weights):
            outputs = network(x)
            value = objective.of_outputs(network, outputs, target, weight)
            value.backward()
            return _number(value), outputs.detach()
        found = _inside(objective, network, chunk, weights)
        if found is not None:
            return found
        outputs = network(x)
        loss = objective.data_loss(outputs, target, weight)
        loss.backward()
    with torch.no_grad():
        return _number(loss) + objective.regularization.add_to_gradients(weights), outputs.detach()


def is_plain(objective: Objective) -> bool:
    """Whether an objective is what its fields say."""
    return type(objective) is Objective and type(objective.regularization) is Regularization


def _number(value: torch.Tensor) -> float | torch.Tensor:
    return value.detach() if value.is_cuda else float(value.detach())


def _inside(objective: Objective, network: FractionalNetwork, chunk: Chunk, weights: Weights) -> Evaluation | None:
    """The same with the loss inside a kernel; None where that cannot run, or where autograd has to say what is
    wrong.
    """
    x, target, weight = chunk
    if not (network.may_run_on_kernel or x.is_cuda):
        return None
    if type(network) is not FractionalNetwork or has_module_hooks(network):
        return None
    if not _kernel_takes(objective.loss, network.architecture.n_outputs, chunk):
        return None
    engine, plan = network.route(x, weights)
    kind = LAYERS.get(engine)
    if kind is None or not issubclass(kind, LossLayers):
        return None
    loss = Loss(objective.loss, target, weight, objective.label_smoothing)
    with torch.no_grad():
        found = Walk(kind, network.architecture, plan, weights).loss(x, loss)
    if found is None:
        return None
    value, outputs, gradients, memory = found
    if memory:
        torch.autograd.backward(plan.weight_tensors, memory)
    with torch.no_grad():
        _add_gradients(weights, gradients)
        return value + objective.regularization.add_to_gradients(weights), outputs


def _kernel_takes(loss: str, n_outputs: int, chunk: Chunk) -> bool:
    """Whether targets and weights are such as the kernel takes."""
    x, target, weight = chunk
    if loss not in LOSSES or x.dim() != 2 or x.requires_grad:
        return False
    if loss == "cross_entropy":
        fits = target.dtype is torch.int64 and target.shape == (len(x),)
    else:
        fits = target.dtype is x.dtype and target.shape == (len(x), n_outputs)
    if weight is not None:
        fits = fits and weight.dtype is x.dtype and weight.shape == (len(x),)
    data = (target,) if weight is None else (target, weight)
    plain = all(type(each) is torch.Tensor and each.device == x.device and not each.requires_grad for each in data)
    return fits and plain and (x.is_cpu or n_outputs <= triton.MAX_OUTPUTS)


def check_labels(loss: str, n_outputs: int, target: torch.Tensor) -> None:
    """Refuse labels that have no output: on a GPU an evaluation does not look, and the loss is NaN."""
    if loss != "cross_entropy" or not len(target):
        return
    bad = target[(target < 0) | (target >= n_outputs)]
    if len(bad):
        raise InvalidArgumentError(
            f"target must hold classes from 0 to {n_outputs - 1} for {n_outputs} outputs, got {int(bad[0])}; "
            f"number the classes from 0, or give the network more outputs"
        )


def _add_gradients(parameters: Weights, gradients: Weights) -> None:
    """As autograd accumulates: a gradient lies in memory as its parameter does."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if parameter is None or gradient is None or not parameter.requires_grad:
            continue
        if parameter.grad is not None:
            parameter.grad.add_(gradient)
        elif parameter.stride() == gradient.stride():
            parameter.grad = gradient
        else:
            parameter.grad = torch.empty_like(parameter).copy_(gradient)
