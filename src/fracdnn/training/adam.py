"""Training by Adam: epochs of mini-batches of one network, or of several side by side."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch.optim.adam import adam

from fracdnn.exceptions import InvalidArgumentError, NotFiniteError
from fracdnn.optim import Status
from fracdnn.training import processes
from fracdnn.training.loops import Training
from fracdnn.training.progress import current_log
from fracdnn.training.records import Record
from fracdnn.training.run import Member, Run, State
from fracdnn.training.stacked import SingleMember, StackedMembers, can_stack
from fracdnn.training.task import Task
from fracdnn.validation import check_count, check_positive

# Mean loss, and accuracy or None for a regression.
Result = tuple[float, float | None]
# The defaults of torch's Adam.
_OPTIONS = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "maximize": False}


class Adam:
    """Adam's moments for some parameters.

    A step is torch's fused function: its class would import the compiler, which takes longer than a small training.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self.parameters = list(parameters)
        zeros = partial(torch.zeros_like, requires_grad=False)
        self.states: list[State] = [
            {"step": torch.zeros((), device=each.device), "exp_avg": zeros(each), "exp_avg_sq": zeros(each)}
            for each in parameters
        ]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        pairs = zip(self.parameters, self.states, strict=True)
        moved = [(each, each.grad, *state.values()) for each, state in pairs if each.grad is not None]
        parameters, gradients, steps, firsts, seconds = map(list, zip(*moved, strict=True))
        options: Any = {**_OPTIONS, "lr": rate, "fused": True}
        adam(parameters, gradients, firsts, seconds, [], steps, **options)


def run_epoch(members: SingleMember | StackedMembers, optimizer: Adam, rates: Sequence[float]) -> list[Result]:
    """Pass all samples once in random order, with a rate for each batch.

    Returns the mean loss and the accuracy of each member, each sample with the parameters it met.
    """
    members.shuffle()
    log, loss, outputs, begin = current_log(), torch.zeros_like(members.rows[0]), [], 0
    for number, (size, rate) in enumerate(zip(members.sizes, rates, strict=True)):
        batch = [each.narrow(members.axis, begin, size) for each in members.data]
        values, output = members.evaluate(batch)
        if processes.count() > 1:
            values = processes.average_gradients(optimizer.parameters, values, batch[-1].sum(1))
        optimizer.step(rate)
        loss, begin = loss + values * members.rows[number], begin + size
        outputs.append(output)
        if log is not None:
            log.add_rows(members.counts[0] / len(members.sizes), partial(_mean, loss, members.rows[: number + 1]))
    hits = members.hits(torch.cat(outputs, members.axis))
    sums = torch.stack([loss.cpu(), torch.tensor(members.counts, dtype=torch.float64)])
    sums = processes.add_up(sums if hits is None else torch.cat([sums, hits]))
    losses = (sums[0] / sums[1]).tolist()
    return list(zip(losses, [None] * len(losses) if hits is None else (sums[2] / sums[3]).tolist(), strict=True))


def _mean(loss: torch.Tensor, rows: torch.Tensor) -> float:
    return float(loss[0] / rows[:, 0].sum())


class _Group:
    """Members with the same number of batches, and their optimizer."""

    def __init__(self, members: Sequence[Member], batch_size: int, n_batches: int, run: Run) -> None:
        tasks, validation = [member.task for member in members], [m.validation for m in members if m.validation]
        self.members, self.n_batches = members, n_batches
        is_single = len(run.members) == 1 or not can_stack(tasks)
        if processes.count() > 1:
            if not can_stack(tasks):
                raise InvalidArgumentError(
                    "width must be a number, bias True and the activation a name for several processes, got another "
                    "network; train it in one process"
                )
            is_single, batch_size = False, -(-max(task.n for task in tasks) // n_batches)
        self._stack: SingleMember | StackedMembers
        if is_single:
            self._stack = SingleMember(tasks[0], batch_size)
        else:
            self._stack = StackedMembers(tasks, batch_size, n_batches, validation)
        self._optimizer = Adam(self._stack.parameters)
        with run.restoring():
            for place, member in enumerate(members):
                if member.position:
                    self._set_moments(place, member.position["optimizer"])
                member.current_position = partial(self._position, place)

    def epoch(self, rates: Sequence[float]) -> list[tuple[Member, Record]]:
        """Return the records of members with finite losses; others are as they were before, and have ended."""
        stack, before = self._stack, [each.detach().clone() for each in self._stack.changing]
        try:
            results = run_epoch(stack, self._optimizer, rates)
        except NotFiniteError:
            results = [(math.nan, None)]
        for place, (loss, _) in enumerate(results):
            if not math.isfinite(loss):
                self.members[place].history.status = str(Status.NOT_FINITE)
                for each, old in zip(stack.changing, before, strict=True):
                    each.detach()[self._part(place)] = old[self._part(place)]
        records = stack.records(len(self.members[0].history.records) + 1, results)
        rows = zip(self.members, records, self._scores(), strict=True)
        return [(member, member.add(record, score)) for member, record, score in rows if math.isfinite(record.loss)]

    def close(self) -> None:
        """Keep the moments, and give stacked networks parameters of their own again."""
        for member in self.members:
            member.stay()
        self._stack.untie()

    def _scores(self) -> list[float | None]:
        found = self._stack.held_out_losses()
        if found is None:
            return [None] * len(self.members)
        losses, weights = found
        if processes.count() > 1:
            sums = processes.add_up(torch.stack([losses.double() * weights, weights.double()]))
            losses = sums[0] / sums[1]
        return list(losses.tolist())

    def _part(self, place: int) -> Any:
        """Return the index of a member's numbers in a tensor of all members."""
        return place if self._stack.axis else ...

    def _position(self, place: int) -> State:
        """Return where a member stands, with its moments by the number of the parameter."""
        part, epoch = self._part(place), len(self.members[place].history.records)
        moments = {
            str(number): {
                "step": state["step"].to("cpu", copy=True),
                **{name: state[name][part].clone() for name in ("exp_avg", "exp_avg_sq")},
            }
            for number, state in enumerate(self._optimizer.states)
        }
        return {"epoch": epoch, "optimizer": moments}

    def _set_moments(self, place: int, saved: State) -> None:
        """Take the moments of a position; raise ValueError if they are of other parameters."""
        for number, state in enumerate(self._optimizer.states):
            for name, moments in state.items():
                mine, value = moments if name == "step" else moments[self._part(place)], saved[str(number)][name]
                if value.shape != mine.shape or value.dtype != mine.dtype:
                    raise ValueError(f"moments of other parameters than the network's {len(self._optimizer.states)}")
                mine.copy_(value)


@dataclass(frozen=True)
class AdamTraining(Training):
    """Adam on shuffled mini-batches, a record per epoch.

    The loss is the mean over the epoch's batches, the accuracy the share of its samples, by weight, each with the
    parameters it met. The learning rate falls linearly, from step to step, to 0 at the end of `max_epochs`.
    """

    lr: float = 1e-3
    batch_size: int = 64
    max_epochs: int = 200

    def __post_init__(self) -> None:
        check_positive(self.lr, "lr")
        check_count(self.batch_size, "batch_size", minimum=1)
        check_count(self.max_epochs, "max_epochs", minimum=1)

    def _train(self, run: Run) -> str:
        with run.restoring():
            saved = [member.position["epoch"] for member in run.members if member.position]
            done = max((check_count(epoch, "epoch", minimum=1) for epoch in saved), default=0)
        groups = self._groups(run)
        try:
            while done < self.max_epochs:
                noted = [each for group in groups for each in group.epoch(self._rates(done, group.n_batches))]
                done += bool(noted)
                run.note(noted)
                if any(member.history.status for group in groups for member in group.members):
                    _close(groups)
                    groups = self._groups(run)
        finally:
            _close(groups)
        return "epoch limit"

    def _groups(self, run: Run) -> list[_Group]:
        """Put networks that are still trained side by side if they can be stacked and have as many batches."""
        going_on = [member for member in run.members if not member.history.status]
        by_batches: Callable[[Member], int] = lambda member: -(-_rows_of_all(member.task) // self.batch_size)  # noqa: E731
        counted = sorted(((by_batches(member), place) for place, member in enumerate(going_on)))
        groups = [(n, [going_on[place] for _, place in group]) for n, group in groupby(counted, lambda each: each[0])]
        if not can_stack([member.task for member in going_on] or [run.members[0].task]):
            groups = [(n, [member]) for n, members in groups for member in members]
        return [_Group(members, self.batch_size, n, run) for n, members in groups]

    def _rates(self, done: int, n_batches: int) -> list[float]:
        """Return the learning rates of an epoch's batches."""
        return [self.lr * (1.0 - (done + k / n_batches) / self.max_epochs) for k in range(n_batches)]


def _close(groups: list[_Group]) -> None:
    for group in groups:
        group.close()
    groups.clear()


def _rows_of_all(task: Task) -> int:
    """Return the number of samples on all ranks."""
    return int(processes.add_up(torch.tensor(task.n)))


def adam_epoch(task: Task, optimizer: Adam, batch_size: int, rate: float) -> Result:
    """Pass all samples once in random order with one learning rate; return the mean loss and the accuracy."""
    members = SingleMember(task, batch_size)
    return run_epoch(members, optimizer, [rate] * len(members.sizes))[0]
