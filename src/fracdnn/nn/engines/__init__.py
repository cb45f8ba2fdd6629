"""What computes the outputs of a `FractionalNetwork` and their gradients: engines behind one interface.

`operations` runs any network in torch operations under autograd; it is the definition the others answer to.
`products` and `kernel` go through dense networks and back by hand (`function` tells autograd of it), `printed` has the
gradient that the paper prints. `choose` decides which of them runs.
"""

from fracdnn.nn.engines.choose import ENGINES, choose
from fracdnn.nn.engines.function import run

__all__ = ["ENGINES", "choose", "run"]
