"""Every private call into torch: what is traced, transformed, hooked or watched, and which backward pass is under way.

Torch has no public way to answer these questions. A new version of torch that moves one of them is noticed here:
`tests/test_tracing.py` has a test for each, and `tests/test_torch_private.py` lists these and the few of other files.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack, temporarily_restore_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

_CALL = "_compiled_call_impl"  # an attribute of modules, where they are compiled
_COMPILED_AUTOGRAD = "torch._dynamo.compiled_autograd"  # if it is not imported, it is not on

# The `TorchDispatchMode`s that see every operation: FLOP counters, fake tensors, functionalization. Empty if none does.
in_dispatch_mode: Callable[[], list[Any]] = _get_current_dispatch_mode_stack
# Contexts: no transform is under way, with those that were as its value; inside of it, these transforms again.
outside_of_transforms = temporarily_clear_interpreter_stack
inside_of_transforms = temporarily_restore_interpreter_stack
# The unique number of the backward pass under way in this thread, also of nested ones; -1 if there is none.
backward_task: Callable[[], int] = torch._C._current_graph_task_id
# Registers a function to call when the backward pass under way ends, unless by an error.
when_backward_ends: Callable[[Callable[[], Any]], None] = torch.autograd.Variable._execution_engine.queue_callback


def being_traced() -> bool:
    """Return whether `torch.compile`, `torch.export`, `torch.jit.trace` or a `torch.func` transform is under way.

    Values are not known then, or not those of later calls.
    """
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or torch.jit.is_tracing()  # type: ignore[attr-defined]  # documented, but not in __all__


class Watch(NamedTuple):
    """Answers of `being_traced` and `being_transformed` at the entrance of a pass, which passes them on."""

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


def values_are_unknown(tensor: torch.Tensor | None = None) -> bool:
    """Return whether no value, or none of a tensor, may be read: it is traced, or a CUDA graph is captured."""
    if being_traced():
        return True
    if tensor is not None and not tensor.is_cuda:
        return False
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def being_transformed() -> bool:
    """Return whether operations have to be plain ones.

    They are traced, carry forward-mode derivatives, compiled autograd will trace the backward pass, or a selective
    checkpoint keeps results one by one, which must not be written into then.
    """
    return (
        being_traced()
        or torch.autograd.forward_ad._current_level >= 0
        or getattr(sys.modules.get(_COMPILED_AUTOGRAD), "compiled_autograd_enabled", False)
        or any(type(mode).__module__ == "torch.utils.checkpoint" for mode in in_dispatch_mode())
    )


def backward_is_compiled() -> bool:
    """Return whether compiled autograd runs, or traces, the backward pass under way."""
    return getattr(sys.modules.get(_COMPILED_AUTOGRAD), "in_compiled_autograd_region", False)


def carries_derivative(tensor: torch.Tensor) -> bool:
    """Return whether a derivative by a tensor may be needed: in reverse mode, in forward mode, or by `torch.func`."""
    if torch.compiler.is_compiling() or tensor.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return True
    forward_ad = torch.autograd.forward_ad
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def outside_of_modes(make: Callable[[], Any]) -> Any:
    """Return `make()`, computed where no transform, mode, autocast, default device or inference mode has an effect.

    For constants that outlive the call that first needs them. On a GPU all streams may read them, unless a CUDA graph
    is being captured, which then contains them.
    """
    with (
        outside_of_transforms(),
        _disable_current_modes(),
        torch._C.DisableTorchFunction(),
        torch.inference_mode(False),
        torch.no_grad(),
        torch.autocast("cpu", enabled=False),
    ):
        made = make()
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.current_stream().synchronize()
    return made


@contextmanager
def outside_of_saved_tensor_hooks() -> Iterator[None]:
    """Take all hooks on saved tensors away for a while, and put them back."""
    hooks = []
    while (top := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
        torch._C._autograd._pop_saved_tensors_default_hooks()
        hooks.append(top)
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def has_module_hooks(module: nn.Module) -> bool:
    """Return whether calling a module does more than its class's `forward`: hooks, a new `forward`, a compiled call."""
    return any(value for name, value in vars(module).items() if name in ("forward", _CALL) or name.endswith("_hooks"))


def versions(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Return how often each was written into; tensors made in inference mode do not count that."""
    return [0 if each.is_inference() else each._version for each in tensors]


def is_batch_of_cotangents(cotangent: torch.Tensor) -> bool:
    """Return whether this is the batch of `torch.autograd.grad(is_grads_batched=True)`, which no buffer can take."""
    return torch._C._functorch.is_legacy_batchedtensor(cotangent) or torch._C._functorch.is_batchedtensor(cotangent)


def apply_outside_of_transforms(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return `function.apply` for where no `torch.func` transform is under way, without the time to look for one."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]
