"""Evaluations and steps of a training from CUDA graphs: all operations of a step in one launch.

A small network's operations take a GPU less time than Python needs between them. Where shapes repeat, the first steps
run as they come, the next one is captured, and from then on a step is one replay: the same operations on the same
memory, so the same bits. What changes from step to step (which samples, how far) is read from tensors on the device.
"""

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from fracdnn.exceptions import KernelWarning
from fracdnn.nn import FractionalNetwork
from fracdnn.tracing import has_module_hooks, has_tensor_hooks, operations_are_watched
from fracdnn.training import together
from fracdnn.training.evaluation import is_plain
from fracdnn.training.task import Task

Work = Callable[[], tuple[torch.Tensor, ...]]
_one_at_a_time = threading.Lock()
# Runs before a capture: libraries choose kernels and make room in the first ones.
_RUNS_BEFORE = 3


def can_capture(task: Task) -> bool:
    """Whether nothing in an evaluation requires Python each time."""
    network, parameters = task.network, list(task.network.parameters())
    return (
        isinstance(task, Task)  # samples in pieces come from Python
        and task.x.is_cuda
        and together.is_alone()
        and all(parameter.device == task.x.device for parameter in parameters)
        and type(network) is FractionalNetwork
        and network.memory.is_the_same_in_a_graph(task.x, network.architecture.n_layers)
        and is_plain(task.objective)
        and not any(map(has_module_hooks, network.modules()))
        and not has_tensor_hooks(*parameters)
        and not operations_are_watched("cuda")
    )


class Repeated:
    """Work on the same tensors each time, captured when it has been done a few times, and then replayed.

    A graph goes on reading the network's `constants`, so these are held. Where a capture fails, for what reason ever,
    the work is done as it comes.
    """

    def __init__(self, network: Any, device: torch.device) -> None:
        self._network, self._device = network, device
        self._stream = torch.cuda.Stream(device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self._runs, self._tries = 0, True
        self._results: tuple[torch.Tensor, ...] = ()

    def __call__(self, work: Work) -> tuple[torch.Tensor, ...]:
        """Do it; the work comes with each call, since who has it also has this object."""
        with torch.cuda.device(self._device):
            if self._tries and self.graph is None and self._runs >= _RUNS_BEFORE:
                self._capture(work)
            if self.graph is not None:
                self.graph.replay()
                return self._results
            # On the stream of captures: autograd remembers the stream that it met a parameter on.
            self._runs += 1
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                results = work()
            current.wait_stream(self._stream)
            return results

    def _capture(self, work: Work) -> None:
        """Nothing is computed in a capture, so that a failure leaves all as it was."""
        graph = torch.cuda.CUDAGraph()
        try:
            # One at a time, as torch wants it; the stream again, since torch does not leave it where a capture fails.
            capture = torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local")
            with _one_at_a_time, torch.cuda.stream(self._stream), capture:
                self._results = work()
        except RuntimeError as error:
            self._tries = False
            warnings.warn(
                f"a step could not be captured in a CUDA graph, so steps are launched operation by operation, which is "
                f"slower ({str(error).splitlines()[0]}); the results are the same",
                KernelWarning,
                stacklevel=4,
            )
            return
        self.graph, self._held = graph, self._network.constants()


class Captured:
    """Work on a network and some tensors, in a graph for each kind of them: first `load` these, then call."""

    def __init__(self, network: Any) -> None:
        self._network = network
        self._known: dict[object, tuple[Repeated, Sequence[torch.Tensor]]] = {}

    @property
    def is_captured(self) -> bool:
        return any(repeated.graph is not None for repeated, _ in self._known.values())

    def load(self, tensors: Sequence[torch.Tensor], *, copy: bool = False) -> Sequence[torch.Tensor]:
        """Where work finds these numbers: in the first tensors of their kind, or in a copy of these."""
        key = tuple((each.shape, each.dtype) for each in tensors)
        if key not in self._known:
            held = [each.clone() for each in tensors] if copy else tensors
            self._known[key] = Repeated(self._network, tensors[0].device), held
        self._repeated, held = self._known[key]
        for mine, theirs in zip(held, tensors, strict=True):
            if mine is not theirs:
                mine.copy_(theirs)
        return held

    def __call__(self, work: Work) -> tuple[torch.Tensor, ...]:
        return self._repeated(work)
