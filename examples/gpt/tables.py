"""What stands between the marks of docs/transformers.md, each part a function of the comparisons."""

from collections.abc import Callable

import numpy as np

from benchmarks.measures import markdown, number
from examples.gpt.comparison import LEVEL, Comparison, Difference, difference
from examples.gpt.streams import HORIZONS, RESIDUAL, START

Comparisons = list[Comparison]
NOT_MEASURED = "Not measured yet: `python -m examples.gpt train --out docs/results`."
_MEASURES: dict[str, Callable[[Comparison, str], np.ndarray]] = {
    "equal tokens": Comparison.last,
    "equal time": Comparison.at_times,
}


def settings(found: Comparisons) -> str:
    """Sizes, text and machine of each depth."""
    lines = []
    for each in found:
        run = each.any_run
        told, made = run["settings"], run["made_with"]
        lines.append(
            f"- **{each.depth} blocks**, {2 * each.depth} sublayers: width {told['width']}, {run['parameters']:,} "
            f"parameters; {told['steps']:,} steps of {told['batch']} windows of {told['context']} bytes, "
            f"{run['tokens'][-1]:,} bytes in all; learning rate {told['learning_rate']:g}, weight decay "
            f"{told['weight_decay']:g}, gradients clipped at norm {told['clip']:g}; loss on {told['windows']} windows; "
            f"{_seeds(each)}."
        )
        if run["quick"]:
            lines[-1] += " QUICK SIZES, NOT RESULTS."
        machine = made["machine"]
        versions = ", ".join(f"{name} {made['versions'][name]}" for name in ("python", "torch", "fracdnn"))
        lines.append(f"  On {machine.get('gpu') or machine['processor']}; {versions}.")
        lines += [
            f"  {name} text: {part['files']:,} files, {part['bytes']:,} bytes, sha256 `{part['sha256']}`."
            for name, part in (("Training", run["text"]["training"]), ("Held-out", run["text"]["held_out"]))
        ]
        lines += [f"  Failed: {run['arm']}, seed {run['seed']}: {run['failed']}" for run in each.failed]
    return "\n".join(lines)


def verdict(found: Comparisons) -> str:
    """For each depth and measure, which streams differ from the residual one, and which way."""
    lines = []
    for each in found:
        for name, losses in _MEASURES.items():
            text = f"- **{each.depth} blocks, {name}:** "
            if len(each.seeds) < 2:
                lines.append(f"{text}one seed has no interval, so nothing is claimed.")
                continue
            gaps = {arm: _gap(each, arm, losses) for arm in each.arms if arm != RESIDUAL}
            parts = [
                _named("lower loss than the residual stream", gaps, -1),
                _named("higher loss", gaps, 1),
                _named("no significant difference, since the interval holds 0", gaps, 0),
            ]
            diverged = [f"*{arm}*" for arm, gap in gaps.items() if gap is None]
            parts.append(f"diverged: {', '.join(diverged)}" if diverged else "")
            lines.append(text + "; ".join(part for part in parts if part) + ".")
    return "\n".join(lines)


def horizon(found: Comparisons) -> str:
    """Order 0.5 against the residual stream that has the same horizon."""
    order, control = HORIZONS
    rows = []
    for each in found:
        if order not in each.arms or control not in each.arms:
            continue
        gaps = (difference(losses(each, order), losses(each, control)) for losses in _MEASURES.values())
        rows += [[str(each.depth), name, *_gap_cells(gap)] for name, gap in zip(_MEASURES, gaps, strict=True)]
    headings = ["blocks", "at", f"*{order}* less *{control}* ({100 * LEVEL:.0f} % interval)", "seeds below"]
    return markdown(headings, rows) if rows else NOT_MEASURED


def _named(words: str, gaps: dict[str, Difference | None], sign: int) -> str:
    chosen = [(arm, gap) for arm, gap in gaps.items() if gap is not None and gap.sign == sign]
    names = [f"*{arm}* ({gap.mean:+.4f})" if sign else f"*{arm}*" for arm, gap in chosen]
    return f"{words}: {', '.join(names)}" if names else ""


def losses_table(found: Comparisons, measure: str) -> str:
    parts = []
    losses = _MEASURES[measure]
    headings = ["stream", "loss, nats a byte", f"less the residual's ({100 * LEVEL:.0f} % interval)", "seeds below"]
    for each in found:
        rows = []
        for arm in each.arms:
            values, gap = losses(each, arm), _gap(each, arm, losses)
            loss = f"{values.mean():.4f}" if np.isfinite(values).all() else "diverged"
            rows.append([arm, loss, *(_gap_cells(gap) if arm != RESIDUAL else ["", ""])])
        parts.append(f"{_title(each, measure)}:\n\n{markdown(headings, rows)}")
    return "\n\n".join(parts)


def _title(each: Comparison, measure: str) -> str:
    if measure == "equal tokens":
        return f"{each.depth} blocks after {each.any_run['tokens'][-1]:,} bytes, mean of {_seeds(each)}"
    times = each.times()
    when = number(times.mean()) if np.ptp(times) < 0.05 else f"{number(times.min())} to {number(times.max())}"
    return f"{each.depth} blocks after {when} seconds of training, mean of {_seeds(each)}"


def _gap(each: Comparison, arm: str, losses: Callable[[Comparison, str], np.ndarray]) -> Difference | None:
    return difference(losses(each, arm), losses(each, RESIDUAL))


def _gap_cells(gap: Difference | None) -> list[str]:
    if gap is None:
        return ["-", "-"]
    interval = f" ({gap.interval[0]:+.4f} to {gap.interval[1]:+.4f})" if gap.interval else ""
    return [f"{gap.mean:+.4f}{interval}", f"{gap.below} of {gap.seeds}"]


def cost_table(found: Comparisons) -> str:
    """Time of a step and peak memory; the ratios are those of single seeds."""
    headings = [
        "stream",
        "ms a step (quartiles)",
        "x residual",
        "MiB",
        "x residual",
        "numbers of its own",
        "one CUDA graph",
    ]
    parts = []
    for each in found:
        rows = []
        for arm in each.arms:
            runs = each.of(arm)
            low, middle, high = (1e3 * np.mean([run["step_seconds"][name] for run in runs]) for name in _QUARTILES)
            memory = [run["peak_mib"] for run in runs if run["peak_mib"] is not None]
            rows.append(
                [
                    arm,
                    f"{number(middle)} ({number(low)} to {number(high)})",
                    _span(each.ratios(arm, "step_seconds")),
                    number(float(np.mean(memory))) if memory else "-",
                    _span(each.ratios(arm, "peak_mib")),
                    f"{runs[0]['stream_parameters']:,}",
                    "yes" if all(run["captured"] for run in runs) else "no",
                ]
            )
        parts.append(f"{each.depth} blocks:\n\n{markdown(headings, rows)}")
        whys: dict[str, list[str]] = {}
        for arm in each.arms:
            for why in {run["why_not_captured"] for run in each.of(arm) if not run["captured"]}:
                whys.setdefault(why, []).append(f"*{arm}*")
        parts += [
            f"Not captured, so that Python's time counts too ({why}): {', '.join(names)}."
            for why, names in whys.items()
        ]
    return "\n\n".join(parts)


_QUARTILES = ("low", "median", "high")


def _span(values: np.ndarray) -> str:
    """The mean, and the range where it shows."""
    if not len(values):
        return "-"
    low, high = (f"{value:.2f}" for value in (values.min(), values.max()))
    return f"{values.mean():.2f}" if low == high else f"{values.mean():.2f} ({low} to {high})"


def orders_table(found: Comparisons) -> str:
    """Where the learnt orders are at the end."""
    headings = ["blocks", "stream", "mean", "least", "largest", "attention, mean", "perceptron, mean"]
    rows = []
    for each in found:
        for arm in each.arms:
            runs = [run for run in each.of(arm) if run["orders"]]
            if not runs:
                continue
            orders = np.array([run["orders"] for run in runs])
            kinds = [f"{orders[:, k::2].mean():.4f}" for k in (0, 1)] if orders.shape[1] > 1 else ["", ""]
            numbers = [f"{value:.4f}" for value in (orders.mean(), orders.min(), orders.max())]
            rows.append([str(each.depth), arm, *numbers, *kinds])
    if not rows:
        return "No order was learnt."
    reach = [f"{each.any_run['settings']['learning_rate'] * each.any_run['settings']['steps']:.2g}" for each in found]
    depths = " and ".join(str(each.depth) for each in found)
    return (
        f"{markdown(headings, rows)}\n\nAll start at {START:g}. An order is the logistic function of a parameter; with "
        f"the learning rate of all other parameters AdamW can move that by about {' and '.join(reach)} in all "
        f"({depths} blocks), from {np.log(START / (1 - START)):.2f}."
    )


def curves(found: Comparisons) -> str:
    return "![Held-out loss over bytes, its difference to the residual stream, and over seconds](images/gpt-curves.png)"


def order_curves(found: Comparisons) -> str:
    return "![Learned orders over the depth](images/gpt-orders.png)"


def _seeds(each: Comparison) -> str:
    return f"{len(each.seeds)} seed{'s' if len(each.seeds) > 1 else ''}"


PARTS: dict[str, Callable[[Comparisons], str]] = {
    "settings": settings,
    "verdict": verdict,
    "horizon": horizon,
    "tokens": lambda found: losses_table(found, "equal tokens"),
    "time": lambda found: losses_table(found, "equal time"),
    "cost": cost_table,
    "orders": orders_table,
    "curves": curves,
    "order-curves": order_curves,
}
