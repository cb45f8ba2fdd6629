"""Hard equations against solutions of other origin: right for each component, or refused in words, and in time."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from fracdnn.exceptions import NotConvergedError
from tests.campaign import budget, hard_solves
from tests.campaign.hard import verdict
from tests.campaign.hard.case import Case
from tests.campaign.hard.draws import DRAWS
from tests.campaign.hard.known import APART, CASES
from tests.campaign.hard.references import decay, forced, integrated, output_shares
from tests.campaign.hard.schemes import stepped
from tests.campaign.hard.verdict import check, outcome, problem_of
from tests.references import mittag_leffler
from tests.slow import slow_but

PARTS, CASES_OF_A_PART = budget.cases(36, 20), budget.cases(1, 120)
# Of references that are not sure: a campaign that skips has found nothing.
LARGEST_SHARE_SKIPPED = 0.05


# What `make test` tries: of the known cases one of each kind of trouble, of the drawn ones every third.
OFTEN = (
    "a large component, collocation",
    "float32 on panels",
    "an output just after a panel",
    "a pulse in a very short span",
    "an integrable singularity",
    "1/t",
    "late times in float32",
    "an explosion, adams",
    "single precision inside",
    "a span of 1e-300",
    "NaN at the start",
)


@pytest.mark.parametrize("name", slow_but(CASES if budget.full() else OFTEN, CASES))
def test_known_cases(name):
    assert check(CASES[name]).verdict != "skipped"


@pytest.mark.parametrize("part", slow_but(range(PARTS) if budget.full() else range(2, PARTS, 3), range(PARTS)))
def test_drawn_cases(part):
    """One case in each part, at least one of each kind, or many."""
    numbers = range(part * CASES_OF_A_PART, (part + 1) * CASES_OF_A_PART)
    rows = [hard_solves.tried(budget.seed(), number) for number in numbers]
    budget.say_tried(f"hard solves {part}", len(rows))
    failed = hard_solves.failures(rows)
    assert not failed, "\n".join([*failed, hard_solves.table(rows)])
    assert sum(row["verdict"] == "skipped" for row in rows) <= LARGEST_SHARE_SKIPPED * len(rows)


MILD_CASE = Case("decay", order=0.8, rtol=1e-4, given={"rates": [1.0, 2.0], "scales": [1e6, 1.0]})


def answers(monkeypatch, change, warning=None):
    """As if the solver gave the right states, changed."""

    def solved(case, problem, func):
        if warning:
            warnings.warn(warning, UserWarning, stacklevel=2)
        return torch.tensor(np.concatenate([problem.y0[None], change(problem.exact.copy())]))

    monkeypatch.setattr(verdict, "solved", solved)


def test_the_verdict_looks_at_each_component(monkeypatch):
    """An error of a part in a thousand of the small component, a billionth of the large one, is found."""
    answers(monkeypatch, lambda exact: exact)
    assert outcome(MILD_CASE).verdict == "accurate"
    answers(monkeypatch, lambda exact: exact * np.array([1, 1.01]))
    found = outcome(MILD_CASE)
    assert found.verdict == "wrong"
    assert 10 < found.error < 200
    with pytest.raises(AssertionError, match=r"wrong: u\[\d, 1\].*\n.*\n.*\n.*import Case"):
        check(MILD_CASE)


def test_what_is_not_finite_or_has_no_solution_is_wrong(monkeypatch):
    answers(monkeypatch, lambda exact: exact * np.nan)
    assert outcome(MILD_CASE).verdict == "wrong"
    answers(monkeypatch, lambda exact: exact)
    hopeless = replace(MILD_CASE, given={**MILD_CASE.given, "answer": "must refuse"})
    assert outcome(hopeless).verdict == "wrong"


def raising(error):
    def solved(case, problem, func):
        raise error

    return solved


def test_errors_are_told_apart(monkeypatch):
    monkeypatch.setattr(verdict, "solved", raising(NotConvergedError("in words")))
    assert outcome(MILD_CASE).verdict == "refused wrongly"
    assert outcome(replace(MILD_CASE, given={**MILD_CASE.given, "answer": "may refuse"})).verdict == "refused"
    monkeypatch.setattr(verdict, "solved", raising(OverflowError("raw")))
    assert outcome(replace(MILD_CASE, given={**MILD_CASE.given, "answer": "may refuse"})).verdict == "wrong"


def test_a_solve_without_end_is_ended(monkeypatch):
    def solved(case, problem, func):
        while True:
            func(torch.tensor(0.5), torch.tensor(problem.y0))

    monkeypatch.setattr(verdict, "solved", solved)
    assert outcome(replace(MILD_CASE, given={**MILD_CASE.given, "budget": 50})).verdict == "over budget"


def test_a_warning_of_noise_allows_more(monkeypatch):
    case = CASES["10 bits"]
    far = 30 * problem_of(case).noise
    answers(monkeypatch, lambda exact: exact + far)
    assert outcome(case).verdict == "wrong"
    answers(monkeypatch, lambda exact: exact + far, warning="func is noisy")
    assert outcome(case).verdict == "warned"


@pytest.mark.parametrize("order", [0.2, 0.95])
@pytest.mark.parametrize("rate", [1e-6, 3.0, 1e8])
def test_inverted_transforms_are_mittag_leffler_functions(order, rate):
    times = np.array([1e-3, 1.0])
    expected = [float(mittag_leffler(-rate * time**order, order, 1).real) for time in times]
    assert decay(rate, order, times)[:, 0] == pytest.approx(expected, rel=1e-11)
    steps = forced(lambda s: 1 / s, rate, order, times)
    series = [float(time**order * mittag_leffler(-rate * time**order, order, 1 + order).real) for time in times]
    assert steps == pytest.approx(series, rel=1e-10)


@pytest.mark.parametrize("order", [0.4, 1.0, 1.6])
def test_the_integrated_reference_knows_its_error(order):
    found, error = integrated(lambda x, z: -3 * z, [1.0], (order,), 64)
    true = np.abs(found - decay(3.0, order, output_shares((order,))))
    assert np.all(true <= error + 1e-12)
    assert np.all(error < 1e-5)


def test_cases_repeat_and_differ():
    assert len(DRAWS) <= PARTS * CASES_OF_A_PART
    assert hard_solves.drawn(5, 3) == hard_solves.drawn(5, 3) != hard_solves.drawn(6, 3)
    assert len({repr(hard_solves.drawn(5, number)) for number in range(200)}) == 200


def test_the_command_tells_what_failed(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(hard_solves, "DRAWS", [lambda random: MILD_CASE])
    arguments = ["--count", "1", "--output", str(tmp_path / "found.json")]
    answers(monkeypatch, lambda exact: exact)
    assert hard_solves.main(arguments) == 0
    answers(monkeypatch, lambda exact: 2 * exact)
    assert hard_solves.main(arguments) == 1
    told = capsys.readouterr().out
    assert "check(Case(rtol=0.0001, given={'rates': [1.0, 2.0], 'scales': [1000000.0, 1.0]}))" in told
    assert "worst passed" in told
    assert "wrong" in (tmp_path / "found.json").read_text(encoding="utf-8")


def test_components_are_held_to_their_formula_alone():
    """The plain schemes give each component what it would be without the others."""
    nodes = np.arange(9) / 8
    both = stepped("trapezoidal", lambda x, z: -np.array([0.1, 5.0]) * z**3, np.ones(2), (0.8, 0.8), nodes)
    alone = stepped("trapezoidal", lambda x, z: -5.0 * z**3, np.ones(1), (0.8,), nodes)
    assert both[:, 1] == pytest.approx(alone[:, 0], rel=1e-12)
    assert APART["scales"][0] / APART["scales"][1] == 1e6
