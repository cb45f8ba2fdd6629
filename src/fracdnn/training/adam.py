"""Training by Adam: epochs of one network, of several side by side, or of samples in windows, by one loop."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch.optim.adam import adam

from fracdnn.exceptions import NotFiniteError
from fracdnn.optim import Status
from fracdnn.training import progress, together
from fracdnn.training.captured import Captured, can_capture
from fracdnn.training.loops import Training
from fracdnn.training.records import Record, record_of
from fracdnn.training.run import Member, Run, State
from fracdnn.training.stacked import StackedMembers, can_stack
from fracdnn.training.task import Task
from fracdnn.validation import check_count, check_positive

# Mean loss and accuracy, which a regression has not.
Result = tuple[float, float | None]
# As torch's Adam has them.
_OPTIONS = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "maximize": False}


class Adam:
    """Adam's moments and rate for some parameters.

    A step is torch's function: its class would import the compiler, which takes longer than a small training. Fused, it
    is one call. In a CUDA graph all that it reads is on the device, in float64, which the fused one cannot.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], *, captured: bool = False) -> None:
        self.parameters, device = parameters, parameters[0].device
        self._options = {**_OPTIONS, **({"foreach": True, "capturable": True} if captured else {"fused": True})}
        number: Any = {"dtype": torch.float64 if captured else torch.float32, "device": device}
        self._rate: float | torch.Tensor = torch.zeros((), **number) if captured else 0.0
        # As torch's Adam calls them.
        zeros = partial(torch.zeros_like, requires_grad=False)
        self.states: list[State] = [
            {"step": torch.zeros((), **number), "exp_avg": zeros(each), "exp_avg_sq": zeros(each)}
            for each in parameters
        ]

    def set_rate(self, rate: float) -> None:
        self._rate = self._rate.fill_(rate) if isinstance(self._rate, torch.Tensor) else rate

    @torch.no_grad()
    def step(self) -> None:
        pairs = zip(self.parameters, self.states, strict=True)
        moved = [(each, each.grad, *state.values()) for each, state in pairs if each.grad is not None]
        parameters, gradients, steps, firsts, seconds = map(list, zip(*moved, strict=True))
        options: Any = {**self._options, "lr": self._rate}
        adam(parameters, gradients, firsts, seconds, [], steps, **options)


def _mean(loss: torch.Tensor, rows: float) -> float:
    return float(loss.flatten()[0]) / rows


class OneMember:
    """A task by itself, with the interface of `StackedMembers`; on several processes the samples that are here."""

    axis = 0

    def __init__(self, task: Task, batch_size: int) -> None:
        self._size, self.network, self.tasks, self.counts = batch_size, task.network, [task], [task.n]
        self.n_batches = -(-task.n // batch_size)
        self.parameters = list(self.network.parameters())
        self.kept = [*self.parameters, *self.network.buffers()]

    def load(self, orders: Sequence[torch.Tensor]) -> None:
        self._shuffled = task = self.tasks[0].part(orders[0])
        rows, here = task.numbered.batches(self._size)
        self.sizes, self.rows = here.tolist(), rows.unsqueeze(1).to(task.x.device, torch.float64)
        self.data = [each for each in task.chunk if each is not None]

    def evaluate(self, batch: Sequence[torch.Tensor]) -> tuple[float | torch.Tensor, torch.Tensor]:
        for parameter in self.parameters:
            parameter.grad = None
        x, target, *weight = batch
        task = replace(self.tasks[0], x=x, target=target, weight=weight[0] if weight else None)
        return task.evaluate(), task.output

    def accuracies(self, outputs: torch.Tensor) -> list[float | None]:
        return [self._shuffled.accuracy(outputs)]

    def records(self, number: int, results: Sequence[Result]) -> list[Record]:
        return [record_of(self.network, number, *results[0])]

    def scores(self) -> list[float | None]:
        """Left to the run, which may have samples in pieces."""
        return [None]

    def untie(self) -> None:
        """The network's parameters are its own."""


class Epochs:
    """Epochs of members with one optimizer, from CUDA graphs if `captured`; parameters keep the last gradients."""

    def __init__(self, members: OneMember | StackedMembers, optimizer: Adam, *, captured: bool = False) -> None:
        self.members, self.optimizer = members, optimizer
        self.captured = Captured(members.network) if captured else None
        self.n_batches = members.n_batches

    def run(self, rates: Sequence[float]) -> list[Result]:
        """`one`; a member whose loss is not finite is then as it was before."""
        members = self.members
        before = [each.detach().clone() for each in members.kept]
        try:
            results = self.one(rates)
        except NotFiniteError:
            results = [(math.nan, None)]
        for member, (loss, _) in enumerate(results):
            if not math.isfinite(loss):
                part = self._part(member)
                for each, old in zip(members.kept, before, strict=True):
                    each.detach()[part] = old[part]
        return results

    def one(self, rates: Sequence[float]) -> list[Result]:
        """An epoch in random order, with a rate for each batch: mean loss and accuracy of each member on the way, each
        sample with the parameters it met.
        """
        members, optimizer = self.members, self.optimizer
        pairs = zip(members.counts, members.tasks, strict=True)
        members.load([torch.randperm(n, generator=task.generator).to(task.x.device) for n, task in pairs])
        loss, outputs, begin = torch.zeros_like(members.rows[0]), [], 0
        each_has = members.counts[0] / max(1, len(members.sizes))
        for number, (size, rate) in enumerate(zip(members.sizes, rates, strict=True)):
            batch: Sequence[torch.Tensor] = [each.narrow(members.axis, begin, size) for each in members.data]
            optimizer.set_rate(rate)
            if self.captured is None:
                value, output, *gradients = self._step(batch)
            else:
                held = self.captured.load(batch, copy=True)
                value, output, *gradients = self.captured(partial(self._step, held))
                output = output.clone()
            loss, begin = loss + value * members.rows[number], begin + size
            outputs.append(output)
            if progress.log is not None:
                progress.log.add_rows(each_has, partial(_mean, loss, (number + 1) * each_has))
        for parameter, gradient in zip(optimizer.parameters, gradients, strict=True):
            parameter.grad = gradient
        losses = (loss.cpu() / torch.tensor(members.counts)).tolist()
        return list(zip(losses, members.accuracies(torch.cat(outputs, members.axis)), strict=True))

    def _step(self, batch: Sequence[torch.Tensor]) -> tuple:
        value, output = self.members.evaluate(batch)
        self.optimizer.step()
        return value, output, *[parameter.grad for parameter in self.optimizer.parameters]

    def _part(self, member: int) -> Any:
        """Where the numbers of a member are in a tensor of all."""
        return member if self.members.axis else ...

    def moments(self, member: int) -> State:
        """As torch's Adam keeps them, by the number of the parameter."""
        part = self._part(member)
        return {
            str(number): {
                "step": state["step"].to("cpu", torch.float32, copy=True),
                **{name: state[name][part].clone() for name in ("exp_avg", "exp_avg_sq")},
            }
            for number, state in enumerate(self.optimizer.states)
        }

    def set_moments(self, member: int, saved: State) -> None:
        """The inverse; a ValueError where they are of other parameters, as torch would fail at the first step."""
        part = self._part(member)
        for number, state in enumerate(self.optimizer.states):
            for name, moments in state.items():
                mine, value = moments if name == "step" else moments[part], saved[str(number)][name]
                if value.shape != mine.shape or value.dtype != (torch.float32 if name == "step" else mine.dtype):
                    raise ValueError(f"moments of other parameters than the network's {len(self.optimizer.states)}")
                mine.copy_(value)


# How far an epoch in windows is: windows done, and sums for its record.
_NOTHING: State = {"window": 0, "samples": 0, "loss": 0.0, "weight": 0.0, "hits": 0.0}


@dataclass(frozen=True)
class AdamTraining(Training):
    """Adam on shuffled mini-batches, a record an epoch.

    The loss is the mean over the epoch's batches, the accuracy the share of its samples, by weight, each with the
    parameters it met.

    The learning rate falls linearly, from step to step, to 0 at the end of `max_epochs`.
    """

    lr: float = 1e-3
    batch_size: int = 64
    max_epochs: int = 200

    def __post_init__(self) -> None:
        check_positive(self.lr, "lr")
        check_count(self.batch_size, "batch_size", minimum=1)
        check_count(self.max_epochs, "max_epochs", minimum=1)

    def _train(self, run: Run) -> str:
        return AdamLoop(self, run).train()


def can_go_side_by_side(tasks: Sequence[Task], training: Any) -> bool:
    """Whether there are several tasks, on one process and device, with networks that can be stacked."""
    if len(tasks) < 2 or type(training) is not AdamTraining or not together.is_alone():
        return False
    terms = tasks[0].objective.regularization
    plain = not terms.smooth and not terms.decay_bias
    return plain and tasks[0].weight is not None and can_stack([task.network for task in tasks])


class AdamLoop:
    """The members of a run, epoch by epoch, until each has ended.

    With `window`, a single member has its samples in pieces; each window holds that many batches.
    """

    def __init__(self, training: Any, run: Run, window: int | None = None) -> None:
        self._training, self._run, self._window = training, run, window
        self._done, self._sums = 0, _NOTHING
        with run.restoring():
            for position in (member.position for member in run.members if member.position):
                self._done = check_count(position["epoch"], "epoch", minimum=1)
                if window is not None:
                    self._done, within = self._done - 1, position["within"]
                    self._sums = {name: type(zero)(within[name]) for name, zero in _NOTHING.items()}
                    check_count(self._sums["window"], "window")
        self._stack()

    def train(self) -> str:
        try:
            while self._done < self._training.max_epochs:
                results = [(*stack, self._pass(*stack)) for stack in self._stacks]
                noted = [each for stack in results for each in self._noted(*stack)]
                if noted:
                    self._done, self._sums = self._done + 1, _NOTHING
                self._run.note(noted, self._positions)
                statuses = [member.history.status for members, _ in self._stacks for member in members]
                if any(statuses):
                    self._untie()
                    self._stack()
        finally:
            self._untie()
        return "epoch limit"

    def _noted(
        self, members: Sequence[Member], epochs: Epochs, results: Sequence[Result]
    ) -> list[tuple[Member, Record]]:
        """The records of members, those that are finite; others have ended."""
        noted, stacked = [], epochs.members
        records = stacked.records(len(members[0].history.records) + 1, results)
        for member, record, score in zip(members, records, stacked.scores(), strict=True):
            member.history.captured |= epochs.captured is not None and epochs.captured.is_captured
            if math.isfinite(record.loss):
                noted.append((member, member.add(record, score)))
            else:
                member.history.status = str(Status.NOT_FINITE)
        return noted

    def _n_batches(self, member: Member) -> int:
        return -(-member.task.n // self._training.batch_size)

    def _stack(self) -> None:
        """Put the networks that are still trained side by side: those that have the same number of batches."""
        going_on = [member for member in self._run.members if not member.history.status]
        groups = [list(group) for _, group in groupby(sorted(going_on, key=self._n_batches), self._n_batches)]
        self._stacks = [(members, self._epochs_of(members)) for members in groups]

    def _epochs_of(self, members: Sequence[Member]) -> Epochs:
        """With the moments of the members."""
        size, tasks = self._training.batch_size, [member.task for member in members]
        held_out = [member.validation for member in members if member.validation is not None]
        is_one = len(self._run.members) == 1
        stacked = OneMember(tasks[0], size) if is_one else StackedMembers(tasks, size, held_out)
        captured = all(map(can_capture, tasks))
        epochs = Epochs(stacked, Adam(stacked.parameters, captured=captured), captured=captured)
        with self._run.restoring():
            for place, member in enumerate(members):
                if member.position:
                    epochs.set_moments(place, member.position["optimizer"])
        return epochs

    def _untie(self) -> None:
        """Keep the moments, and give stacked networks parameters of their own again."""
        for members, epochs in self._stacks:
            for place, member in enumerate(members):
                member.position = {"optimizer": epochs.moments(place)}
            epochs.members.untie()

    def _positions(self) -> Iterator[State]:
        """How each member goes on from here."""
        now = {member: epochs.moments(k) for members, epochs in self._stacks for k, member in enumerate(members)}
        for member in self._run.members:
            moments = now[member] if member in now else member.position["optimizer"]
            position = {"epoch": self._done, "optimizer": moments, "status": member.history.status}
            if self._window is not None:
                position |= {"epoch": self._done + 1, "within": self._sums}
            yield position

    def _pass(self, members: Sequence[Member], epochs: Epochs) -> list[Result]:
        """An epoch; of samples in pieces, its remaining windows."""
        n_batches, size, length = epochs.n_batches, self._training.batch_size, self._window
        if length is None:
            return epochs.run(self._rates(n_batches, range(n_batches)))
        task: Any = members[0].task
        results: list[Result] = []
        for window in task.windows(length * size, self._done + 1, self._sums["window"]):
            epochs.members = OneMember(window, size)
            first, last = (k * length for k in (self._sums["window"], self._sums["window"] + 1))
            results = epochs.run(self._rates(n_batches, range(first, min(last, n_batches))))
            ((loss, accuracy),) = results
            if not math.isfinite(loss):
                break
            weight = window.whole_weight
            added = (1, window.n, loss * window.n, weight, (accuracy or 0.0) * weight)
            self._sums = {name: self._sums[name] + new for name, new in zip(_NOTHING, added, strict=True)}
            done, n, loss, weight, hits = self._sums.values()
            results = [(loss / n, None if accuracy is None else hits / weight)]
            if last < n_batches:
                number = len(members[0].history.records) + 1
                self._run.mark(done, self._positions, partial(epochs.members.records, number, results))
        return results

    def _rates(self, n_batches: int, batches: range) -> list[float]:
        """Learning rates of some of an epoch's batches; they fall linearly to 0 at the end of all epochs."""
        rate, most = self._training.lr, self._training.max_epochs
        return [rate * (1.0 - (self._done + k / n_batches) / most) for k in batches]


def adam_epoch(task: Task, optimizer: Adam, batch_size: int, rates: float | Sequence[float]) -> Result:
    """One pass over the samples in random order, with one learning rate or one for each mini-batch; mean loss and
    accuracy on the way.
    """
    given = [rates] * -(-task.n // batch_size) if isinstance(rates, float) else rates
    return Epochs(OneMember(task, batch_size), optimizer).one(given)[0]
