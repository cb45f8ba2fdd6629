"""Several dense networks of one shape, forward and back by stacked matrix products: the fast path for members.

An estimator trains its members side by side. A small network spends its time between operations, and an operation on
all members costs little more than on one. Autograd is left out: a layer goes back by one slope and two products, and
the memory is few enough pairs of states to be added one by one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from fracdnn.nn.architecture import Weights
from fracdnn.nn.operators import ACTIVATIONS

_aten = torch.ops.aten


class Slope(NamedTuple):
    """The backward function of an activation, of a cotangent and of the activation's value or its argument."""

    back: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    takes_value: bool


SLOPES = {
    "tanh": Slope(_aten.tanh_backward, True),
    "relu": Slope(lambda cotangent, value: _aten.threshold_backward(cotangent, value, 0), True),
    "gelu": Slope(_aten.gelu_backward, False),
    "silu": Slope(_aten.silu_backward, False),
    "sigmoid": Slope(_aten.sigmoid_backward, True),
    "identity": Slope(lambda cotangent, value: cotangent, True),
}


class StackedPass:
    """The outputs W Y_N of M networks, and the gradients of all weights.

    `weights` are those of a network with one more axis, the first, of length M: K [M, N, width, width]; biases are
    vectors, and there is an input projection. With Y_j = Σ_k H_jk Y_k + c_j σ(K_j Y_{j−1} + b_j), `matrix` is H [N, N]
    and `factors` c [N]; or [N, N, M] and [N, M] if each network learns its own order.
    """

    def __init__(
        self, activations: tuple[str, str], weights: Weights, matrix: torch.Tensor, factors: torch.Tensor
    ) -> None:
        """Take the names of the activations of the input projection and of the layers."""
        self._weights: Any = weights
        self._input, self._layer = ((ACTIVATIONS[name], SLOPES[name]) for name in activations)
        self._is_learned = matrix.dim() == 3
        numbers = [each.detach().to(weights.W)[..., None, None] for each in (matrix, factors)]
        self._rows = [row.unbind() for row in numbers[0].unbind()]
        self._factors = numbers[1].unbind()
        # At order 1 each state remembers only the one before it.
        known = matrix.tolist() if not self._is_learned else None
        self._pairs = [[k for k in range(j + 1) if known is None or known[j][k]] for j in range(len(matrix))]

    def outputs(self, x: torch.Tensor) -> torch.Tensor:
        """Return W Y_N [M, n, n_outputs] for samples [M, n, n_features]."""
        w = self._weights
        self._x = x
        # Small matrix products are faster with a contiguous right operand.
        y, self._kept_input = self._activate(self._input, x, w.input_weight.mT.contiguous(), w.input_bias)
        self._states, self._kept, self._changes = [y], [], []
        for j, (K, b) in enumerate(zip(w.operators.mT.contiguous().unbind(1), w.b.unbind(1), strict=True)):
            change, kept = self._activate(self._layer, y, K, b)
            self._kept.append(kept)
            if self._is_learned:
                self._changes.append(change)
            y = change * self._factors[j]
            for k in self._pairs[j]:
                y.addcmul_(self._states[k], self._rows[j][k])
            self._states.append(y)
        return torch.bmm(y, w.W.mT)

    def back(self, cotangent: torch.Tensor) -> tuple[Weights, tuple[torch.Tensor, ...]]:
        """Return the gradients of the weights, and those of `matrix` and `factors` if these are learned.

        `cotangent` is that of the latest outputs. Each gradient lies in memory as its weight does.
        """
        w, n_layers = self._weights, len(self._rows)
        grad_K, grad_b = torch.empty_like(w.operators), torch.empty_like(w.b)
        into_K, into_b, operators = grad_K.unbind(1), grad_b.unbind(1), w.operators.unbind(1)
        # The multipliers Q_{j+1}, …, Q_N of the states, by their number.
        adjoints = {n_layers: torch.bmm(cotangent, w.W)}
        for j in reversed(range(n_layers)):
            passed = self._layer[1].back(adjoints[j + 1] * self._factors[j], self._kept[j])
            torch.bmm(passed.mT, self._states[j], out=into_K[j])
            torch.sum(passed, 1, out=into_b[j])
            adjoint = torch.bmm(passed, operators[j])
            for i in range(j, n_layers):
                if j in self._pairs[i]:
                    adjoint.addcmul_(adjoints[i + 1], self._rows[i][j])
            adjoints[j] = adjoint
        passed = self._input[1].back(adjoints[0], self._kept_input)
        projection = torch.bmm(self._x.mT, passed).mT, passed.sum(1)
        gradients = Weights(grad_K, grad_b, torch.bmm(cotangent.mT, self._states[-1]), *projection)
        return gradients, self._memory_gradients(adjoints) if self._is_learned else ()

    def _activate(self, activation: Any, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor) -> Any:
        """Return σ(y K + b), and what its slope takes."""
        function, slope = activation
        argument = torch.baddbmm(b.unsqueeze(1), y, K)
        value = function(argument)
        return value, value if slope.takes_value else argument

    def _memory_gradients(self, adjoints: dict[int, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the gradients Q_j · Y_k [N, N, M] and Q_j · f_{j−1} [N, M]."""
        later = [adjoints[j + 1] for j in range(len(self._rows))]
        left, right = (torch.stack(each).flatten(2) for each in (later, self._states[:-1]))
        matrix = torch.einsum("jmn,kmn->mjk", left, right).tril().permute(1, 2, 0)
        factors = torch.stack([(Q * change).sum((1, 2)) for Q, change in zip(later, self._changes, strict=True)])
        return matrix.double(), factors.double()
