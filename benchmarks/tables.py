"""The tables of the page, each a function of all records."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.measures import (
    Record,
    markdown,
    median,
    number,
    only_bounded,
    ratio,
    ratio_cell,
    rival,
    seconds_cell,
    seconds_to_reach,
)
from benchmarks.profile import SHARES

Records = list[Record]
# Of the work-precision diagrams: whose fastest methods are compared, ours first, and the errors they reach.
PACKAGES = ("ours", "pycaputo", "fdeint (PyPI)")
REACHED = (1e-4, 1e-6, 1e-8)
UNITS = {"µs": 1e6, "ms": 1e3, "s": 1.0}


def of_group(records: Records, name: str) -> Records:
    return [record for record in records if record["group"] == name]


def missing(group: str) -> str:
    return f"Not measured yet: `python -m benchmarks --only {group}`."


def times(
    records: Records, group: str, unit: str, ratios: Sequence[tuple[str, str]] = (), per: str | None = None
) -> str:
    """Settings, the times of all rivals, and ratios of some; `per` names the setting the times are divided by."""
    chosen = of_group(records, group)
    if not chosen:
        return missing(group)
    settings = list(chosen[0]["settings"])
    rivals = list(dict.fromkeys(name for record in chosen for name in record["rivals"]))
    headings = [*settings, *(f"{name} ({unit})" for name in rivals), *(f"{a} / {b}" for a, b in ratios)]
    rows = []
    for record in chosen:
        scale = UNITS[unit] / (record["settings"][per] if per else 1)
        rows.append(
            [
                *(_setting(value) for value in record["settings"].values()),
                *(seconds_cell(record, name, scale) for name in rivals),
                *(ratio_cell(record, a, b) for a, b in ratios),
            ]
        )
    return markdown(headings, rows)


def memory(records: Records, group: str, ratios: Sequence[tuple[str, str]], by: str) -> str:
    """Peak memory in MiB by a setting, as the system has it and, in brackets, live; and ratios of both."""
    chosen = [r for r in of_group(records, group) if any("memory" in outcome for outcome in r["rivals"].values())]
    if not chosen:
        return missing(group)
    rivals = list(dict.fromkeys(name for record in chosen for name in record["rivals"]))
    rows = [
        [
            _setting(record["settings"][by]),
            *(_both(partial(median, record, name)) for name in rivals),
            *(_both(partial(ratio, record, a, b)) for a, b in ratios),
        ]
        for record in chosen
    ]
    return markdown([by, *(f"{name} (MiB)" for name in rivals), *(f"{a} / {b}" for a, b in ratios)], rows)


def gpu_memory(records: Records, group: str, rivals: Sequence[str]) -> str:
    """Peak memory on the GPU in MiB, as torch's allocator counts it; the first of the rivals is the base."""
    chosen = of_group(records, group)
    if not chosen:
        return missing(group)
    rows = []
    for record in chosen:
        found = [(rival(record, name) or {}).get("notes", {}).get("peak MiB") for name in rivals]
        shares = [each / found[0] if each and found[0] else None for each in found[1:]]
        rows.append([*map(_setting, record["settings"].values()), *map(number, found), *map(number, shares)])
    ways = [name.partition(", ")[0] for name in rivals]
    headings = [*chosen[0]["settings"], *(f"{way} (MiB)" for way in ways), *(f"{way} / residual" for way in ways[1:])]
    return markdown(headings, rows)


def errors(records: Records, group: str) -> str:
    """The relative error that each rival was timed with."""
    chosen = of_group(records, group)
    if not chosen:
        return missing(group)
    first = next(iter(chosen[0]["settings"]))
    rivals = list(dict.fromkeys(name for record in chosen for name in record["rivals"]))
    rows = [
        [_setting(record["settings"][first]), *(_error(record["rivals"].get(name)) for name in rivals)]
        for record in chosen
    ]
    return markdown([first, *rivals], rows)


def targets(records: Records, groups: Sequence[str] = ()) -> str:
    """What was asked for, and what was measured over all cases it was asked of; of some groups, or of all."""
    asked: dict[tuple[Any, ...], list[tuple[float | None, Record]]] = {}
    for record in (each for each in records if not groups or each["group"] in groups):
        for target in record["targets"]:
            # "default" is one rival here and another there: the words make the target.
            key = (target["what"], target["at_least"], target["at_most"])
            value = ratio(record, target["over"], target["under"], target["measure"])
            if value is not None and only_bounded(record, target["over"], target["measure"]):
                value = value if value >= (target["at_least"] or 0.0) else None  # else it decides nothing
            asked.setdefault(key, []).append((value, record))
    if not asked:
        return missing("paper-size depth solver")
    rows = [_target_row(*key, found) for key, found in asked.items()]
    return markdown(["what", "asked", "measured", "worst at", "verdict"], rows)


def _target_row(
    what: str, at_least: float | None, at_most: float | None, found: list[tuple[float | None, Record]]
) -> list[str]:
    bound = f"at least {at_least:g}" if at_least is not None else f"at most {at_most:g}"
    known = [(value, record) for value, record in found if value is not None]
    if not known:
        return [what, bound, "-", "-", "not measured"]
    known.sort(key=lambda pair: pair[0] if at_least is not None else -pair[0])
    values = [value for value, _ in known]
    hits = sum(v >= at_least if at_least is not None else v <= (at_most or 0) for v in values)
    verdict = "reached" if hits == len(known) else f"MISS ({hits} of {len(known)} reached)"
    if len(known) < len(found):
        verdict += f"; {len(found) - len(known)} not measured"
    low, high = min(values), max(values)
    span = number(low) if len(values) == 1 else f"{number(low)} to {number(high)}"
    return [what, bound, span, known[0][1]["name"], verdict]


def perfume(records: Records) -> str:
    """The training, stretch and whole: seconds, counts and where the time goes."""
    chosen = of_group(records, "perfume")
    if not chosen:
        return missing("perfume")
    rows = []
    for record in chosen:
        for name, outcome in record["rivals"].items():
            notes = outcome.get("notes", {})
            parts = notes.get("shares", {})
            rows.append(
                [
                    _setting(record["settings"]["mini-batches"]),
                    name,
                    seconds_cell(record, name, 1.0),
                    "" if name == "ours" else ratio_cell(record, name, "ours"),
                    f"{notes.get('iterations', 0):,}",
                    f"{notes.get('trials', 0):,}",
                    *(f"{100 * parts.get(kind, 0.0):.0f} %" for kind in SHARES),
                ]
            )
    sources = {o["notes"]["data"] for r in chosen for o in r["rivals"].values() if "notes" in o}
    headings = ["mini-batches", "network", "seconds", "/ ours", "iterations", "line-search trials", *SHARES]
    return f"{markdown(headings, rows)}\n\nData: {', '.join(sorted(sources))}."


def predict(records: Records) -> str:
    found = times(records, "predict", "s", [("command", "forward pass")])
    for record in of_group(records, "predict"):
        peak = record["rivals"]["command"].get("notes", {}).get("peak_mib")
        begin, whole, alone = (median(record, name) for name in ("start", "command", "forward pass"))
        if None not in (begin, whole, alone) and peak:
            # mypy does not see through the tuple.
            rest = number((whole - begin) / alone)  # type: ignore[operator]
            found += f"\n\nWithout the start, {rest} times the forward pass; peak memory {number(peak)} MiB."
    return found


def precision(records: Records) -> str:
    """For each problem and pass, the time in which each package's fastest method reaches some errors."""
    chosen = of_group(records, "precision")
    if not chosen:
        return missing("precision")
    rows = []
    for record in chosen:
        for error in REACHED:
            found = {package: seconds_to_reach(record, package, error) for package in PACKAGES}
            rows.append(
                [
                    *(_setting(value) for value in record["settings"].values()),
                    f"{error:.0e}",
                    *(_reached(seconds) for seconds in found.values()),
                    *(_faster(found["ours"], found[peer]) for peer in PACKAGES[1:]),
                ]
            )
    headings = [*chosen[0]["settings"], "error", *(f"{name} (ms)" for name in PACKAGES)]
    return markdown([*headings, *(f"{peer} / ours" for peer in PACKAGES[1:])], rows)


def _reached(found: tuple[float, bool] | None) -> str:
    return "-" if found is None else f"{'' if found[1] else '> '}{number(1e3 * found[0])}"


def _faster(ours: tuple[float, bool] | None, peer: tuple[float, bool] | None) -> str:
    if ours is None or peer is None or not ours[1]:
        return "-"
    return f"{'' if peer[1] else '> '}{number(peer[0] / ours[0])}"


def precision_points(records: Records) -> str:
    """Every point of the diagrams: milliseconds and, in brackets, the error; a curve in a row."""
    chosen = of_group(records, "precision")
    if not chosen:
        return missing("precision")
    rows = []
    for record in chosen:
        curves: dict[str, list[str]] = {}
        for name, outcome in record["rivals"].items():
            if outcome["status"] == "timed":
                curve, _, label = name.partition(": ")
                text = f"{label}: {number(1e3 * (median(record, name) or 0.0))} ({outcome['error']:.0e})"
                curves.setdefault(curve, []).append(text)
        rows += [[record["name"], curve, "; ".join(points)] for curve, points in curves.items()]
    return markdown(["problem", "method", "setting: ms (error)"], rows)


def machine(records: Records, groups: Sequence[str] = ()) -> str:
    """Where and with what the numbers were made, once for each setting among them; of some groups, or of all."""
    settings: dict[str, list[str]] = {}
    for record in (each for each in records if not groups or each["group"] in groups):
        made = record["made_with"]
        here = made["machine"]
        packages = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
        text = (
            f"{here['processor']}, {here['cores']} cores, {here['memory_gib']} GiB, {here['system']}, "
            f"{here['gpu'] + ', ' if 'gpu' in here else ''}"
            f"{here['threads']} threads unless said otherwise; {packages}"
        )
        if record["quick"]:
            text = f"QUICK SIZES, NOT RESULTS: {text}"
        settings.setdefault(text, []).append(record["group"])
    if len(settings) == 1:
        return f"{next(iter(settings))}."
    return "\n".join(f"- {', '.join(dict.fromkeys(groups))}: {text}." for text, groups in settings.items())


def refused(records: Records) -> str:
    """Rivals that were not timed, and why."""
    rows = [
        [f"{record['group']}, {record['name']}", name, outcome["status"], outcome.get("why", "").replace("|", "/")]
        for record in records
        for name, outcome in record["rivals"].items()
        if outcome["status"] != "timed"
    ]
    return markdown(["case", "rival", "status", "why"], rows) if rows else "None: every rival gave the right numbers."


def _both(measured: Callable[..., float | None]) -> str:
    seen, live = measured(measure="memory"), measured(measure="live_memory")
    return "-" if seen is None else f"{number(seen)} ({number(live)})"


def _setting(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _error(outcome: dict[str, Any] | None) -> str:
    if outcome is None:
        return "-"
    return f"{outcome['error']:.1e}" if "error" in outcome else outcome["status"]


_PAPER = [("plain", "ours"), ("naive", "ours")]
_DEPTH = [("exact", "residual"), ("compressed", "residual")]
_CHECKPOINT = [("checkpoint", "compressed")]
_GPU = [(f"{way}, {kind}", f"residual, {kind}") for kind in ("eager", "graph") for way in ("torch", "triton")]
_GPU_DENSE = [(f"ours, {kind}", f"residual, {kind}") for kind in ("eager", "graph")]
_SOLVER = [("ours", "torchdiffeq"), ("fdeint (PyPI)", "ours")]

TABLES: dict[str, Callable[[Records], str]] = {
    "targets": targets,
    "machine": machine,
    "refused": refused,
    "perfume": perfume,
    "predict": predict,
    "paper-size": partial(times, group="paper-size", unit="ms", ratios=_PAPER),
    "depth": partial(times, group="depth", unit="µs", ratios=_DEPTH, per="layers"),
    "width": partial(times, group="width", unit="µs", ratios=_DEPTH[1:], per="layers"),
    "width-memory": partial(memory, group="width", ratios=_DEPTH[1:], by="state"),
    "depth-memory": partial(memory, group="depth", ratios=_DEPTH, by="layers"),
    "stack-checkpoint": partial(times, group="stack-checkpoint", unit="µs", ratios=_CHECKPOINT, per="layers"),
    "stack-checkpoint-memory": partial(memory, group="stack-checkpoint", ratios=_CHECKPOINT, by="layers"),
    "gpu": partial(times, group="gpu", unit="µs", ratios=_GPU, per="layers"),
    "gpu-memory": partial(gpu_memory, group="gpu", rivals=[f"{way}, eager" for way in ("residual", "torch", "triton")]),
    "gpu-dense": partial(times, group="gpu-dense", unit="ms", ratios=_GPU_DENSE),
    "gpu-dense-memory": partial(gpu_memory, group="gpu-dense", rivals=["residual, graph", "ours, graph"]),
    "gpu-targets": partial(targets, groups=("gpu", "gpu-dense")),
    "gpu-machine": partial(machine, groups=("gpu", "gpu-dense")),
    "solver": partial(times, group="solver", unit="ms", ratios=_SOLVER),
    "solver-memory": partial(memory, group="solver", ratios=_SOLVER, by="steps"),
    "solver-errors": partial(errors, group="solver"),
    "long-solve": partial(times, group="long-solve", unit="s"),
    "long-solve-errors": partial(errors, group="long-solve"),
    "long-steps": partial(times, group="long-steps", unit="µs"),
    "checkpoint": partial(times, group="checkpoint", unit="µs", ratios=[("checkpoint", "plain")]),
    "checkpoint-memory": partial(memory, group="checkpoint", ratios=[("checkpoint", "plain")], by="pass"),
    "checkpoint-errors": partial(errors, group="checkpoint"),
    "precision": precision,
    "precision-points": precision_points,
    "order-one": partial(times, group="order-one", unit="ms", ratios=[("ours, adams", "torchdiffeq, midpoint")]),
    "order-one-errors": partial(errors, group="order-one"),
    "scaling-depth": partial(times, group="scaling-depth", unit="µs", per="layers"),
    "scaling-samples": partial(times, group="scaling-samples", unit="ms"),
}
