"""All results of the paper, in its order."""

from fracdnn.experiments.part import Part
from fracdnn.experiments.shown import (
    depth_independence,
    gradient_test,
    mittag_leffler,
    nonsmooth,
    refinement,
    vanishing_gradient,
)

PARTS: dict[str, Part] = {
    module.PART.name: module.PART
    for module in (
        mittag_leffler,
        gradient_test,
        refinement,
        vanishing_gradient,
        depth_independence,
        nonsmooth,
    )
}
