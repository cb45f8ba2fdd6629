"""What computes the outputs of a `FractionalNetwork` and their gradients: engines behind one interface.

`operations` runs any network in torch operations under autograd; it is the definition the others answer to. `by_hand`
goes through dense networks and back without a graph, by matrix products. Others bring their layers to it: `kernel` and
`triton` compiled ones for small networks, on the CPU and on a GPU; `fused` products and little else for wide ones.
`choose` decides which of them runs.
"""
