"""What computes the outputs of a `FractionalNetwork` and their gradients: engines behind one interface.

`operations` runs any network in torch operations under autograd; it is the definition the others answer to. `by_hand`
goes through dense networks and back without a graph, by matrix products; `kernel`, `fused` and `printed` bring other
layers to it: a compiled kernel for small ones, products and little else for wide ones on a GPU, and the gradient that
the paper prints. `choose` decides which of them runs.
"""
