"""All results of the paper, in its order."""

from fracdnn.experiments import (
    depth_independence,
    flow,
    gradient_test,
    learned_order,
    mittag_leffler,
    nonsmooth,
    table,
    vanishing_gradient,
)
from fracdnn.experiments.part import Part

PARTS: dict[str, Part] = {
    module.PART.name: module.PART
    for module in (
        mittag_leffler,
        gradient_test,
        flow,
        vanishing_gradient,
        table,
        depth_independence,
        learned_order,
        nonsmooth,
    )
}
