"""Torch modules with memory."""

from fracdnn.nn.learned import LearnedOrder, LearnedSteps, parameter_groups
from fracdnn.nn.memory import Memory
from fracdnn.nn.network import FractionalNetwork
from fracdnn.nn.operators import DenseLayer, StencilLayer
from fracdnn.nn.stack import FractionalStack, WithoutSkip

__all__ = [
    "DenseLayer",
    "FractionalNetwork",
    "FractionalStack",
    "LearnedOrder",
    "LearnedSteps",
    "Memory",
    "StencilLayer",
    "WithoutSkip",
    "parameter_groups",
]
