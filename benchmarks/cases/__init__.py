"""Groups of cases, as values; `benchmarks.registry` lists them."""
