"""Every group of cases, in the order of the page."""

from benchmarks.cases import paper_size, perfume, table, depth, solver, accuracy, scaling, predict, first_use  # noqa: F401, I001
