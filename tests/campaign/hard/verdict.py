"""One hard solve and what came of it: accurate, refused in words, warned of noise, wrong, or over its budget.

Twenty tolerances are allowed. A tolerance bounds what a step adds, not what has gathered: on problems that are not
stable some steps' errors add up (docs/solver.md measures up to 1.3 tolerances for easy problems, and promises five next
to a jump that it was not told of). A wrong answer of the kind that the campaign is for is off by thousands.
"""

import contextlib
import signal
import threading
import traceback
import warnings
from dataclasses import dataclass

import numpy as np
import torch

from fracdnn.exceptions import FracdnnError
from fracdnn.solver import fdeint
from tests.campaign.hard import linear, nonlinear, radau, rough, schemes  # noqa: F401  (they register their kinds)
from tests.campaign.hard.case import KINDS, UnsureReferenceError
from tests.campaign.trying import script
from tests.solver.calls import grouped

TOLERANCES, DERIVATIVE_TOLERANCES = 20.0, 100.0
# Of noise: what a solver may add to it silently, and what it may add if it says so.
NOISE, NOISE_TOLD = 2.0, 100.0
MOST_SECONDS = 180.0  # a first-order method may well take 75,000 steps, which is a minute
FAILURES = ("wrong", "over budget", "refused wrongly")


class OverBudgetError(BaseException):
    """Not an Exception, so that nothing on the way takes it for one of func's."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case, and its error in tolerances (of fixed grids: in what is allowed)."""

    verdict: str
    error: float = 0.0
    evaluations: int = 0
    text: str = ""

    @property
    def failed(self):
        return self.verdict in FAILURES


@dataclass
class Result:
    """Numbers, [T, d], and derivatives of the last state's first components by the parameter."""

    states: np.ndarray
    derivatives: list


class Counted:
    """The right-hand side in units of time, which ends the solve where it is asked too often."""

    def __init__(self, case, problem, parameter):
        self.case, self.problem, self.parameter, self.calls = case, problem, parameter, 0
        with np.errstate(over="ignore"):
            factor = np.float64(case.span) ** -case.orders(len(problem.y0))
        self.factor = torch.tensor(factor, dtype=getattr(torch, case.dtype))

    def __call__(self, t, u):
        self.calls += 1
        if self.calls > self.problem.budget:
            raise OverBudgetError(f"more than {self.problem.budget} evaluations")
        x = (t - self.case.start) / self.case.span
        return self.factor * self.problem.func(torch, x, u, self.parameter).to(u.dtype)


def solved(case, problem, func):
    """The library's answer."""
    dtype, count = getattr(torch, case.dtype), len(problem.y0)
    y0 = torch.tensor(problem.y0, dtype=dtype)
    if problem.start_scales:
        y0 = func.parameter * y0
    t = case.start + case.span * torch.tensor([0.0, *problem.shares], dtype=torch.float64)
    options = {"method": case.method, "order": case.order}
    if np.max(case.order) > 1:
        options["slope"] = 0.0
    if isinstance(case.order, tuple):
        options["order"] = torch.tensor(case.order, dtype=torch.float64)
    if case.grid == "adaptive":
        atol = torch.tensor(atol_of(case, problem), dtype=torch.float64)
        options |= {"rtol": case.rtol, "atol": atol if count > 1 else float(atol[0])}
        if problem.breakpoints:
            options["breakpoints"] = [case.start + case.span * x for x in problem.breakpoints]
    else:
        options["grid"] = case.grid
        if case.grid != "given":
            options["n_steps"] = case.n_steps
    return fdeint(func, y0, t.to(getattr(torch, case.times)), **grouped(**options))


def atol_of(case, problem):
    """A thousandth of what the relative tolerance leaves a component of its own size."""
    return 1e-3 * case.rtol * np.broadcast_to(np.asarray(problem.scale, dtype=float), problem.y0.shape)


def answered(case, problem):
    """Numbers in the way that the case asks for them, and how many evaluations they took."""
    learned = case.mode == "gradient"
    parameter = torch.ones((), dtype=getattr(torch, case.dtype), requires_grad=learned)
    ways = {"no_grad": torch.no_grad, "inference": torch.inference_mode}
    func = Counted(case, problem, parameter)
    try:
        with ways.get(case.mode, contextlib.nullcontext)(), limited():
            states = solved(case, problem, func)
            derivatives = []
            if learned and problem.derivative is not None:
                parts = states[-1][:3]
                derivatives = [float(torch.autograd.grad(part, parameter, retain_graph=True)[0]) for part in parts]
            return Result(states.detach()[1:].double().numpy(), derivatives), func.calls
    except BaseException as error:
        error.calls = func.calls
        raise


@contextlib.contextmanager
def limited():
    """Some minutes of this process's own time: a loop that never asks func has to end as well."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_):
        raise OverBudgetError(f"more than {MOST_SECONDS:.0f} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def problem_of(case):
    """What the kind makes of the case, at the outputs that it asks for."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        problem = KINDS[case.kind](case)
    problem.budget = case.given.get("budget", problem.budget)
    problem.answer = case.given.get("answer", problem.answer)
    if case.outputs == "end":
        last = [-1]
        problem.shares = problem.shares[last]
        for name in ("exact", "derivative", "peak", "bound"):
            value = getattr(problem, name)
            setattr(problem, name, None if value is None else value[last])
    return problem


def outcome(case):
    """The verdict."""
    try:
        problem = problem_of(case)
    except UnsureReferenceError as error:
        return Outcome("skipped", text=str(error))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result, calls = answered(case, problem)
        except OverBudgetError as error:
            return Outcome("over budget", np.inf, error.calls, str(error))
        except FracdnnError as error:
            wrongly = problem.answer == "solve" or not str(error).strip()
            text = f"{type(error).__name__}: {error}"
            return Outcome("refused wrongly" if wrongly else "refused", 0.0, error.calls, text)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"a raw {type(error).__name__} from {where.filename.split('/')[-1]}:{where.lineno}: {error}"
            return Outcome("wrong", np.inf, getattr(error, "calls", 0), text)
    stray = [w for w in caught if not issubclass(w.category, UserWarning) and "fracdnn" not in w.category.__module__]
    if stray:
        return Outcome("wrong", np.inf, calls, f"a stray {stray[0].category.__name__}: {stray[0].message}")
    return judged(case, problem, result, calls, [w for w in caught if w not in stray])


def shown(states):
    """The last few."""
    return " ".join(str(row) for row in states[-3:])


def judged(case, problem, result, calls, told):
    """Numbers against the reference, for each component and time."""
    if problem.answer == "must refuse":
        return Outcome("wrong", np.inf, calls, f"numbers for a problem that has none: {shown(result.states)}")
    if problem.answer == "must warn":
        text = "" if told else f"no warning for an explosion: {shown(result.states)}"
        return Outcome("warned" if told else "wrong", 0.0 if told else np.inf, calls, text)
    if not np.all(np.isfinite(result.states)):
        return Outcome("wrong", np.inf, calls, f"numbers that are not finite: {shown(result.states)}")
    peak = np.abs(problem.exact) if problem.peak is None else problem.peak
    unit = atol_of(case, problem) + case.rtol * peak
    rounding = 50 * torch.finfo(getattr(torch, case.dtype)).eps * np.maximum(np.abs(problem.exact).max(0), peak.max(0))
    error = np.abs(result.states - problem.exact)
    if problem.bound is None:
        noise = (NOISE_TOLD if told else NOISE) * np.asarray(problem.noise)
        allowed = TOLERANCES * unit + noise + rounding
        worst = float((error / (allowed / TOLERANCES)).max())
    else:
        allowed = problem.bound + rounding
        worst = float((error / allowed).max())
    if np.any(error > allowed):
        at = np.unravel_index(np.argmax(error / allowed), error.shape)
        text = f"u[{at[0] + 1}, {at[1]}] is {result.states[at]:.9g} for {problem.exact[at]:.9g}, {worst:.3g} tolerances"
        return Outcome("wrong", worst, calls, text)
    for i, found in enumerate(result.derivatives):
        right = float(problem.derivative[-1, i])
        limit = _derivative_limit(case, problem, unit, i, right)
        if not abs(found - right) <= limit:
            text = f"du[-1, {i}]/da is {found:.9g} for {right:.9g}, {abs(found - right) / limit:.3g} times the limit"
            return Outcome("wrong", worst, calls, text)
    return Outcome("warned" if told else "accurate", worst, calls)


def _derivative_limit(case, problem, unit, i, right):
    if problem.bound is None:
        rounding = 200 * torch.finfo(getattr(torch, case.dtype)).eps * abs(right)
        return DERIVATIVE_TOLERANCES * (unit[-1, i] + case.rtol * abs(right)) + rounding
    share = 1e-5 if case.dtype == "float64" else 1e-3
    return share * (np.abs(problem.derivative[:, i]).max() + np.abs(problem.exact[:, i]).max())


def check(case):
    """Fail with a script that repeats it."""
    found = outcome(case)
    assert not found.failed, f"{found.verdict}: {found.text}\n{script(check, case)}"
    return found
