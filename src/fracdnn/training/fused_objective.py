"""The objective and its gradients by one compiled pass through the network, for networks of the paper's size.

Autograd goes through a network twice, and takes longer from one operation to the next than a small network needs for
all of them. Here value and gradients are computed together (`fracdnn.nn.fused`), and autograd is told of them as of one
operation. What is computed is what `Objective` says, up to rounding; second derivatives go by its own operations.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.functional import linear

from fracdnn.nn import FractionalNetwork
from fracdnn.nn.fused import MAX_WIDTH, Loss, usual_gradients, usual_state
from fracdnn.tracing import has_tensor_hooks, is_batch_of_cotangents

if TYPE_CHECKING:
    from fracdnn.training.objective import Objective


class Evaluation(NamedTuple):
    """The objective, the outputs, and gradients of the inputs that it was computed from, in their order.

    The inputs are Y_0, one row of K, b and W, and the matrix of the opening map where its decay counts.
    """

    value: float
    outputs: torch.Tensor
    inputs: list[torch.Tensor]
    gradients: list[torch.Tensor | None]

    def backward(self) -> None:
        """Add the gradients to those of the parameters."""
        rest: tuple[list[torch.Tensor], list[torch.Tensor | None]] = ([], [])
        for each, gradient in zip(self.inputs, self.gradients, strict=True):
            if not each.requires_grad:
                continue
            if each.is_leaf and each.grad is None and not has_tensor_hooks(each):
                each.grad = gradient  # what autograd would do, in a tenth of its time
            else:
                rest[0].append(each)
                rest[1].append(gradient)
        if rest[0]:
            torch.autograd.backward(*rest)


def evaluated(
    objective: "Objective",
    network: FractionalNetwork,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
) -> Evaluation | None:
    """The objective with its gradients; nothing where that does not apply: take the usual path."""
    if (
        network.width > MAX_WIDTH
        or not torch.is_grad_enabled()
        or not are_plain_data(objective.loss, network, x, target, weight)
    ):
        return None
    passed = network.tiles(x)
    if passed is None:
        return None
    tiles, y, parameters = passed
    regularization, inputs = objective.regularization, [y, parameters]
    if regularization.decay and network.opening is not None:
        inputs.append(network.opening.weight)
    if not any(each.requires_grad for each in inputs):
        return None
    loss = Loss(objective.loss, target, weight, objective.label_smoothing)
    with torch.no_grad():
        found = tiles.loss(loss, y, parameters, to_start=y.requires_grad)
        if found is None:
            return None
        others = [torch.zeros_like(each) for each in inputs[2:]]
        value = found.value + regularization.add_gradients(
            (*network.split(parameters), *inputs[2:]), (*network.split(found.parameters), *others)
        )
    return Evaluation(value, found.outputs, inputs, [found.y, found.parameters, *others])


def with_graph(
    objective: "Objective",
    network: FractionalNetwork,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    found: Evaluation,
) -> torch.Tensor:
    """The value of an evaluation as autograd knows it."""

    def usual(y: torch.Tensor, parameters: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        K, b, W = network.split(parameters)
        assert network.stack is not None
        outputs = linear(usual_state(network.stack, y, K, b), W)
        return objective.data_loss(outputs, target, weight) + objective.regularization.of(K, b, W, *others)

    value = torch.tensor(found.value, dtype=found.outputs.dtype)
    return _Known.apply(value, found.gradients, usual, *found.inputs)


def are_plain_data(
    loss: str, network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None
) -> bool:
    """Whether targets and weights are such as the quicker ways take."""
    if x.dim() != 2:
        return False
    n_outputs, n = network.W.out_features, len(x)
    if loss == "cross_entropy":
        fits = target.dtype is torch.int64 and target.shape == (n,)
    else:
        fits = target.dtype is x.dtype and target.shape == (n, n_outputs)
    if weight is not None:
        fits = fits and weight.dtype is x.dtype and weight.shape == (n,)
    return fits and all(
        type(each) is torch.Tensor and each.is_cpu and not each.requires_grad
        for each in ((target,) if weight is None else (target, weight))
    )


class _Known(torch.autograd.Function):
    """A value whose gradients are known already; `usual` computes it from the same inputs in torch operations."""

    @staticmethod
    def forward(
        ctx: Any,
        value: torch.Tensor,
        gradients: Sequence[torch.Tensor | None],
        usual: Callable[..., torch.Tensor],
        *inputs: torch.Tensor,
    ) -> torch.Tensor:
        ctx.gradients, ctx.usual = gradients, usual
        ctx.save_for_backward(*inputs)
        return value

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, needed = ctx.saved_tensors, ctx.needs_input_grad[3:]
        if torch.is_grad_enabled() or is_batch_of_cotangents(cotangent):
            return (None, None, None, *usual_gradients(ctx.usual, inputs, needed, cotangent))
        # A product also where the cotangent is 1: whoever gets the gradients may write into them.
        products = (cotangent * each if need else None for each, need in zip(ctx.gradients, needed, strict=True))
        return (None, None, None, *products)
