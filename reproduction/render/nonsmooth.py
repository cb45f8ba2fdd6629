"""Non-smooth functions."""

from statistics import median

from reproduction.account_figures import arms_figure
from reproduction.comparisons import effect_text, effects, middle, names, of_network, tuned
from reproduction.nonsmooth import NonSmooth, jobs, work
from reproduction.part import Claim, Numbers, Part, Row, Table

CLAIMED = "handles non-smooth functions better"


def claims(numbers: Numbers) -> list[Claim]:
    found = []
    runs = numbers["runs"]
    orders = sorted({r["order"] for r in runs if r["order"] < 1})
    for target in names(runs, "target"):
        chosen = [r for r in runs if r["target"] == target]
        for order in orders:
            found.append(
                Claim(
                    f"{_shown(target)}, order {order:g}",
                    CLAIMED if target != "sin(πx)" else "- (smooth, to compare with)",
                    "RMS error away from the gap",
                    "less",
                    effects(chosen, order, lambda r: r["away"], is_ratio=True, tuned_by=lambda r: r["validation"]),
                )
            )
    return found


def _shown(target: str) -> str:
    return target.replace("|", "\\|")


def rows(numbers: Numbers) -> list[Row]:
    found = []
    for target in names(numbers["runs"], "target"):
        chosen = [r for r in numbers["runs"] if r["target"] == target]
        medians = {name: median(r["away"] for r in of_network(chosen, name).values()) for name in names(chosen)}
        best = min(medians, key=lambda name: medians[name])
        claim = "fractional better" if target != "sin(πx)" else "-"
        found.append(Row(f"RMS error for {target}, median", claim, f"best {medians[best]:.1e} ({best})"))
    return found


def tables(numbers: Numbers) -> list[Table]:
    runs = numbers["runs"]
    lines = []
    for name in (name for name in names(runs) if "τ = " not in name):
        cells = [of_network([r for r in runs if r["target"] == t], name).values() for t in names(runs, "target")]
        (step,) = {r["step_size"] for cell in cells for r in cell}
        lines.append([name, f"{step:.3g}", *(middle([r["away"] for r in cell], ".1e") for cell in cells)])
    for order in sorted({r["order"] for r in runs}, reverse=True):
        cells = [
            tuned([r for r in runs if r["target"] == t], order, lambda r: r["validation"]).values()
            for t in names(runs, "target")
        ]
        lines.append([f"order {order:g}, tuned", "-", *(middle([r["away"] for r in cell], ".1e") for cell in cells)])
    title = "Root mean square error away from the gap, median over the seeds and the quarters about it"
    return [Table(title, ("network", "τ", *map(_shown, names(runs, "target"))), lines), _ends_table(numbers)]


def _ends_table(numbers: Numbers) -> Table:
    """How far trained, and how much of the error is in the gap."""
    lines = []
    for target in names(numbers["runs"], "target"):
        chosen = [r for r in numbers["runs"] if r["target"] == target]
        in_gap = median(1 - min(1.0, (r["away"] / r["error"]) ** 2) for r in chosen)
        fall = median(r["loss"] / r["halfway"] for r in chosen)
        lines.append([_shown(target), f"{100 * in_gap:.1f}", f"{fall:.2f}"])
    headings = ("function", "squared error in the gap, %", "loss at the end / halfway")
    return Table("Where the error lies, and how much the second half of the iterations gave; medians", headings, lines)


def values(numbers: Numbers) -> dict[str, str]:
    found = {}
    for target, (_, gap, fall) in zip(names(numbers["runs"], "target"), _ends_table(numbers).rows, strict=True):
        found[f"gap-{target.split('(')[0]}"] = gap
        found[f"fall-{target.split('(')[0]}"] = fall
    for claim in claims(numbers):
        target, order = claim.name.replace("\\|", "").split(", order ")
        found |= {f"{target.split('(')[0]}-{order}-{arm}": effect_text(each) for arm, each in claim.effects.items()}
    return found


PART = Part(
    name="nonsmooth",
    title="Non-smooth functions",
    minutes=3.5,
    full=NonSmooth(),
    quick=NonSmooth(targets=("|x|", "max(x, y)"), orders=(0.5,), n_points=50, n_test=200, max_iter=20, seeds=(0, 1)),
    jobs=jobs,
    work=work,
    figure=lambda numbers: arms_figure(numbers["runs"], "target", "away", "RMS error away from the gap"),
    rows=rows,
    tables=tables,
    values=values,
    claims=claims,
)
