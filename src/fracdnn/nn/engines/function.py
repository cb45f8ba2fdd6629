"""A network as one operation of autograd, whose engine goes back by hand."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory import MemoryPlan
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.engines import operations
from fracdnn.nn.engines.kernel import KernelLayers
from fracdnn.nn.engines.layers import NetworkPass
from fracdnn.nn.engines.printed import PrintedLayers
from fracdnn.nn.engines.products import ProductLayers
from fracdnn.tracing import is_batch_of_cotangents

_BY_HAND = {"products": ProductLayers, "kernel": KernelLayers, "printed": PrintedLayers}


def run(engine: str, architecture: Architecture, plan: MemoryPlan, x: torch.Tensor, weights: Weights) -> torch.Tensor:
    """The outputs, by an engine that `choose` has found able to serve."""
    if engine == "operations":
        return operations.outputs(architecture, plan, x, weights)
    memory = plan.weight_tensors if plan.learned else ()
    if torch.is_grad_enabled():
        result = _Function.apply(engine, architecture, plan, x, *weights, *memory)
    else:
        result = NetworkPass(_BY_HAND[engine], architecture, plan, weights).outputs(x)
    if result.is_cpu and not math.isfinite(result.detach().sum()):
        with torch.no_grad():
            operations.outputs(architecture, plan, x, weights)  # raises, and names the layer, unless only the sum did
    return result


class _Function(torch.autograd.Function):
    """The outputs from x, the weights, and the memory's weights where they are learned."""

    @staticmethod
    def forward(
        ctx: Any,
        engine: str,
        architecture: Architecture,
        plan: MemoryPlan,
        x: torch.Tensor,
        *tensors: torch.Tensor | None,
    ) -> torch.Tensor:
        weights = Weights(*tensors[: len(Weights._fields)])  # type: ignore[arg-type]
        ctx.engine, ctx.architecture, ctx.plan = engine, architecture, plan
        ctx.save_for_backward(x, *weights)
        ctx.walk = NetworkPass(_BY_HAND[engine], architecture, plan, weights)
        return ctx.walk.outputs(x)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, *weights = ctx.saved_tensors  # also checks that nobody wrote into them since
        needed = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled() or is_batch_of_cotangents(cotangent):
            if ctx.engine == "printed":
                raise InvalidArgumentError(
                    "adjoint must be 'exact' for second derivatives and batches of cotangents, got 'continuous'; "
                    "the printed adjoint has neither"
                )
            gradients = _differentiable_gradients(ctx.architecture, ctx.plan, (x, *weights), needed, cotangent)
        else:
            with torch.no_grad():
                gradients = ctx.walk.back(cotangent)
        found = (each if need else None for each, need in zip(gradients, needed, strict=True))
        return (None, None, None, *found)


def _differentiable_gradients(
    architecture: Architecture,
    plan: MemoryPlan,
    inputs: Sequence[torch.Tensor | None],
    needed: Sequence[bool],
    cotangent: torch.Tensor,
) -> list[torch.Tensor | None]:
    """The gradients in torch operations, for second derivatives and for many cotangents at once."""
    with torch.enable_grad():
        # Aliases, so that hooks on the inputs run once: where the gradients arrive, not here.
        aliases = [None if each is None else each.view_as(each) for each in inputs]
        x, *weights = aliases
        assert x is not None
        result = operations.outputs(architecture, plan, x, Weights(*weights))  # type: ignore[arg-type]
    sources = (*aliases, *(plan.weight_tensors if plan.learned else ()))
    wanted = [each for each, need in zip(sources, needed, strict=True) if need]
    graph = torch.is_grad_enabled()
    found = iter(torch.autograd.grad(result, wanted, cotangent, create_graph=graph, allow_unused=True))  # type: ignore[arg-type]
    return [next(found) if need else None for need in needed]
