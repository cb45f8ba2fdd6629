"""`fdeint(..., batched=True)`: samples of one equation, each with a grid, an order and tolerances of its own.

The panels of all samples are found and solved at a time. A sample that needs the care of a search of its own is solved
alone, by the same func: the other rows then hold their starts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint as recomputed

from fracdnn.caputo.modes import kernel_modes
from fracdnn.exceptions import InvalidArgumentError, NotConvergedError, NotFiniteError
from fracdnn.solver.batched_panels import BatchedMemory, BatchedPanels
from fracdnn.solver.batched_search import BatchedSearch, Found, merged, outputs_at
from fracdnn.solver.collocation import Panel
from fracdnn.solver.grids import Spacing
from fracdnn.solver.panel_search import count_for
from fracdnn.solver.panels import Weights
from fracdnn.solver.problem import Problem, posed_problem
from fracdnn.solver.search import Tolerances
from fracdnn.solver.solution import Solution, Status
from fracdnn.validation import check_choice, check_order, check_times

_SHORTEST = 1e-7  # of panels found together, in times until the first output
_OF_RTOL = 1e-4  # that a sum over modes may be wrong by
_MOVE = 1e-3  # of a state, to see whether samples depend on one another
_ROUNDINGS = 64.0


@dataclass(frozen=True)
class _Batch:
    """Checked arguments: B samples, their orders [B], output times [B, T] and tolerances [B, 1] or [B, d]."""

    problem: Problem
    times: torch.Tensor
    clock_dtype: torch.dtype
    spacing: Spacing
    tolerances: Tolerances
    trajectory: bool

    @property
    def size(self) -> int:
        return len(self.times)

    @property
    def elapsed(self) -> torch.Tensor:
        """What is wanted, from the starts on."""
        elapsed = self.times - self.times[:, :1]
        return elapsed if self.trajectory else elapsed[:, -1:].contiguous()


def solve_batched(
    solve_one: Callable[..., Any],
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    order: Any,
    spacing: Spacing,
    rare: dict[str, Any],
    trajectory: bool,
) -> Solution:
    """As `fdeint` says, which is `solve_one`, for samples alone."""
    check_choice(rare["failures"], "failures", ("raise", "nan"))
    batch = _checked(func, y0, t, order, spacing, rare["slope"], trajectory)
    problem = batch.problem
    _check_apart(problem, batch.times[:, 0].detach().to(batch.clock_dtype))
    modes = _modes(batch)
    wanted = torch.is_grad_enabled()
    weights = Weights.of(problem.orders.detach(), count_for(spacing), modes)
    scheme = BatchedPanels(problem, weights, batch.times[:, 0].detach(), batch.clock_dtype)
    outputs = outputs_at(batch.elapsed.detach())
    found = BatchedSearch(scheme, batch.tolerances, outputs, spacing.max_step, notes=not wanted, sensitive=wanted).run()
    if wanted:
        weights = Weights.of(problem.orders, count_for(spacing), modes)
        outputs = outputs_at(batch.elapsed)
        if bool(found.done.any()):
            walk = BatchedPanels(problem, weights, batch.times[:, 0], batch.clock_dtype)
            _walk(walk, found, batch, outputs, checkpoint=rare["checkpoint"])
    states = outputs.states(problem.value)  # [B, T, d]
    status = [Status.SOLVED] * batch.size
    alone = _Alone(batch, solve_one, rare)
    rows, replaced = [], torch.nonzero(~found.done)[:, 0].tolist()
    for sample in replaced:
        try:
            rows.append(alone.solved(sample))
        except (NotConvergedError, NotFiniteError) as error:
            if rare["failures"] == "raise":
                raise type(error)(
                    f"in sample {sample} of {batch.size}: {error}; or pass options={{'failures': 'nan'}} for the others"
                ) from error
            status[sample] = Status.of(error)
            rows.append(torch.full_like(states[sample], math.nan))
    if rows:
        at = torch.tensor(replaced, device=states.device)
        states = states.index_copy(0, at, torch.stack(rows))
    shaped = problem.states.unpack(states.transpose(0, 1))
    nodes = batch.times[:, :1].detach() + found.nodes * (batch.times[:, -1:] - batch.times[:, :1]).detach()
    nodes = torch.where(found.done[:, None], nodes, math.nan)
    return Solution(
        shaped if trajectory else shaped[-1],
        "collocation",
        nodes,
        torch.where(found.done, found.counts, 0),
        found.n_rejected,
        problem.n_evaluations,
        status,
    )


def _modes(batch: _Batch) -> Any:
    elapsed = batch.elapsed.detach()
    first = torch.where(elapsed > 0.0, elapsed, math.inf).amin()
    tolerance = min(max(_OF_RTOL * batch.spacing.smallest_rtol, 1e-12), 1e-7)
    return kernel_modes(_SHORTEST * float(first), float(elapsed.max()), tolerance)


def _walk(scheme: BatchedPanels, found: Found, batch: _Batch, outputs: Any, *, checkpoint: bool) -> None:
    """Over the panels that were found, with a graph. A sample at its end goes on solving its last panel."""
    span = batch.elapsed[:, -1]
    last = (found.counts - 1).clip(min=0)
    memory = scheme.start()
    for number in range(int(found.counts[found.done].max())):
        active = found.done & (number < found.counts)
        place = torch.where(found.done, last.clip(max=number), 0)[:, None]
        begin, end = (found.nodes.gather(1, place + later)[:, 0] * span for later in (0, 1))
        guess = found.guesses[place[:, 0], torch.arange(batch.size, device=place.device)]
        guess = torch.where(found.done[:, None, None], guess, scheme.problem.value.detach()[:, None])
        end = torch.where(found.done, end, begin + scheme.shortest)

        def solved(
            memory: BatchedMemory,
            begin: torch.Tensor = begin,
            length: torch.Tensor = end - begin,
            guess: torch.Tensor = guess,
        ) -> Panel:
            systems = scheme.systems(memory, begin, length)
            states, slopes, _ = scheme.solve(systems, guess, found.done)
            states, slopes = scheme.attached(systems, states, slopes, found.done)
            return Panel(begin, length[:, None, None], states, slopes)

        panel = recomputed(solved, memory, use_reentrant=False) if checkpoint else solved(memory)
        outputs.note(scheme, memory, panel, active)
        goes_on = active & (number + 1 < found.counts)
        if bool(goes_on.any()):
            shortest = float((end - begin).detach()[goes_on].min())
            memory = merged(scheme.close(memory, panel, shortest), memory, goes_on)


class _Alone:
    """Samples one by one, by the same func."""

    def __init__(self, batch: _Batch, solve_one: Callable[..., Any], rare: dict[str, Any]) -> None:
        self._batch, self._solve_one = batch, solve_one
        self._options = {name: rare[name] for name in ("max_step", "checkpoint", "max_evaluations")}

    def solved(self, sample: int) -> torch.Tensor:
        """[T, d]."""
        batch, problem = self._batch, self._batch.problem
        begins = batch.times[:, 0].detach().to(batch.clock_dtype)
        starts, at = problem.value.detach(), torch.tensor([sample], device=problem.value.device)

        def own(time: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
            rows = starts.index_copy(0, at, state[None])
            return problem.packed_slope(begins.index_copy(0, at, time.reshape(1)), rows)[sample]

        slope = None if problem.velocity is None else problem.velocity[sample]
        order = problem.orders[sample]
        given = (problem.value[sample], slope) if slope is not None and float(order) > 1.0 else problem.value[sample]
        tolerances = {"rtol": batch.tolerances.rtol, "atol": batch.tolerances.atol}
        rows = {name: tolerance.expand(batch.size, -1)[sample] for name, tolerance in tolerances.items()}
        found = self._solve_one(
            own,
            given,
            batch.times[sample],
            order=order,
            options=self._options,
            trajectory=batch.trajectory,
            **rows,
        )
        return found if batch.trajectory else found[None]


def _checked(func: Any, y0: Any, t: Any, order: Any, spacing: Spacing, slope: Any, trajectory: bool) -> _Batch:
    value = y0[0] if isinstance(y0, tuple | list) and len(y0) == 2 and slope is None else y0
    if isinstance(value, tuple) or (isinstance(value, torch.Tensor) and not value.dim()):
        kind = "a tuple" if isinstance(value, tuple) else "a number"
        raise InvalidArgumentError(
            f"y0 must be one tensor [samples, …] with batched=True, got {kind}; put its parts into one, along the last "
            f"dimension"
        )
    size = len(torch.as_tensor(value))
    orders = check_order(order, "order", largest=2.0)
    if orders.numel() != 1 and orders.shape != (size,):
        raise InvalidArgumentError(
            f"order must be one number or one for each of the {size} samples, got shape {tuple(orders.shape)}; "
            f"pass a tensor [{size}]"
        )
    dims = torch.as_tensor(value).dim()
    problem = posed_problem(func, y0, orders.expand(size).reshape(size, *[1] * (dims - 1)), slope)
    times = torch.as_tensor(t) if not isinstance(t, torch.Tensor) else t
    if times.dim() == 2 and len(times) != size:
        raise InvalidArgumentError(
            f"t must hold times for all samples, or a row for each of the {size}, got shape {tuple(times.shape)}; "
            f"pass [{size}, T]"
        )
    rows = (
        [check_times(row, f"t[{number}]") for number, row in enumerate(times)] if times.dim() == 2 else [check_times(t)]
    )
    given = isinstance(t, torch.Tensor) and t.is_floating_point()
    device = problem.value.device
    return _Batch(
        problem,
        torch.stack(rows).expand(size, -1).to(device),
        times.dtype if given else torch.float64,
        spacing,
        Tolerances(
            *(
                _for_samples(each, name, size, problem).to(device)
                for each, name in ((spacing.atol, "atol"), (spacing.rtol, "rtol"))
            )
        ),
        trajectory,
    )


def _for_samples(tolerance: Any, name: str, size: int, problem: Problem) -> torch.Tensor:
    """[1, 1], [B, 1] or [B, d]."""
    if isinstance(tolerance, float):
        return torch.tensor([[tolerance]], dtype=torch.float64)
    if isinstance(tolerance, torch.Tensor) and tolerance.shape == (size,):
        return tolerance[:, None].to(torch.float64)
    return problem.states.spread(tolerance, name)


def _check_apart(problem: Problem, begins: torch.Tensor) -> None:
    """That a sample's slope does not depend on other samples, as the mean over a batch would make it."""
    if len(begins) < 2:
        return
    with torch.no_grad():
        value = problem.value.detach()
        slopes = problem.packed_slope(begins, value)
        if not bool((problem.packed_slope(begins, value) == slopes).all() | slopes.isnan().any()):
            return  # random, which shows later
        for parity in (0, 1):
            moved = value.clone()
            moved[parity::2] = moved[parity::2] * (1.0 + _MOVE) + _MOVE
            rest = slice(1 - parity, None, 2)
            after = problem.packed_slope(begins, moved)[rest]
            change = (after - slopes[rest]).abs()
            rounding = _ROUNDINGS * torch.finfo(value.dtype).eps * slopes[rest].abs().amax(1, keepdim=True)
            bad = (change > rounding).any(1)
            if bool(bad.any()):
                sample = int(bad.nonzero()[0]) * 2 + (1 - parity)
                raise InvalidArgumentError(
                    f"func must treat samples apart with batched=True, got a slope of sample {sample} that changes "
                    f"with the states of others; sum and average over dimensions after the first, or leave out batched"
                )
