"""Evaluations and steps of a training from CUDA graphs: all operations of a step in one launch.

A small network's operations take a GPU less time than Python needs between them. Where shapes repeat, the first steps
run as they come, the next one is captured, and from then on a step is one replay: the same operations on the same
memory, so the same bits. What changes from step to step (which samples, how far) is read from tensors on the device.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from fracdnn.nn import FractionalNetwork
from fracdnn.tracing import has_module_hooks, has_tensor_hooks, operations_are_watched
from fracdnn.training.evaluation import check_labels, is_plain
from fracdnn.training.task import Task

# Runs before a capture: libraries choose kernels and make room in the first ones.
_RUNS_BEFORE = 3


def can_capture(task: Task) -> bool:
    """Whether nothing in an evaluation asks for Python each time."""
    network, parameters = task.network, list(task.network.parameters())
    return (
        task.x.is_cuda
        and task.ranks.count == 1
        and all(parameter.device == task.x.device for parameter in parameters)
        and type(network) is FractionalNetwork
        and network.adjoint == "exact"
        and is_plain(task.objective)
        and not any(map(has_module_hooks, network.modules()))
        and not has_tensor_hooks(*parameters)
        and not operations_are_watched("cuda")
    )


class Repeated:
    """A function of no arguments that is captured when it has run a few times, and then replayed.

    It always reads and writes the same tensors; `results` are those that it returned in the capture. What it reads of
    a network's constants is held: the network may make room for others.
    """

    def __init__(
        self, function: Callable[[], tuple[torch.Tensor, ...]], network: FractionalNetwork, device: torch.device
    ) -> None:
        self._function, self._network, self._device = function, network, device
        self._stream = torch.cuda.Stream(device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._runs = 0
        self.results: tuple[torch.Tensor, ...] = ()

    @property
    def is_captured(self) -> bool:
        return self._graph is not None

    def __call__(self) -> tuple[torch.Tensor, ...]:
        with torch.cuda.device(self._device):
            if self._graph is None and self._runs >= _RUNS_BEFORE:
                self._capture()
            if self._graph is not None:
                self._graph.replay()
                return self.results
            return self._run_aside()

    def _run_aside(self) -> tuple[torch.Tensor, ...]:
        """Where captures run: autograd remembers the stream that it met a parameter on."""
        self._runs += 1
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            results = self._function()
        current.wait_stream(self._stream)
        return results

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            self.results = self._function()
        self._graph, self._held = graph, self._network.constants()


class CapturedEvaluation:
    """The objective and its gradients for tasks of one shape after the other, each bound before it is evaluated."""

    def __init__(self) -> None:
        self._task: Task | None = None
        self._trained: list[torch.nn.Parameter] = []

    @property
    def is_captured(self) -> bool:
        return self._task is not None and self._repeated.is_captured

    def bind(self, task: Task) -> bool:
        """Evaluate this task from now on; False where it cannot be captured."""
        if not can_capture(task):
            return False
        kept = self._task
        if kept is not None and _is_alike(kept, task):
            for mine, theirs in zip(_data(kept), _data(task), strict=True):
                mine.copy_(theirs)
        else:
            check_labels(task.objective.loss, task.network.architecture.n_outputs, task.target)
            self._task = task
            self._repeated = Repeated(self._evaluate, task.network, task.x.device)
        return True

    def backward(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The objective and the outputs, both on the device; the gradients become those of the parameters."""
        assert self._task is not None
        value, outputs, *gradients = self._repeated()
        for parameter, gradient in zip(self._trained, gradients, strict=True):
            parameter.grad = gradient
        return value, outputs

    def _evaluate(self) -> tuple[torch.Tensor, ...]:
        assert self._task is not None
        for parameter in self._task.network.parameters():
            parameter.grad = None
        value = self._task.evaluate()
        assert isinstance(value, torch.Tensor)
        self._trained = [p for p in self._task.network.parameters() if p.grad is not None]
        return value, self._task.output, *[p.grad for p in self._trained if p.grad is not None]


class CapturedEpochs:
    """Epochs of a task's samples in mini-batches, each step of an optimiser that reads its rate from the device."""

    def __init__(self, task: Task, optimizer: torch.optim.Optimizer, batch_size: int) -> None:
        n, device = len(task.x), task.x.device
        check_labels(task.objective.loss, task.network.architecture.n_outputs, task.target)
        self._task, self._optimizer, self._n = task, optimizer, n
        self._sizes = [min(batch_size, n - begin) for begin in range(0, n, batch_size)]
        self._order = torch.arange(n, device=device)
        self._rates = torch.zeros(len(self._sizes), device=device)
        self._done, self._number = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._outputs = task.x.new_empty(n, task.network.architecture.n_outputs)
        self._steps = {size: Repeated(partial(self._step, size), task.network, device) for size in set(self._sizes)}

    @property
    def is_captured(self) -> bool:
        return any(step.is_captured for step in self._steps.values())

    def run(self, order: torch.Tensor, rates: Sequence[float]) -> tuple[float, float | None]:
        """One epoch in this order; mean loss and accuracy on the way."""
        self._order.copy_(order)
        self._rates.copy_(torch.tensor(rates))
        for counter in (self._done, self._number, self._loss):
            counter.zero_()
        for size in self._sizes:
            self._steps[size]()
        shuffled = self._task.part(self._order)
        return float(self._loss) / self._n, shuffled.accuracy(self._outputs)

    def _step(self, size: int) -> tuple[torch.Tensor, ...]:
        places = self._done + torch.arange(size, device=self._order.device)
        batch = self._task.part(self._order[places])
        self._optimizer.param_groups[0]["lr"].copy_(self._rates[self._number].squeeze(0))
        for parameter in self._task.network.parameters():
            parameter.grad = None
        self._loss += batch.evaluate() * size
        self._optimizer.step()
        self._outputs[places] = batch.output
        self._done += size
        self._number += 1
        return ()


def _data(task: Task) -> list[torch.Tensor]:
    return [each for each in (task.x, task.target, task.weight) if each is not None]


def _is_alike(one: Task, other: Task) -> bool:
    """Whether tasks differ in nothing but their samples."""
    same = one.network is other.network and one.objective == other.objective
    shapes = [[(each.shape, each.dtype, each.device) for each in _data(task)] for task in (one, other)]
    return same and shapes[0] == shapes[1] and (one.weight is None) == (other.weight is None)
