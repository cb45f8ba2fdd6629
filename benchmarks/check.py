"""Whether rivals are as right as the published results say. Times are those of a machine and an hour."""

from benchmarks.case import Case, Group, Options
from benchmarks.measures import Record
from benchmarks.peers import PACKAGES
from benchmarks.runner import outcomes_of
from records.checking import Again, holds
from records.keeping import Records, made_with

# Errors below it are rounding.
ROUNDING = 1e-12


def check_group(group: Group, records: Records, options: Options) -> bool:
    """Of its published cases the one that took least: each rival's status, and its error within a few times itself."""
    published = [
        (record, case)
        for case in group.cases(options)
        if (record := records.get({"group": group.name, "name": case.name})) is not None
    ]
    if not published:
        print(f"{group.name}: nothing is published")
        return True
    record, case = min(published, key=lambda each: _seconds(each[0]))
    return _is_as_right(group.name, record, case)


def _is_as_right(name: str, record: Record, case: Case) -> bool:
    now = {rival: _answer(found) for rival, found in outcomes_of(case).items() if found["status"] != "not installed"}
    before = {rival: _answer(record["rivals"].get(rival, {})) for rival in now}
    if not now:
        print(f"{name}: not checked, since nothing of it can run here")
        return True
    made = {"made_with": record["made_with"]}
    around = [{rival: _answer(found, factor) for rival, found in before.items()} for factor in (0.5, 2)]
    return holds(name, [Again(case.name, {**before, **made}, now, around, is_chaotic=True)], made_with(PACKAGES))


def _answer(outcome: Record, factor: float = 1) -> Record:
    found = {"status": outcome.get("status")}
    return {**found, "error": factor * max(outcome["error"], ROUNDING)} if outcome.get("error") is not None else found


def _seconds(record: Record) -> float:
    return sum(sum(outcome.get("seconds", [])) for outcome in record["rivals"].values())
