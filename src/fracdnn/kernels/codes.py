"""The numbers by which a kernel is told what to compute."""

TANH, RELU = range(2)
# A pass ends with Y_N, or goes back from the cotangent of Y_N that is given, or from a loss of the outputs.
STATE, COTANGENT, CROSS_ENTROPY, SQUARED_ERROR = range(4)
ACTIVATIONS = {"tanh": TANH, "relu": RELU}
LOSSES = {"cross_entropy": CROSS_ENTROPY, "squared_error": SQUARED_ERROR}
