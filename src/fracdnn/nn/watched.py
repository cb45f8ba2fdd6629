"""Who looks on: hooks, transforms and modes that have to see each operation. Where there are any, no pass is cut."""

import torch
from torch import nn
from torch.nn.modules import module as torch_modules

from fracdnn.validation import being_transformed


def operations_are_watched() -> bool:
    """Whether somebody watches or transforms all operations here."""
    return bool(
        being_transformed()
        or torch.is_autocast_enabled("cpu")
        or torch._C._len_torch_function_stack()
        or torch._C._len_torch_dispatch_stack()
        or torch.is_anomaly_enabled()
        or torch_modules._has_any_global_hook()
    )


def has_hooks(layer: nn.Module) -> bool:
    state = layer.__dict__
    return bool(
        state["_forward_hooks"]
        or state["_forward_pre_hooks"]
        or state["_backward_hooks"]
        or state["_backward_pre_hooks"]
        or "forward" in state
        or layer._compiled_call_impl is not None
    )


def has_tensor_hooks(tensor: torch.Tensor) -> bool:
    return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)
