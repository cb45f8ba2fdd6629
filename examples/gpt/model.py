"""A small GPT whose stream, the way from a sublayer's output to the next one's input, is chosen."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

VOCABULARY = 256
HEAD_WIDTH = 32
Stream = Callable[[Sequence[nn.Module]], nn.Module]


class Attention(nn.Module):
    """Causal attention of the normalized state; no skip connection, which is the stream's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.heads = width // HEAD_WIDTH
        self.inner, self.outer = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        batch, context, width = y.shape
        together = self.inner(self.norm(y)).view(batch, context, 3, self.heads, width // self.heads)
        query, key, value = (part.transpose(1, 2) for part in together.unbind(2))
        found = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outer(found.transpose(1, 2).reshape(batch, context, width))


class Perceptron(nn.Module):
    """Two linear maps of the normalized state with GELU between them, four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.inner, self.outer = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return self.outer(gelu(self.inner(self.norm(y)), approximate="tanh"))


class GPT(nn.Module):
    """Bytes [batch, context] to logits [batch, context, 256]: embedding, stream of sublayers, norm, head.

    Weights are drawn in a fixed order, so that models of one depth and seed share theirs whatever their stream; what a
    stream learns itself has no part in it. Outer maps are smaller by the root of the number of sublayers, as in GPT-2.
    """

    def __init__(self, stream: Stream, *, depth: int, width: int, context: int, generator: torch.Generator) -> None:
        super().__init__()
        if width % HEAD_WIDTH:
            raise ValueError(
                f"width must be a multiple of {HEAD_WIDTH}, the width of a head, got {width}; use 128, say"
            )
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(context, width)
        sublayers = [kind(width) for _ in range(depth) for kind in (Attention, Perceptron)]
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self._draw(sublayers, generator)
        self.stream = stream(sublayers)

    def _draw(self, sublayers: Sequence[Attention | Perceptron], generator: torch.Generator) -> None:
        nn.init.normal_(self.tokens.weight, std=0.5, generator=generator)
        nn.init.normal_(self.places.weight, std=0.1, generator=generator)
        for sublayer in sublayers:
            for linear, scale in ((sublayer.inner, 1.0), (sublayer.outer, len(sublayers) ** -0.5)):
                nn.init.normal_(linear.weight, std=scale / math.sqrt(linear.in_features), generator=generator)
        nn.init.normal_(self.head.weight, std=0.1 / math.sqrt(self.head.in_features), generator=generator)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        y = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.norm(self.stream(y)))

    def stream_parameters(self) -> list[nn.Parameter]:
        """What the stream learns beside its sublayers: orders, averages, queries."""
        sublayers = self.stream.get_submodule("layers")
        shared = {id(parameter) for parameter in sublayers.parameters()}
        return [parameter for parameter in self.stream.parameters() if id(parameter) not in shared]


def loss_of(model: nn.Module, windows: torch.Tensor) -> torch.Tensor:
    """Nats a byte over windows [batch, context + 1]: each byte but the first is foretold from those before it."""
    logits = model(windows[:, :-1])
    return cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
