"""What compiled kernels share: vectors of numbers, and torch's own threads to run on. Both need Numba."""
