"""Layers of all manners for random stacks; each keeps the shape of its input."""

import torch
from torch import nn

from fracdnn.nn import WithoutSkip


class InPlace(nn.Module):
    """Writes into what it made itself."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, y):
        return self.linear(y).mul_(0.5).tanh_()


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, y):
        return y + torch.tanh(self.linear(y))


class Constant(nn.Module):
    """Sees nothing of its input but the shape."""

    def __init__(self, width):
        super().__init__()
        self.value = nn.Parameter(torch.randn(width))

    def forward(self, y):
        return self.value.expand_as(y)


class Strided(nn.Module):
    """Returns a view with gaps."""

    def forward(self, y):
        return torch.stack([-y, y], -1)[..., 0]


class Clipped(nn.Module):
    """Changes the cotangent of the state it is given."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, y):
        if y.requires_grad:
            y.register_hook(lambda cotangent: torch.tanh(cotangent))
        return torch.sin(self.linear(y))


class Watching(nn.Module):
    """Keeps the states it is given, with their gradients."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.seen = []

    def forward(self, y):
        if y.requires_grad:
            y.retain_grad()
        self.seen.append(y)
        return torch.cos(self.linear(y))


def halved(module, arguments, output):
    return 0.5 * output


def negated(module, arguments):
    return tuple(-argument for argument in arguments)


def smaller(module, grad_input, grad_output):
    return tuple(None if each is None else 0.9 * each for each in grad_input)


def hooked(kind, layer):
    if kind == "forward hook":
        layer.register_forward_hook(halved)
    elif kind == "forward pre-hook":
        layer.register_forward_pre_hook(negated)
    else:
        layer.register_full_backward_hook(smaller)
    return layer


LAYERS = {
    "dense": lambda width: nn.Sequential(nn.Linear(width, width), nn.Tanh()),
    "linear": lambda width: nn.Linear(width, width, bias=False),
    "in place": InPlace,
    "norm": lambda width: nn.Sequential(nn.LayerNorm(width, eps=0.1), nn.Linear(width, width), nn.SiLU()),
    "without skip": lambda width: WithoutSkip(Residual(width)),
    "identity": lambda width: nn.Identity(),
    "constant": Constant,
    "strided": lambda width: Strided(),
    "frozen": lambda width: nn.Linear(width, width).requires_grad_(False),
    "forward hook": lambda width: hooked("forward hook", nn.Linear(width, width)),
    "forward pre-hook": lambda width: hooked("forward pre-hook", nn.Linear(width, width)),
}
# These touch the graph of autograd, which no transformation of torch.func shows them.
WITH_HOOKS_ON_GRADIENTS = {
    "clipped": Clipped,
    "watching": Watching,
    "backward hook": lambda width: hooked("backward hook", nn.Sequential(nn.Linear(width, width), nn.Tanh())),
}


def made(kinds, width):
    """The modules of these kinds; the same one again for a number, which says where it stands."""
    every, modules = LAYERS | WITH_HOOKS_ON_GRADIENTS, []
    for kind in kinds:
        modules.append(modules[kind] if isinstance(kind, int) else every[kind](width))
    return modules
