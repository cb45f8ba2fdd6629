"""What compiled kernels share; vectors and threads need Numba."""
