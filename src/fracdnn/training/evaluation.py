"""The objective and its gradients, evaluated: the one place that decides how.

Usually a backward pass of autograd through loss and network, to which the gradients of the regularisation are added:
they are known. Where a network runs on the small kernel, that computes loss and gradients in one pass, and they go to
the parameters directly: autograd would take longer than the kernel. Whoever hooks parameters, or subclasses the
objective, has it all by autograd.
"""

import torch

from fracdnn.kernels.tiles import LOSSES, Loss
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.architecture import Weights
from fracdnn.nn.engines.kernel import loss_and_gradients
from fracdnn.tracing import has_module_hooks, has_tensor_hooks
from fracdnn.training.objective import Objective
from fracdnn.training.regularization import Regularization


def backward(
    objective: Objective,
    network: FractionalNetwork,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
) -> tuple[float, torch.Tensor]:
    """The objective as a number and the outputs; the gradients are added to those of the parameters."""
    weights = network.weights()
    plain = type(objective) is Objective and type(objective.regularization) is Regularization
    with torch.enable_grad():
        if not plain or has_tensor_hooks(*weights):
            outputs = network(x)
            value = objective.of_outputs(network, outputs, target, weight)
            value.backward()
            return float(value.detach()), outputs.detach()
        found = _by_kernel(objective, network, x, target, weight, weights) if network.may_run_on_kernel else None
        if found is not None:
            return found
        outputs = network(x)
        loss = objective.data_loss(outputs, target, weight)
        loss.backward()
    with torch.no_grad():
        return float(loss) + objective.regularization.add_to_gradients(weights), outputs.detach()


def _by_kernel(
    objective: Objective,
    network: FractionalNetwork,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    weights: Weights,
) -> tuple[float, torch.Tensor] | None:
    """The same with the loss inside the kernel; None where that cannot serve, or where autograd has to say what is
    wrong.
    """
    if type(network) is not FractionalNetwork or has_module_hooks(network):
        return None
    if not _kernel_takes(objective.loss, network.architecture.n_outputs, x, target, weight):
        return None
    engine, plan = network.route(x, weights)
    if engine != "kernel":
        return None
    loss = Loss(objective.loss, target, weight, objective.label_smoothing)
    found = loss_and_gradients(network.architecture, plan, x, weights, loss)
    if found is None:
        return None
    with torch.no_grad():
        _add_gradients(weights, found.gradients)
        return found.value + objective.regularization.add_to_gradients(weights), found.outputs


def _kernel_takes(
    loss: str, n_outputs: int, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None
) -> bool:
    """Whether targets and weights are such as the kernel takes."""
    if loss not in LOSSES or x.dim() != 2 or x.requires_grad:
        return False
    if loss == "cross_entropy":
        fits = target.dtype is torch.int64 and target.shape == (len(x),)
    else:
        fits = target.dtype is x.dtype and target.shape == (len(x), n_outputs)
    if weight is not None:
        fits = fits and weight.dtype is x.dtype and weight.shape == (len(x),)
    data = (target,) if weight is None else (target, weight)
    return fits and all(type(each) is torch.Tensor and each.is_cpu and not each.requires_grad for each in data)


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
