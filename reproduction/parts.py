"""All results of the paper, in its order."""

from reproduction.part import Part
from reproduction.render import (
    batch_normalization,
    depth_independence,
    digits,
    flow,
    gradient_test,
    held_out_order,
    learned_order,
    line_search,
    mittag_leffler,
    nonsmooth,
    refinement,
    stability,
    table,
    table_as_printed,
    table_choices,
    vanishing_gradient,
)

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        mittag_leffler.PART,
        gradient_test.PART,
        refinement.PART,
        flow.PART,
        vanishing_gradient.PART,
        stability.PART,
        table.PART,
        table_as_printed.PART,
        table_as_printed.PAIRED,
        table_as_printed.SWAPPED,
        table_choices.PART,
        batch_normalization.PART,
        line_search.PART,
        digits.PART,
        depth_independence.PART,
        learned_order.PART,
        held_out_order.PART,
        nonsmooth.PART,
    )
}
