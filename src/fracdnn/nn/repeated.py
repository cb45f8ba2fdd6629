"""Layers that are called again in the backward pass, each with its buffers as the first call found them.

So running statistics count a batch once, and a layer that computes with what it counts computes the same again. Torch's
own checkpoints leave both to the layers.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from fracdnn.tracing import versions


class RepeatedCalls:
    """Calls of layer j: the first one is as usual, further ones leave the layer as it is."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self._layers = layers
        self._before: dict[int, dict[str, torch.Tensor]] = {}

    def __call__(self, j: int, *arguments: Any, **keywords: Any) -> Any:
        if j not in self._before:
            return self._first_call(j, *arguments, **keywords)
        if not self._before[j]:
            return self._layers[j](*arguments, **keywords)
        return functional_call(self._layers[j], _copied(self._before[j]), arguments, keywords)

    def _first_call(self, j: int, *arguments: Any, **keywords: Any) -> Any:
        layer = self._layers[j]
        buffers = dict(layer.named_buffers())
        copies, before = _copied(buffers), versions(buffers.values())
        result = layer(*arguments, **keywords)
        after = dict(layer.named_buffers())
        replaced = any(after.get(name) is not buffer for name, buffer in buffers.items())
        # All of them: torch does not count what batch normalization writes, only that it counts batches.
        self._before[j] = copies if replaced or versions(buffers.values()) != before else {}
        return result


def _copied(buffers: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: buffer.detach().clone() for name, buffer in buffers.items()}
