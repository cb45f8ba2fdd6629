"""What computes the outputs of a `FractionalNetwork` and their gradients: engines behind one interface.

"autograd" is `Architecture.outputs`: any network in torch operations, the definition the others answer to. `by_hand`
goes through dense networks and back without a graph, by matrix products: the engine "matmul". Others bring their
layers to it: `numba_network` and `triton` compiled ones for small networks, on the CPU and on a GPU; `triton_wide`
products and little else for wide ones. `choose` decides which of them runs.
"""
