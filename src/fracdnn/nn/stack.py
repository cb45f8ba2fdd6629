"""Any shape-keeping modules as a network with memory."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import torch
from torch import nn
from torch.func import functional_call

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.memory import run_chain
from fracdnn.nn.learned import Device, DType
from fracdnn.nn.memory import HasMemory, Memory, Numbers, reset_modules, separate_copy
from fracdnn.tracing import Watch, has_module_hooks, versions
from fracdnn.validation import check_flag, check_real_tensor

# Torch's layers that add their input to what they compute.
_WITH_SKIP = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.TransformerEncoder, nn.TransformerDecoder)


class FractionalStack(HasMemory):
    """Layers with memory: Y_j = Σ_k H_jk Y_k + c_j f_{j−1}(Y_{j−1}), the L1 scheme for d_t^order Y = f.

    This is the paper's Alg. 1. Each layer f_j maps a state to a tensor of the same shape and must not write into the
    state it is given (an error). The memory is the skip connection: blocks that add their input to their result
    themselves, as residual blocks and `nn.TransformerEncoderLayer` do, go into `FractionalStack.from_residual(blocks)`.

    Options (`order`, `step_size`, `learn_order`, `learn_steps`, `compress`, `compress_tol`) as in `fracdnn.nn.Memory`,
    which `stack.memory` is; `order`, `step_sizes` and `compressed_` give the current values. `device` and `dtype` move
    the layers too, as `stack.to` does. `len(stack)`, `stack[j]`
    and iteration give the layers; `stack[a:b]` is a stack of these layers, which it shares, with copies of what is
    learned for single layers.

    Shapes: x [...] as the layers take it; `stack(x)` gives Y_N, `stack(x, trajectory=True)` all Y_0 … Y_N,
    [N + 1, ...]. Further arguments go to every layer: `stack(x, src_mask=mask)`. Gradients are those of the exact
    discrete adjoint; memory between the passes is one state per layer beside what the layers save. Second derivatives,
    `torch.compile`, `torch.export`, `torch.func` and forward-mode derivatives run on plain operations with the exact
    weights. Parameters and x must share their dtype unless autocast is on. Values are checked for NaN and inf on the
    CPU only: on a GPU a look at them would wait for it.

    `checkpoint=True` computes parts of the forward pass again in the backward pass: memory like √N instead of N, with a
    compressed memory or at order 1; with an exact one, all states and what one layer saves at a time. Layers and
    their hooks are called twice, with the same random numbers, and buffers such as running statistics change once; a
    layer that computes something else in its second call, by a plain attribute that it counts, is an error.
    What runs on plain operations runs without it.
    """

    def __init__(
        self,
        layers: Iterable[nn.Module],
        *,
        checkpoint: bool = False,
        order: Numbers = 0.5,
        step_size: Numbers = 0.2,
        learn_order: bool | str = False,
        learn_steps: bool = False,
        compress: bool | str = "auto",
        compress_tol: float | None = None,
        device: Device = None,
        dtype: DType = None,
    ) -> None:
        super().__init__()
        self.checkpoint = check_flag(checkpoint, "checkpoint")
        self.layers = nn.ModuleList(_checked_layers(layers)).to(device, dtype)
        self.memory = Memory(
            len(self.layers),
            order=order,
            step_size=step_size,
            learn_order=learn_order,
            learn_steps=learn_steps,
            compress=compress,
            compress_tol=compress_tol,
            device=device,
            dtype=dtype,
        )

    @classmethod
    def from_residual(cls, blocks: Iterable[nn.Module], **options: Any) -> "FractionalStack":
        """Return a stack of the blocks of a residual network, y → block(y), each of which adds its input itself.

        Each block is wrapped in `WithoutSkip`. The stack starts at order 1 and step 1, where it computes what the
        blocks compute one after the other, to rounding; other `options` as in the constructor. It shares the blocks
        and their parameters, and it loads state dicts of the original network too: of `nn.Sequential(*blocks)` or
        `nn.ModuleList(blocks)`, also as a part of a larger module in which the stack replaced them.
        """
        wrapped = [WithoutSkip(block) for block in _checked_layers(blocks, with_skip=True)]
        return cls(wrapped, **{"order": 1.0, "step_size": 1.0, **options})

    def reset_parameters(self) -> None:
        """Call `reset_parameters` of every module in the layers that has it; learned orders and steps start again."""
        reset_modules(self)

    @property
    def step_sizes(self) -> torch.Tensor:
        """The step of each layer, float64, [N]."""
        return self.memory.steps_of(len(self.layers))

    def append(self, layer: nn.Module) -> "FractionalStack":
        """Add a layer at the end; returns the stack. `extend` and `insert` likewise, as `nn.Sequential` has them."""
        return self.extend([layer])

    def extend(self, layers: Iterable[nn.Module]) -> "FractionalStack":
        """Add layers at the end."""
        for layer in _checked_layers(layers):
            self.insert(len(self), layer)
        return self

    def insert(self, index: int, layer: nn.Module) -> "FractionalStack":
        """Add a layer before that of an index. The memory must have one order and one step for all."""
        if self.memory.is_by_layer:
            raise InvalidArgumentError(
                "a stack must have one order and one step size for all layers to get more of them, got values for "
                "single layers; build it anew with as many numbers as layers"
            )
        self.layers.insert(index, *_checked_layers([layer]))
        self.memory.n_layers = len(self.layers)
        return self

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(self.layers)

    def __getitem__(self, index: int | slice) -> Any:
        if not isinstance(index, slice):
            return self.layers[index]
        if not len(self.layers[index]):
            raise InvalidArgumentError(
                f"a slice must hold at least one of the {len(self)} layers, got {index}; take a larger part"
            )
        part = separate_copy(self)
        part.layers, part.memory = self.layers[index], self.memory.part(index, len(self.layers))
        return part

    def forward(self, x: torch.Tensor, *arguments: Any, trajectory: bool = False, **keywords: Any) -> torch.Tensor:
        self._check_input(x)
        layers, watch = list(self.layers), Watch.now()
        repeated = _RepeatedCalls(layers) if self.checkpoint and not watch.traced else None

        def step(j: int, y: torch.Tensor) -> torch.Tensor:
            call = layers[j] if repeated is None else partial(repeated, j)
            try:
                change = call(y, *arguments, **keywords)
            except Exception as error:
                if not watch.traced:
                    error.add_note(f"in {self._name(j)} of a FractionalStack, for a state of shape {tuple(y.shape)}")
                raise
            plain = isinstance(change, torch.Tensor) and change.shape == y.shape and not change.is_complex()
            return change if plain else self._refuse(j, y, change)

        plan = self.memory.plan(x, len(layers), watch=watch)
        run = partial(run_chain, trajectory=trajectory, checkpoint=self.checkpoint, name=self._name)
        return run(plan, step, x, transformed=watch.transformed)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        if all(isinstance(layer, WithoutSkip) for layer in self.layers):
            self._rename_residual_keys(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _rename_residual_keys(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Rename the entries "j.name" of a list of blocks to those of a stack; add what the memory expects."""
        keys = [key for key in state_dict if key.startswith(prefix) and key[len(prefix) :].split(".")[0].isdecimal()]
        for key in keys:
            index, _, name = key[len(prefix) :].partition(".")
            state_dict[f"{prefix}layers.{index}.layer.{name}"] = state_dict.pop(key)
        if keys:  # a residual network has no memory: keep the own one
            for name, value in self.memory.state_dict().items():
                state_dict.setdefault(f"{prefix}memory.{name}", value)

    def _name(self, j: int) -> str:
        return f"layer {j} ({type(self.layers[j]).__name__})"

    def _refuse(self, j: int, y: torch.Tensor, change: Any) -> NoReturn:
        if not isinstance(change, torch.Tensor):
            raise InvalidTypeError(
                f"{self._name(j)} must return a tensor, got {type(change).__name__}; wrap it in a module that does"
            )
        if change.shape != y.shape:
            raise InvalidArgumentError(
                f"{self._name(j)} must keep the shape of its input, got {tuple(change.shape)} from "
                f"{tuple(y.shape)}; put layers that change the shape before or after the stack"
            )
        raise InvalidTypeError(
            f"{self._name(j)} must return real numbers, got {change.dtype}; return change.real or change.abs()"
        )

    def _check_input(self, x: Any) -> None:
        check_real_tensor(x, "x")
        parameter = next(filter(torch.is_floating_point, self.layers.parameters()), None)
        if parameter is None or parameter.dtype == x.dtype or torch.is_autocast_enabled(x.device.type):
            return
        if any(map(has_module_hooks, self.layers.modules())):  # which may cast, as those of `fully_shard` do
            return
        raise InvalidArgumentError(
            f"x must have the dtype of the layers' parameters, {parameter.dtype}, got {x.dtype}; "
            f"use x.to({parameter.dtype}) or stack.to({x.dtype})"
        )


class _RepeatedCalls:
    """Calls of layer j, further ones with its buffers as the first call found them, in copies.

    So running statistics count a batch once, and a layer that computes with what it counts computes the same again.
    Torch's own checkpoints leave both to the layers.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self._layers = layers
        self._before: dict[int, dict[str, torch.Tensor]] = {}

    def __call__(self, j: int, *arguments: Any, **keywords: Any) -> Any:
        layer = self._layers[j]
        if j in self._before:
            before = _copied(self._before[j])
            return functional_call(layer, before, arguments, keywords) if before else layer(*arguments, **keywords)
        buffers = dict(layer.named_buffers())
        copies, written = _copied(buffers), versions(buffers.values())
        result = layer(*arguments, **keywords)
        after = dict(layer.named_buffers())
        replaced = any(after.get(name) is not buffer for name, buffer in buffers.items())
        # All of them: torch does not count what batch normalization writes, only that it counts batches.
        self._before[j] = copies if replaced or versions(buffers.values()) != written else {}
        return result


def _copied(buffers: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: buffer.detach().clone() for name, buffer in buffers.items()}


class WithoutSkip(nn.Module):
    """f(y) = layer(y) − y: what a layer with a skip connection of its own adds to its input.

    For a `FractionalStack`, whose memory is the skip connection: at order 0.5 and step 1, twelve
    `nn.TransformerEncoderLayer`s of width 64 as they are make the norm of a state grow 316-fold, wrapped 1.06-fold.
    Further arguments go to the layer.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, y: torch.Tensor, *arguments: Any, **keywords: Any) -> torch.Tensor:
        return self.layer(y, *arguments, **keywords) - y


def _checked_layers(layers: Any, *, with_skip: bool = False) -> list[nn.Module]:
    """Return the layers as a list; warn of those known to add their input, unless they should be `with_skip`."""
    if isinstance(layers, nn.Module) and not isinstance(layers, nn.ModuleList | nn.Sequential):
        raise InvalidTypeError(
            f"layers must be a list of modules, got {type(layers).__name__}; pass [{type(layers).__name__}(...), ...]"
        )
    modules = list(layers)
    if not modules:
        raise InvalidArgumentError("layers must hold at least one module, got an empty list; pass one for each layer")
    for j, module in enumerate(modules):
        if not isinstance(module, nn.Module):
            raise InvalidTypeError(
                f"layers must hold torch modules, got {type(module).__name__} at index {j}; wrap it in an nn.Module"
            )
    adding = None if with_skip else next((module for module in modules if isinstance(module, _WITH_SKIP)), None)
    if adding is not None:
        name = type(adding).__name__
        warnings.warn(
            f"layers should leave the skip connection to the stack, got {name}, which adds its input itself, so that "
            f"states grow from layer to layer; build the stack by FractionalStack.from_residual, or wrap each as "
            f"fracdnn.nn.WithoutSkip({name}(...))",
            UserWarning,
            stacklevel=3,
        )
    return modules
