"""The objective and its gradients, evaluated: the one place that decides how.

Usually a backward pass of autograd through loss and network, to which the gradients of the regularization are added:
they are known. Where a network runs on a kernel of small networks, that computes loss and gradients in one pass, and
they go to the parameters directly: autograd would take longer than the kernel. Whoever hooks parameters, or subclasses
the objective, has it all by autograd.

Of several ranks each evaluates its samples, at once or chunk by chunk. Loss and gradients, times the weight of these
samples, and that weight are one row of numbers, added up in float64, and divided. The regularization is added once,
after it. So all ranks have the same numbers to the last bit, and those of one process up to the order of summation.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import torch

from fracdnn.exceptions import InvalidArgumentError, NotFiniteError
from fracdnn.kernels.codes import LOSSES
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.architecture import Weights
from fracdnn.nn.engines import triton
from fracdnn.nn.engines.by_hand import Loss, Walk
from fracdnn.nn.engines.choose_engine import LAYERS
from fracdnn.tracing import has_module_hooks, has_tensor_hooks
from fracdnn.training import together
from fracdnn.training.objective import Objective, weighted_hits, whole_weight
from fracdnn.training.regularization import Regularization
from fracdnn.training.samples import Chunk

_NOT_FINITE = "states must stay finite, got one on some rank that is not; scale the data, or take a smaller step_size"
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
    plain = is_plain(objective) and not has_tensor_hooks(*weights)
    with torch.enable_grad():
        found = _inside(objective, network, chunk, weights) if plain else None
        if found is not None:
            return found
        outputs = network(x)
        loss = (objective.data_loss if plain else partial(objective.of_outputs, network))(outputs, target, weight)
        loss.backward()
    with torch.no_grad():
        value, decay = loss.detach(), objective.regularization.add_to_gradients(weights) if plain else 0.0
        return (value if value.is_cuda else float(value)) + decay, outputs.detach()


def is_plain(objective: Objective) -> bool:
    """Whether an objective is what its fields say."""
    return type(objective) is Objective and type(objective.regularization) is Regularization


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
    if kind is None or not hasattr(kind, "loss"):
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


def backward_together(
    objective: Objective, network: FractionalNetwork, chunks: Iterable[Chunk]
) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The objective over the samples of all ranks, its gradients added to those of the parameters.

    Then the outputs of the last chunk, zeros where its samples weigh nothing and are left out, and what `weighted_hits`
    gives for all samples.
    """
    if not is_plain(objective):
        raise InvalidArgumentError(
            f"objective must be an Objective itself on several processes, got a {type(objective).__name__}; "
            f"its data and its regularization are summed apart"
        )
    data = replace(objective, regularization=Regularization())
    parameters = [p for p in network.parameters() if p.requires_grad]
    before, sizes = [p.grad for p in parameters], [p.numel() for p in parameters]
    gradients = torch.zeros(sum(sizes), dtype=torch.float64, device=parameters[0].device)
    loss, whole, hits, outputs = 0.0, 0.0, 0.0, gradients[:0]
    with together.caught() as errors:
        for x, target, weight in chunks:
            share = whole_weight(x, weight)
            if not share:
                outputs = x.new_zeros(len(x), network.architecture.n_outputs)
                continue
            for parameter in parameters:
                parameter.grad = None
            value, outputs = backward(data, network, x, target, weight)
            loss, whole = loss + share * value, whole + share
            if objective.loss == "cross_entropy":
                hits += float(weighted_hits(outputs, target, weight)[0])
            found = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
            gradients.add_(torch.cat([each.reshape(-1) for each in found]), alpha=share)
    row = torch.cat([gradients.new_tensor([loss, whole, hits]), gradients])
    sums = _agreed_sum(row, errors, "the sum of loss and gradients")
    loss, whole, hits = sums[:3].tolist()
    for parameter, part, old in zip(parameters, (sums[3:] / whole).split(sizes), before, strict=True):
        gradient = part.view(parameter.shape).to(parameter.dtype)
        parameter.grad = gradient if old is None else old + gradient
    with torch.no_grad():
        decay = float(objective.regularization.add_to_gradients(network.weights()))
    return (loss / whole if whole else math.nan) + decay, outputs, torch.tensor([hits, whole], dtype=torch.float64)


@torch.no_grad()
def data_loss_together(objective: Objective, network: FractionalNetwork, chunks: Iterable[Chunk]) -> torch.Tensor:
    """The mean loss of the samples of all ranks, without gradients. What fails on one rank fails on all."""
    loss = whole = 0.0
    with together.caught() as errors:
        for x, target, weight in chunks:
            share = whole_weight(x, weight)
            if share:
                loss, whole = loss + share * float(objective.data_loss(network(x), target, weight)), whole + share
    sums = _agreed_sum(torch.tensor([loss, whole], dtype=torch.float64), errors, "the loss of held-out samples")
    return sums[0] / sums[1]


def _agreed_sum(row: torch.Tensor, errors: list[BaseException], what: str) -> torch.Tensor:
    """The sum over ranks; where a rank has an error, one on all of them."""
    errors = errors or together.noted_interrupt()
    failures = [error for error in errors if not isinstance(error, NotFiniteError)]
    sums = together.total(torch.cat([row.new_tensor([len(errors), len(failures)]), row]), what)
    n_errors, n_failed = sums[:2].tolist()
    if n_failed:
        together.settle("an evaluation", *failures)
    if n_errors:
        raise errors[0] if errors else NotFiniteError(_NOT_FINITE)
    return sums[2:]
