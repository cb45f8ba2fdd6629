"""Torch modules with memory."""

from fracdnn.nn.learnable import LearnedOrder, LearnedSteps
from fracdnn.nn.network import FractionalNetwork
from fracdnn.nn.operators import DenseLayer, StencilLayer
from fracdnn.nn.stack import FractionalStack

__all__ = ["DenseLayer", "FractionalNetwork", "FractionalStack", "LearnedOrder", "LearnedSteps", "StencilLayer"]
