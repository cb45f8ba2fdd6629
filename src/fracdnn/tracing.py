"""Every private call into torch: what is traced, transformed, hooked or watched, and which backward pass is under way.

Torch has no public way to ask these questions. A new version of torch that moves one of them is met here,
`tests/test_tracing.py` has a test for each, and `tests/test_torch_private.py` lists these and the few of other files.
"""

import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack, temporarily_restore_interpreter_stack
from torch.nn.modules import module as torch_modules
from torch.utils import checkpoint as torch_checkpoint
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

_COMPILED_AUTOGRAD = "torch._dynamo.compiled_autograd"  # where it is not imported, it is not on
_SELECTIVE = (torch_checkpoint._CachingTorchDispatchMode, torch_checkpoint._CachedTorchDispatchMode)
_BATCHED, _FUNCTIONAL_BATCHED = (torch._C._dispatch_key_parse(kind) for kind in ("Batched", "FuncTorchBatched"))


# How many `TorchDispatchMode`s have to see every operation: FLOP counters, fake tensors, functionalisation.
in_dispatch_mode: Callable[[], int] = torch._C._len_torch_dispatch_stack


def being_traced() -> bool:
    """Whether `torch.compile`, `torch.export`, `torch.jit.trace` or a `torch.func` transform is under way.

    Values are not known then, or not those of later calls.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
    )


class Watch(NamedTuple):
    """The answers of `being_traced` and `being_transformed` at the entrance of a pass, which passes them on."""

    traced: bool
    transformed: bool

    @staticmethod
    def now() -> "Watch":
        traced = being_traced()
        return Watch(traced, traced or being_transformed())


class Mapping(NamedTuple):
    """A `torch.func.vmap` of so many samples under way, of level 1: not inside of another transform."""

    size: int

    @staticmethod
    def now() -> "Mapping | None":
        """None unless that is all that is under way."""
        if not torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling():
            return None
        found = torch._C._functorch.peek_interpreter_stack()
        if found is None or found.key() != torch._C._functorch.TransformType.Vmap or found.level() != 1:
            return None
        return Mapping(torch._C._functorch.CVmapInterpreterPtr(found).batchSize())

    def whole(self, tensor: torch.Tensor) -> torch.Tensor:
        """With the dimension that is mapped over as its first; one that is not mapped is repeated."""
        return torch._C._functorch._remove_batch_dim(tensor, 1, self.size, 0)

    def mapped(self, tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """Of a whole tensor, one that is mapped over a dimension."""
        return torch._C._functorch._add_batch_dim(tensor, dim, 1)


# Contexts: as if no transform were under way, with what there was as its value; inside of it, as if that still were.
outside_of_transforms = temporarily_clear_interpreter_stack
inside_of_transforms = temporarily_restore_interpreter_stack


def values_are_unknown(tensor: torch.Tensor | None = None) -> bool:
    """Whether nobody may look at values, or at those of a tensor: they are traced, or a CUDA graph is captured."""
    if being_traced():
        return True
    if tensor is not None and not tensor.is_cuda:
        return False
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def being_transformed() -> bool:
    """Whether operations have to be plain ones.

    They are traced, forward-mode derivatives go along, compiled autograd will trace the backward pass, or a selective
    checkpoint keeps results one by one, which nobody may write into then. Called so often that it calls little itself.
    """
    return (
        being_traced()
        or torch.autograd.forward_ad._current_level >= 0
        or getattr(sys.modules.get(_COMPILED_AUTOGRAD), "compiled_autograd_enabled", False)
        or (in_dispatch_mode() > 0 and any(isinstance(mode, _SELECTIVE) for mode in _get_current_dispatch_mode_stack()))
    )


def backward_is_compiled() -> bool:
    """Whether compiled autograd runs, or traces, the backward pass under way."""
    return getattr(sys.modules.get(_COMPILED_AUTOGRAD), "in_compiled_autograd_region", False)


def carries_derivative(tensor: torch.Tensor) -> bool:
    """Whether a derivative by a tensor may be needed: in reverse mode, in forward mode, or by `torch.func`."""
    if torch.compiler.is_compiling() or tensor.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return True
    forward_ad = torch.autograd.forward_ad
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def outside_of_modes(make: Callable[[], Any]) -> Any:
    """What `make` gives in a thread of its own, where no hook, mode, autocast or inference mode of the caller's is.

    For constants that outlive the call that first needs them: on a GPU they are there for every stream, unless a CUDA
    graph is being captured, which then makes them.
    """
    stream = torch.cuda.current_stream() if torch.cuda.is_initialized() else None  # a thread has streams of its own

    def made() -> Any:
        with torch.no_grad(), nullcontext() if stream is None else torch.cuda.stream(stream):
            return make()

    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(made).result()
    if stream is not None and not torch.cuda.is_current_stream_capturing():
        stream.synchronize()
    return found


def operations_are_watched(device: str = "cpu") -> bool:
    """Whether anything transforms or observes every operation, so that none may be left out or combined."""
    return bool(
        being_transformed()
        or in_dispatch_mode()
        or torch._C._len_torch_function_stack()
        or torch.is_autocast_enabled(device)
        or torch.is_anomaly_enabled()
        or torch_modules._has_any_global_hook()
    )


def has_module_hooks(module: nn.Module) -> bool:
    """Whether calling a module does more than its class's `forward`: hooks, a replaced `forward`, a compiled call."""
    state = module.__dict__
    return bool(
        state["_forward_hooks"]
        or state["_forward_pre_hooks"]
        or state["_backward_hooks"]
        or state["_backward_pre_hooks"]
        or "forward" in state
        or module._compiled_call_impl is not None
    )


def has_tensor_hooks(*tensors: torch.Tensor | None) -> bool:
    """Whether somebody wants to see the gradient of one of these tensors before or after it is accumulated."""
    return any(x is not None and bool(x._backward_hooks or x._post_accumulate_grad_hooks) for x in tensors)


def versions(tensors: Iterable[torch.Tensor]) -> list[int]:
    """How often each was written into; tensors made in inference mode do not count that."""
    return [0 if each.is_inference() else each._version for each in tensors]


def is_batch_of_cotangents(cotangent: torch.Tensor) -> bool:
    """`torch.autograd.grad(is_grads_batched=True)` sends a batch as one wrapped tensor, which no buffer can take."""
    keys = torch._C._dispatch_keys(cotangent)
    return keys.has(_BATCHED) or keys.has(_FUNCTIONAL_BATCHED)


# The number of the backward pass that is under way in this thread: unique, also for nested passes.
backward_task: Callable[[], int] = torch._C._current_graph_task_id
# Has a function called when the backward pass under way ends, however it ends but by an error.
when_backward_ends: Callable[[Callable[[], Any]], None] = torch.autograd.Variable._execution_engine.queue_callback


def apply_outside_of_transforms(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` where no `torch.func` transform is under way, less the time it takes to look for one."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def sequence_number(node: Any) -> int:
    """Of a node of the graph: later nodes of one thread have larger ones."""
    return node._sequence_nr()


def default_store() -> Any:
    """Where the processes of torch.distributed's default group leave notes for each other."""
    return torch.distributed.distributed_c10d._get_default_store()
