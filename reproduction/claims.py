"""Every claim of the paper that compares orders: effects with intervals, and a test corrected for all of them."""

from collections.abc import Sequence
from pathlib import Path

from reproduction.arms import ARMS, TUNED
from reproduction.comparisons import effect_text
from reproduction.part import Claim, Table
from reproduction.parts import PARTS
from reproduction.running import read_numbers
from reproduction.statistics import LEVEL, Difference, holm

COLUMNS = {**ARMS, TUNED: "τ tuned"}
# The control that decides a claim; the others are secondary.
PRIMARY = "horizon"
DECIDED = 2
# The six claims that a reader comes for: in words, and how the names of the comparisons begin that decide them.
SIX = {
    "the gradient keeps one magnitude over 70 layers": ("gradient of one magnitude over 70 layers",),
    "70 layers learn better": ("better learning of 70 layers",),
    "gradients explode less": ("exploding gradients, absolute",),
    "the paper's data are classified better": ("accuracy of",),
    "line searches are shorter": ("fewer line searches",),
    "non-smooth functions are fitted better": ("|x|", "step", "max(x, y)"),
}


def all_claims(results: Path) -> list[Claim]:
    """Those of all parts whose results are there."""
    found = []
    for name, part in PARTS.items():
        path = results / f"{name}.json"
        if path.exists():
            found += part.claims(read_numbers(path))
    return found


def corrected(claims: Sequence[Claim]) -> list[dict[str, float]]:
    """For each claim Holm's p of each arm, over all arms of all claims."""
    p_values = iter(holm([effect.p for claim in claims for effect in claim.effects.values()]))
    return [{arm: next(p_values) for arm in claim.effects} for claim in claims]


def claims_table(claims: Sequence[Claim]) -> Table:
    lines = []
    for claim, p_values in zip(claims, corrected(claims), strict=True):
        cells = [_cell(claim.effects[arm], p_values[arm]) if arm in claim.effects else "-" for arm in COLUMNS]
        seeds = max(effect.n for effect in claim.effects.values())
        lines.append([claim.name, claim.paper, claim.measure, *cells, str(seeds), verdict(claim, p_values)])
    headings = ("claim", "the paper", "measured", *COLUMNS.values(), "seeds", "verdict")
    n_tests = sum(len(claim.effects) for claim in claims)
    title = (
        "Fractional against residual, seed by seed: mean difference (× is a ratio) with its 95 % interval; "
        f"bold where p < 0.05 after Holm's correction for all {n_tests} comparisons"
    )
    return Table(title, headings, lines)


def six_table(claims: Sequence[Claim]) -> Table:
    """Each of the six claims: yes, no or unclear, and every effect that decides it."""
    judged = list(zip(claims, corrected(claims), strict=True))
    lines = []
    for words, names in SIX.items():
        chosen = [(c, p[PRIMARY]) for c, p in judged if c.name.replace("\\|", "|").startswith(names)]
        sides = [side(claim, PRIMARY, p) for claim, p in chosen]
        cells = [
            f"{claim.name.removeprefix(names[0]).strip(' ,')}: {_cell(claim.effects[PRIMARY], p)}"
            for claim, p in chosen
        ]
        measured = "; ".join(dict.fromkeys(claim.measure for claim, _ in chosen))
        lines.append([words, f"**{answer(sides)}**", measured, "<br>".join(cells)])
    title = f"Fractional against residual with the {COLUMNS[PRIMARY]}, mean and 95 % interval"
    return Table(title, ("claim", "answer", "measured", "effect"), lines)


def answer(sides: Sequence[int]) -> str:
    """Yes or no where a comparison decides so and no interval speaks for the other side."""
    if max(sides) == DECIDED and min(sides) >= 0:
        return "yes"
    return "no" if min(sides) == -DECIDED and max(sides) <= 0 else "unclear"


def side(claim: Claim, arm: str, p: float) -> int:
    """Above 0 for the claim, below 0 against it; DECIDED or -DECIDED where the difference is significant.

    Or where it is none, and the paper's own lies outside the interval, which is against it.
    """
    effect = claim.effects[arm]
    none = 1.0 if effect.is_ratio else 0.0
    way = 1 if (effect.mean < none) == (claim.better == "less") else -1
    if p < LEVEL:
        return DECIDED * way
    if claim.claimed is not None and not effect.low <= claim.claimed <= effect.high:
        return -DECIDED
    return 0 if effect.low <= none <= effect.high else way


def _cell(effect: Difference, p: float) -> str:
    text = effect_text(effect)
    return f"**{text}**" if p < LEVEL else text


def verdict(claim: Claim, p_values: dict[str, float]) -> str:
    """In which arms the difference is the claimed one, in which the opposite, and in which the interval alone says so.

    A paper's "-" claims nothing.
    """
    holds: list[str] = []
    opposite: list[str] = []
    doubtful: list[str] = []
    for arm, effect in claim.effects.items():
        if p_values[arm] < LEVEL:
            (holds if side(claim, arm, p_values[arm]) > 0 else opposite).append(COLUMNS[arm])
        elif not effect.low <= (1.0 if effect.is_ratio else 0.0) <= effect.high:
            doubtful.append(COLUMNS[arm])
    word = f"{claim.better} of it" if claim.paper.startswith("-") else "holds"
    if len(holds) == len(claim.effects):
        return word
    words = [f"{word}: {', '.join(holds)}"] if holds else []
    words += [f"opposite: {', '.join(opposite)}"] if opposite else []
    words += [f"in doubt: {', '.join(doubtful)}"] if doubtful else []
    words = words or ["no difference seen"]
    if claim.claimed is not None and not any(e.low <= claim.claimed <= e.high for e in claim.effects.values()):
        words.append(f"{claim.claimed:+g} outside every interval")
    return "; ".join(words)
