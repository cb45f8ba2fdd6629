"""All results of the paper, in its order."""

from fracdnn.experiments.part import Part
from fracdnn.experiments.shown import (
    depth_independence,
    gradient_test,
    mittag_leffler,
    nonsmooth,
    refinement,
    table,
    table_as_printed,
    vanishing_gradient,
)

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        mittag_leffler.PART,
        gradient_test.PART,
        refinement.PART,
        vanishing_gradient.PART,
        table.PART,
        table_as_printed.PART,
        table_as_printed.SWAPPED,
        depth_independence.PART,
        nonsmooth.PART,
    )
}
