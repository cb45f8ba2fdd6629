"""`fdeint(..., batched=True)`: samples of one equation, each with a grid, an order and tolerances of its own.

The default inside of `torch.func.vmap` is the same: func is then called inside of the map alone. The panels of all
samples are found and solved at a time. A sample that needs the care of a search of its own is solved alone, by the same
func: the other rows then hold their starts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from fracdnn.caputo.modes import kernel_modes
from fracdnn.exceptions import InvalidArgumentError, NotConvergedError, NotFiniteError
from fracdnn.memory.recomputation import recomputed
from fracdnn.solver.batched_panels import BatchedPanels, BatchedSearch, Outputs, merged
from fracdnn.solver.collocation import Memory, Panel
from fracdnn.solver.dense import DensePanels
from fracdnn.solver.grids import ROUNDING, Adaptive, Spacing, moved
from fracdnn.solver.panel_errors import Tolerances
from fracdnn.solver.panel_search import count_for
from fracdnn.solver.panels import Weights
from fracdnn.solver.problem import TIME_ROUNDING, Problem, posed_problem
from fracdnn.solver.rare_options import check_digits, most_evaluations
from fracdnn.solver.solution import Solution, Status
from fracdnn.solver.states import as_state, each_part
from fracdnn.tracing import Mapping, inside_of_transforms, outside_of_transforms
from fracdnn.validation import check_numbers, check_order, check_times

_SHORTEST = 1e-7  # of panels found together, in times until the first output
_OF_RTOL = 1e-4  # that a sum over modes may be wrong by
_MOVE = 1e-3  # of a state, to see whether samples depend on one another
_ROUNDINGS = 64.0


@dataclass(frozen=True, eq=False)
class _Batch:
    """Checked arguments: B samples, their orders [B], output times [B, T] and tolerances [B, 1] or [B, d]."""

    problem: Problem
    times: torch.Tensor
    clock_dtype: torch.dtype
    has_clock: bool  # whether that is the dtype of given times, not the state's
    spacing: Spacing
    tolerances: Tolerances
    trajectory: bool

    @property
    def elapsed(self) -> torch.Tensor:
        """What is wanted, from the starts on."""
        elapsed = self.times - self.times[:, :1]
        return elapsed if self.trajectory else elapsed[:, -1:].contiguous()

    @property
    def earliest(self) -> torch.Tensor:
        """The first wanted time after the start of each sample; [B]."""
        elapsed = self.elapsed.detach()
        return torch.where(elapsed > 0.0, elapsed, math.inf).amin(1)

    @property
    def coarse(self) -> torch.Tensor:
        """Return the intervals from starts and breakpoints to the next output, [C, B, 2]. See `DensePanels`."""
        elapsed, stops = self.elapsed.detach().contiguous(), self.stops.detach()
        begins = torch.cat([0.0 * stops[:, :1], stops[:, :-1]], dim=1).contiguous()
        place = torch.searchsorted(elapsed, begins, right=True).clip(max=elapsed.shape[1] - 1)
        return torch.stack([begins, elapsed.gather(1, place)], dim=-1).transpose(0, 1)

    @property
    def stops(self) -> torch.Tensor:
        """Where panels have to end, from the starts on: at breakpoints inside, and at its end; [B, K + 1]."""
        first, last = self.times[:, :1], self.times[:, -1:]
        if self.spacing.breakpoints is None:
            return last - first
        jumps, rounding = self.spacing.breakpoints.to(first), ROUNDING * torch.maximum(first.abs(), last.abs())
        inside = (jumps > first + rounding) & (jumps < last - rounding)
        return torch.cat([torch.where(inside, jumps, last).sort(1).values, last], dim=1) - first

    def weights(self, orders: torch.Tensor) -> Weights:
        """For panels of all samples."""
        tolerance = min(max(_OF_RTOL * self.spacing.smallest_rtol, 1e-12), 1e-7)
        modes = kernel_modes(_SHORTEST * float(self.earliest.min()), float(self.elapsed.detach().max()), tolerance)
        return Weights.of(orders, count_for(self.spacing), modes)


def solve_mapped(
    solve: Callable[..., Any],
    mapping: Mapping,
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    order: Any,
    trajectory: Any,
    **options: Any,
) -> Solution:
    """A solve inside of `torch.func.vmap`, as one of a batch; `solve` is `fdeint` itself."""
    start, orders = each_part(mapping.whole, (as_state(y0, "y0"), torch.as_tensor(order)))
    times = mapping.whole(t) if isinstance(t, torch.Tensor) else t
    with outside_of_transforms() as transforms:

        def of_all(time: torch.Tensor, state: Any) -> Any:
            with inside_of_transforms(transforms):
                return each_part(mapping.whole, func(mapping.mapped(time), each_part(mapping.mapped, state)))

        options |= {"trajectory": trajectory, "batched": True, "info": True}
        found = solve(of_all, start, times, order=orders, **options)
    states = each_part(partial(mapping.mapped, dim=1 if trajectory else 0), found.states)
    return replace(found, states=states, _panels=None)


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
    batch = _checked(func, y0, t, order, spacing, rare["slope"], trajectory)
    problem = batch.problem
    check_digits("collocation", spacing, problem.value.dtype)
    _check_apart(batch)
    problem.max_evaluations = most_evaluations(rare["max_evaluations"], spacing)
    wanted, begins, stops = torch.is_grad_enabled(), batch.times[:, :1], batch.stops
    scheme = BatchedPanels(problem, batch.weights(problem.orders.detach()), begins.detach(), batch.clock_dtype)
    outputs = Outputs(batch.elapsed.detach())
    search = BatchedSearch(scheme, batch.tolerances, outputs, stops.detach(), spacing.max_step, sensitive=wanted)
    search.run()
    problem.max_evaluations = math.inf  # samples alone count their own
    nodes, panels = search.nodes, list(zip(search.guesses, search.slopes, strict=True))
    if wanted:
        outputs = Outputs(batch.elapsed)
        if not bool(search.failed.all()):
            walk = BatchedPanels(problem, batch.weights(problem.orders), begins, batch.clock_dtype)
            nodes = moved(search.nodes, stops)
            panels = _walk(walk, search, nodes, outputs, checkpoint=rare["checkpoint"])
    states = outputs.states(problem.value)  # [B, T, d]
    # A state that nobody noted would be NaN: such a sample is solved alone as well.
    failed = search.failed[:, 0] | states.detach().isnan().flatten(1).any(1)
    states, status, alone = _replaced(states, torch.nonzero(failed)[:, 0].tolist(), batch, solve_one, rare)
    states, dense = states.transpose(0, 1), None
    if rare["keep_panels"] and not rare["checkpoint"] and panels:
        found = DensePanels.of(problem, nodes, panels, batch.coarse)
        dense = found and found.with_samples(alone)
    return Solution(
        problem.states.unpack(states if trajectory else states[-1]),
        "collocation",
        torch.where(failed[:, None], math.nan, begins.detach() + search.nodes),
        torch.where(failed, 0, search.counts[:, 0]),
        search.rejected[:, 0],
        problem.n_evaluations,
        status,
        _panels=dense,
        _times=batch.times[:, [0, -1]],
    )


def _walk(
    scheme: BatchedPanels, found: BatchedSearch, nodes: torch.Tensor, outputs: Outputs, *, checkpoint: bool
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Walk over the panels that were found, with a graph; return the states and slopes of each.

    A sample at its end goes on solving its last panel.
    """
    panels = []
    done, counts = ~found.failed, found.counts
    last, memory, guesses = (counts - 1).clip(min=0), scheme.start(), torch.stack(found.guesses)

    def solved(memory: Memory, begin: torch.Tensor, length: torch.Tensor, guess: torch.Tensor) -> Panel:
        system = scheme.system(memory, begin, length)
        states, slopes, _ = scheme.solve(system, guess, done)
        return Panel(begin, length, *scheme.attached(system, states, slopes, done))

    for number in range(int(counts[done].max())):
        active = done & (number < counts)
        place = torch.where(done, last.clip(max=number), 0)
        begin, end = (nodes.gather(1, place + later) for later in (0, 1))
        guess = guesses[place[:, 0], torch.arange(len(nodes), device=place.device)]
        guess = torch.where(done[..., None], guess, scheme.problem.value.detach()[:, None])
        end = torch.where(done, end, begin + scheme.shortest)
        given = (memory, begin, end - begin, guess)
        panel = recomputed(solved, *given) if checkpoint else solved(*given)
        panels.append((panel.states, panel.slopes))
        outputs.note(scheme, memory, panel, end, active)
        goes_on = active & (number + 1 < counts)
        if bool(goes_on.any()):
            shortest = float((end - begin).detach()[goes_on].min())
            memory = merged(scheme.close(memory, panel, shortest), memory, goes_on)
    return panels


def _replaced(
    states: torch.Tensor, samples: list[int], batch: _Batch, solve_one: Callable[..., Any], rare: dict[str, Any]
) -> tuple[torch.Tensor, list[Status], dict[int, DensePanels | None]]:
    """Return states [B, T, d] with those of some samples as they are alone, or NaN, how each ended, and panels."""
    rows, status = [], [Status.SOLVED] * len(batch.times)
    panels: dict[int, DensePanels | None] = dict.fromkeys(samples)
    for sample in samples:
        try:
            found = _alone(sample, batch, solve_one, rare)
            rows.append(found.states if batch.trajectory else found.states[None])
            panels[sample] = found._panels
        except (NotConvergedError, NotFiniteError) as error:
            if rare["failures"] != "nan":
                raise type(error)(
                    f"in sample {sample} of {len(status)}: {error}; or pass "
                    f"options={{'failures': 'nan'}} for the others"
                ) from error
            status[sample] = Status.of(error)
            rows.append(torch.full_like(states[sample], math.nan))
    if not rows:
        return states, status, panels
    return states.index_copy(0, torch.tensor(samples, device=states.device), torch.stack(rows)), status, panels


def _alone(sample: int, batch: _Batch, solve_one: Callable[..., Any], rare: dict[str, Any]) -> Solution:
    """Solve a sample alone, states [T, d], by the same func, whose other rows hold their starts."""
    problem, begins = batch.problem, batch.times[:, 0].detach().to(batch.clock_dtype)
    starts, at = problem.value.detach(), torch.tensor([sample], device=problem.value.device)

    def own(time: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        rows = starts.index_copy(0, at, state[None])
        return problem.packed_slope(begins.index_copy(0, at, time.reshape(1).to(begins)), rows)[sample]

    order, given, times = problem.orders[sample], problem.value[sample], batch.times[sample]
    return solve_one(
        own,
        given if problem.velocity is None or float(order) <= 1.0 else (given, problem.velocity[sample]),
        times.to(batch.clock_dtype) if batch.has_clock else times.tolist(),
        order=order,
        grid=Adaptive(
            rtol=batch.tolerances.rtol.expand(len(batch.times), -1)[sample],
            atol=batch.tolerances.atol.expand(len(batch.times), -1)[sample],
            max_step=batch.spacing.max_step,
        ),
        options={name: rare[name] for name in ("breakpoints", "checkpoint", "max_evaluations")},
        trajectory=batch.trajectory,
        info=True,
    )


def _checked(func: Any, y0: Any, t: Any, order: Any, spacing: Spacing, slope: Any, trajectory: bool) -> _Batch:
    y0, orders = as_state(y0, "y0"), check_order(order, "order", largest=2.0)
    is_pair = isinstance(y0, tuple) and len(y0) == 2 and slope is None and bool((orders > 1.0).any())
    value = y0[0] if is_pair else y0
    parts = value if isinstance(value, tuple) else (value,)
    shapes = [tuple(part.shape) if isinstance(part, torch.Tensor) else () for part in parts]
    if not shapes or not all(shape and math.prod(shape) and shape[0] == shapes[0][0] for shape in shapes):
        got = f"shapes {', '.join(map(str, shapes))}" if shapes else "an empty tuple"
        raise InvalidArgumentError(
            f"y0 must be a tensor [samples, …] that is not empty, or a tuple of such, with batched=True, got {got}; "
            f"give each tensor the samples as its first dimension"
        )
    size = shapes[0][0]
    if orders.numel() != 1 and orders.shape != (size,):
        raise InvalidArgumentError(
            f"order must be one number or one for each of the {size} samples, got shape {tuple(orders.shape)}; "
            f"pass a tensor [{size}]"
        )
    times = check_numbers(t, "t")
    if times.dim() > 2 or (times.dim() == 2 and len(times) != size):
        raise InvalidArgumentError(
            f"t must hold times [T] for all samples, or a row for each of the {size}, got shape {tuple(times.shape)}; "
            f"pass [{size}, T]"
        )
    device, many = parts[0].device, times.dim() == 2
    rows = [check_times(row, f"t[{number}]") for number, row in enumerate(times)] if many else [check_times(t)]
    times = torch.stack(rows).expand(size, -1).to(device)
    if spacing.breakpoints is not None and len(spacing.breakpoints):
        func = _beside_jumps(func, spacing.breakpoints.detach().to(device), times[:, 0].detach())
    problem = posed_problem(func, y0, orders.reshape(-1).expand(size).to(device), slope, apart=True)
    has_clock = isinstance(t, torch.Tensor) and t.is_floating_point()
    given = ((spacing.atol, "atol"), (spacing.rtol, "rtol"))
    tolerances = Tolerances(*(_for_samples(each, name, size, problem).to(device) for each, name in given))
    return _Batch(problem, times, problem.clock_dtype(t), has_clock, spacing, tolerances, trajectory)


def _for_samples(tolerance: Any, name: str, size: int, problem: Problem) -> torch.Tensor:
    """[1, 1], [B, 1] or [B, d]."""
    if isinstance(tolerance, torch.Tensor) and tolerance.shape == (size,):
        return tolerance[:, None].to(torch.float64)
    return torch.atleast_2d(problem.states.spread(tolerance, name))


def _beside_jumps(func: Callable[..., Any], jumps: torch.Tensor, begin: torch.Tensor) -> Callable[..., Any]:
    """Func, evaluated as the left limit at jumps, and as the right limit at first times; see `Problem.beside_jump`."""

    def beside(time: torch.Tensor) -> torch.Tensor:
        now, epsilon = time.detach().double(), TIME_ROUNDING * torch.finfo(time.dtype).eps
        rounding = epsilon * torch.maximum(now.abs(), begin.abs())
        jump = jumps[torch.searchsorted(jumps, now - rounding).clip(max=len(jumps) - 1)]
        side = torch.where(jump <= begin + rounding, math.inf, -math.inf).to(time)
        moved = torch.nextafter(jump.to(time) + torch.copysign(epsilon * jump.abs().to(time), side), side)
        return time + torch.where((jump - now).abs() <= rounding, moved - time.detach(), 0.0)

    return lambda time, state: func(beside(time), state)


@torch.no_grad()
def _check_apart(batch: _Batch) -> None:
    """That a sample's slope does not depend on times and states of others, as the mean over a batch would make it.

    Half of the samples move, by each digit of their numbers: any two of them differ in one. Not at the start, where
    func may hide what it does.
    """
    problem, value = batch.problem, batch.problem.value.detach()
    begins, early = batch.times[:, 0].detach(), batch.earliest
    moment, later = ((begins + part * early).to(batch.clock_dtype) for part in (0.3, 0.4))
    slopes = problem.packed_slope(moment, value)
    again = problem.packed_slope(moment, value)
    if not bool(((again == slopes) | slopes.isnan()).all()):
        return  # random, which shows later
    numbers = torch.arange(len(batch.times), device=value.device)
    rounding = _ROUNDINGS * torch.finfo(value.dtype).eps * slopes.abs().amax(1, keepdim=True)
    for digit in range((len(batch.times) - 1).bit_length()):
        for moves in ((numbers >> digit) % 2 == 0, (numbers >> digit) % 2 == 1):
            states = torch.where(moves[:, None], value * (1.0 + _MOVE) + _MOVE, value)
            after = problem.packed_slope(torch.where(moves, later, moment), states)
            bad = ~moves & ((after - slopes).abs() > rounding).any(1)
            if bool(bad.any()):
                raise InvalidArgumentError(
                    f"func must treat samples apart with batched=True, got a slope of sample {int(bad.nonzero()[0])} "
                    f"that changes with states or times of others; sum and average over dimensions after the first, "
                    f"give times [B] as many dimensions as y has, as in t[:, None], or leave out batched"
                )
