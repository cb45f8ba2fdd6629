"""What stands between the marks of docs/transformers.md, each part a function of the comparisons."""

from collections.abc import Callable

import numpy as np

from benchmarks.measures import markdown, number
from examples.gpt.comparison import LEVEL, Comparison, Difference, difference
from examples.gpt.streams import RESIDUAL

Comparisons = list[Comparison]
NOT_MEASURED = "Not measured yet: `python -m examples.gpt train --out docs/results`."


def settings(found: Comparisons) -> str:
    """Sizes, time and machine of each depth, and what failed."""
    lines = []
    for each in found:
        run = each.any_run
        told, made = run["settings"], run["made_with"]
        machine = made["machine"]
        versions = ", ".join(f"{name} {made['versions'][name]}" for name in ("python", "torch", "fracdnn"))
        lines.append(
            f"- **{each.depth} blocks**: {run['parameters']:,} parameters, width {told['width']}; {told['steps']:,} "
            f"steps of {told['batch']} windows of {told['context']} bytes, {_seconds(each)} seconds of training for "
            f"the fastest stream; {_seeds(each)}; {machine.get('gpu') or machine['processor']}, {versions}."
        )
        if run["quick"]:
            lines[-1] += " QUICK SIZES, NOT RESULTS."
        lines += [f"  Failed: {run['arm']}, seed {run['seed']}: {run['failed']}" for run in each.failed]
        whys = {run["why_not_captured"] for arm in each.arms for run in each.of(arm) if not run["captured"]}
        lines += [f"  Not captured as a CUDA graph, so that Python's time counts too: {why}." for why in sorted(whys)]
    return "\n".join(lines)


def results(found: Comparisons) -> str:
    """Held-out loss less the residual stream's at equal bytes and at equal time, and the time of a step."""
    rows = []
    for each in found:
        for arm in (arm for arm in each.arms if arm != RESIDUAL):
            gaps = [difference(losses(arm), losses(RESIDUAL)) for losses in (each.last, each.at_times)]
            stream = arm.replace("learnt", "learned")  # records keep the older spelling
            rows.append([str(each.depth), stream, *map(_gap, gaps), _span(each.ratios(arm, "step_seconds"))])
    interval = f"({100 * LEVEL:.0f} % interval)"
    headings = ["blocks", "stream", f"equal bytes {interval}", f"equal time {interval}", "time of a step"]
    return markdown(headings, rows)


def _gap(gap: Difference | None) -> str:
    """Bold where the interval does not hold 0; a training that diverged has none."""
    if gap is None:
        return "diverged"
    interval = f" ({gap.interval[0]:+.3f} to {gap.interval[1]:+.3f})" if gap.interval else ""
    return f"**{gap.mean:+.3f}{interval}**" if gap.sign else f"{gap.mean:+.3f}{interval}"


def _span(values: np.ndarray) -> str:
    """The mean over the seeds, in that of the residual stream."""
    return f"× {values.mean():.2f}" if len(values) else "-"


def _seconds(each: Comparison) -> str:
    return number(float(each.times().mean()))


def _seeds(each: Comparison) -> str:
    return f"{len(each.seeds)} seed{'s' if len(each.seeds) > 1 else ''}"


PARTS: dict[str, Callable[[Comparisons], str]] = {"settings": settings, "results": results}
