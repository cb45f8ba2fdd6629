"""The one list of what is timed: every group of cases, in the order of the page."""

from benchmarks.case import Case, Group, Options
from benchmarks.cases import (
    depth,
    gpu,
    gpu_dense,
    long_solve,
    paper_size,
    perfume,
    precision,
    predict,
    scaling,
    solver,
)

GROUPS: dict[str, Group] = {
    group.name: group
    for group in (
        paper_size.GROUP,
        perfume.GROUP,
        depth.DEPTH,
        depth.WIDTH,
        depth.CHECKPOINT,
        gpu.GROUP,
        gpu_dense.DENSE,
        solver.SOLVER,
        long_solve.LONG_SOLVE,
        long_solve.STEPS,
        long_solve.CHECKPOINT,
        precision.PRECISION,
        precision.ORDER_ONE,
        scaling.DEPTH,
        scaling.SAMPLES,
        predict.GROUP,
    )
}


def find_case(group_name: str, case_name: str, options: Options) -> Case:
    """The case of that name; used by processes that are told only the name."""
    return next(case for case in GROUPS[group_name].cases(options) if case.name == case_name)
