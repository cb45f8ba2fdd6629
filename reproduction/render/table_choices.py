"""Table 2 where the paper leaves something open."""

from typing import Any

from reproduction.account_figures import choices_figure
from reproduction.comparisons import grouped, spread
from reproduction.part import Numbers, Part, Row, Table
from reproduction.table import LEVEL_SETS, PAPER, PERFUMES
from reproduction.table_choices import TableChoices, jobs, work

KEYS = ("data", "choice", "order")


def groups(numbers: Numbers) -> dict[tuple[Any, ...], list[float]]:
    """Accuracies by data, choice and order."""
    return {key: [r["accuracy"] for r in runs] for key, runs in grouped(numbers["runs"], *KEYS).items()}


def rows(numbers: Numbers) -> list[Row]:
    return [
        Row(f"{data}, order {order:g}, {choice}: accuracy, %", PAPER[data, order][data == "CLS"], spread(found, ".2f"))
        for (data, choice, order), found in groups(numbers).items()
    ]


def tables(numbers: Numbers) -> list[Table]:
    lines = [
        [data, f"{order:g}", choice, spread(found, ".2f"), f"{min(found):.2f} to {max(found):.2f}", str(len(found))]
        for (data, choice, order), found in groups(numbers).items()
    ]
    headings = ("data", "order", "choice", "mean ± deviation", "range", "seeds")
    return [Table("Accuracy in percent, of level sets on test points, of perfumes on all 560", headings, lines)]


def values(numbers: Numbers) -> dict[str, str]:
    return {
        f"{data}-{order:g}-{choice.split()[0]}": f"{sum(found) / len(found):.1f}"
        for (data, choice, order), found in groups(numbers).items()
    }


PART = Part(
    name="table-choices",
    title="Table 2 where the paper leaves something open",
    minutes=4,
    full=TableChoices(),
    quick=TableChoices(level_sets=LEVEL_SETS.short(2), perfumes=PERFUMES.short(3), n_points=500, seeds=(0,)),
    jobs=jobs,
    work=work,
    figure=lambda numbers: choices_figure(groups(numbers)),
    rows=rows,
    tables=tables,
    values=values,
    is_chaotic=lambda job: job["data"] != "CLS",
    needs_perfume=True,
)
