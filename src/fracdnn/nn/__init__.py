"""Torch modules with memory."""

from fracdnn.nn.learnable import LearntOrder, LearntSteps
from fracdnn.nn.network import FractionalNetwork
from fracdnn.nn.operators import DenseLayer, StencilLayer
from fracdnn.nn.stack import FractionalStack

__all__ = ["DenseLayer", "FractionalNetwork", "FractionalStack", "LearntOrder", "LearntSteps", "StencilLayer"]
