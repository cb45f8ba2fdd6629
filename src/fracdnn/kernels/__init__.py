"""What is compiled. `loading` says whether it can be; modules that need Numba say so and are imported only by it."""
