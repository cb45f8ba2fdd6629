"""Order and steps as parameters, kept in their ranges by smooth maps."""

import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError


class LearnedOrder(nn.Module):
    """An order in (0, 1), the logistic function of a parameter: one for all layers, or one for each."""

    def __init__(self, initial: torch.Tensor) -> None:
        super().__init__()
        if not bool((initial < 1).all()):
            raise InvalidArgumentError(
                "order must lie in (0, 1) to be learned, got 1.0; start from 0.9, say, or set learn_order=False"
            )
        self.raw = nn.Parameter(torch.logit(initial).to(torch.get_default_dtype()))

    def forward(self) -> torch.Tensor:
        return torch.sigmoid(self.raw.to(torch.float64))


class LearnedSteps(nn.Module):
    """A positive step for each layer, the exponential of a parameter."""

    def __init__(self, initial: torch.Tensor) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.log(initial).to(torch.get_default_dtype()))

    def forward(self) -> torch.Tensor:
        return torch.exp(self.raw.to(torch.float64))
