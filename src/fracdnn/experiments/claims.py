"""Every claim of the paper that compares orders: effects with intervals, and a test corrected for all of them."""

from collections.abc import Sequence
from pathlib import Path

from fracdnn.experiments.arms import ARMS, TUNED
from fracdnn.experiments.part import Claim, Table
from fracdnn.experiments.parts import PARTS
from fracdnn.experiments.results import read_result
from fracdnn.experiments.statistics import LEVEL, Difference, holm

COLUMNS = {**ARMS, TUNED: "τ tuned"}


def all_claims(results: Path) -> list[Claim]:
    """Those of all parts whose results are there."""
    found = []
    for name, part in PARTS.items():
        path = results / f"{name}.json"
        if path.exists():
            found += part.claims(read_result(path)["numbers"])
    return found


def corrected(claims: Sequence[Claim]) -> list[dict[str, float]]:
    """For each claim Holm's p of each arm, over all arms of all claims."""
    p_values = iter(holm([effect.p for claim in claims for effect in claim.effects.values()]))
    return [{arm: next(p_values) for arm in claim.effects} for claim in claims]


def claims_table(claims: Sequence[Claim]) -> Table:
    lines = []
    for claim, p_values in zip(claims, corrected(claims), strict=True):
        cells = [_cell(claim.effects[arm], p_values[arm]) if arm in claim.effects else "-" for arm in COLUMNS]
        lines.append([claim.name, claim.paper, claim.measure, *cells, verdict(claim, p_values)])
    headings = ("claim", "the paper", "measured", *COLUMNS.values(), "verdict")
    n_tests = sum(len(claim.effects) for claim in claims)
    title = (
        "Fractional against residual, seed by seed: mean difference (× is a ratio) with its 95 % interval; "
        f"bold where p < 0.05 after Holm's correction for all {n_tests} comparisons"
    )
    return Table(title, headings, lines)


def effect_text(effect: Difference) -> str:
    if effect.is_ratio:
        return f"× {effect.mean:.3g} ({effect.low:.3g} to {effect.high:.3g})"
    return f"{effect.mean:+.3g} ({effect.low:+.3g} to {effect.high:+.3g})".replace("-", "−")


def _cell(effect: Difference, p: float) -> str:
    text = effect_text(effect)
    return f"**{text}**" if p < LEVEL else text


def verdict(claim: Claim, p_values: dict[str, float]) -> str:
    """In which arms the difference is the claimed one, and in which the opposite; a paper's "-" claims nothing."""
    holds: list[str] = []
    opposite: list[str] = []
    for arm, effect in claim.effects.items():
        if p_values[arm] < LEVEL:
            is_less = effect.mean < (1.0 if effect.is_ratio else 0.0)
            (holds if is_less == (claim.better == "less") else opposite).append(COLUMNS[arm])
    word = claim.better if claim.paper.startswith("-") else "holds"
    if len(holds) == len(claim.effects):
        return word
    words = [f"{word}: {', '.join(holds)}"] if holds else []
    words += [f"opposite: {', '.join(opposite)}"] if opposite else []
    return "; ".join(words) or "no difference seen"
