"""One training: the same weights, batches and settings for every stream of a depth and seed."""

import gc
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from examples.gpt.model import GPT, loss_of
from examples.gpt.streams import STREAMS, learned_orders
from examples.gpt.text import Text
from fracdnn.nn import parameter_groups

# Before a capture, as torch wants it, and before anything is timed.
_REHEARSALS = 3
# The file of the runs, and what tells them apart.
NAME, FIELDS = "gpt.json", ("arm", "depth", "seed")
Record = dict[str, Any]


@dataclass(frozen=True)
class Job:
    arm: str
    depth: int
    seed: int

    def __str__(self) -> str:
        return f"{self.depth} blocks, seed {self.seed}, {self.arm}"


@dataclass(frozen=True)
class Settings:
    """Sizes and how it is trained; nothing of it depends on the stream."""

    width: int = 128
    batch: int = 64
    context: int = 256
    steps: int = 500
    evaluations: int = 20
    windows: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.1
    clip: float = 1.0

    @property
    def warmup(self) -> int:
        return max(self.steps // 10, 1)

    @property
    def tokens_a_step(self) -> int:
        return self.batch * self.context

    def marks(self) -> list[int]:
        """The steps after which the loss is measured, 0 the first."""
        return sorted({round(self.steps * k / self.evaluations) for k in range(self.evaluations + 1)})


class Data:
    """The text on the device, and the windows of the held-out part on which the loss is measured, evenly spaced."""

    def __init__(self, text: Text, settings: Settings, device: torch.device) -> None:
        training, held_out = (torch.frombuffer(bytearray(part.content), dtype=torch.uint8) for part in text.parts)
        length = settings.context + 1
        for name, part in (("training", training), ("held-out", held_out)):
            if len(part) < length:
                raise ValueError(f"the {name} text must hold a window of {length} bytes, got {len(part)}; read more")
        starts = torch.linspace(0, len(held_out) - length, settings.windows, dtype=torch.float64).long()
        self.span = torch.arange(length)
        self.windows = held_out[starts.unsqueeze(1) + self.span].long().to(device)
        self.training, self.span = training.to(device), self.span.to(device)
        self.device = device

    def starts(self, settings: Settings, seed: int) -> torch.Tensor:
        """Where the windows of all batches begin, [steps, batch]: a matter of the seed alone."""
        generator = torch.Generator().manual_seed(seed)
        last = len(self.training) - len(self.span)
        return torch.randint(last + 1, (settings.steps, settings.batch), generator=generator).to(self.device)


class Training:
    """A model, its optimizer and the buffers of a step: tokens and learning rate, both on the device."""

    def __init__(self, job: Job, settings: Settings, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(job.seed)
        sizes = {"depth": job.depth, "width": settings.width, "context": settings.context}
        self.model = GPT(STREAMS[job.arm], **sizes, generator=generator).to(device)
        self.settings, self.device = settings, device
        self.tokens = torch.zeros(settings.batch, settings.context + 1, dtype=torch.long, device=device)
        self.rate = torch.tensor(settings.learning_rate, device=device)
        self.parameters = list(self.model.parameters())
        on_gpu = device.type == "cuda"
        self.optimizer = torch.optim.AdamW(
            groups(self.model, settings.weight_decay),
            lr=self.rate,
            betas=(0.9, 0.95),
            capturable=on_gpu,
            fused=on_gpu,
        )

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self._loss(self.tokens).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        self.optimizer.step()

    def loss(self, windows: torch.Tensor) -> float | None:
        """Nats a byte; None where it is no number."""
        with torch.no_grad():
            found = float(self._loss(windows))
        return found if math.isfinite(found) else None

    def _loss(self, windows: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            return loss_of(self.model, windows)

    def rehearse(self) -> None:
        """Some steps for what is made once: compiled kernels, the optimizer's state. Nothing of them stays."""
        start = [parameter.detach().clone() for parameter in self.parameters]
        for _ in range(_REHEARSALS):
            self.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for parameter, value in zip(self.parameters, start, strict=True):
                parameter.copy_(value)
            for state in self.optimizer.state.values():
                for value in state.values():
                    value.zero_()


def groups(model: GPT, weight_decay: float) -> list[dict[str, Any]]:
    """No decay for what a stream learns: orders, which `parameter_groups` knows, others' averages and queries."""
    decayed, kept = parameter_groups(model, weight_decay=weight_decay)
    kept.pop("lr")  # one rate for all, that of the schedule
    own = {id(parameter) for parameter in model.stream_parameters()}
    kept["params"] += [parameter for parameter in decayed["params"] if id(parameter) in own]
    decayed["params"] = [parameter for parameter in decayed["params"] if id(parameter) not in own]
    return [group for group in (decayed, kept) if group["params"]]


def ready(job: Job, settings: Settings, device: torch.device) -> tuple[Training, Callable[[], None], str | None]:
    """A rehearsed training, its step, and why the step is not a captured one."""
    training = Training(job, settings, device)
    if device.type != "cuda":
        training.rehearse()
        return training, training.step, "no CUDA device"
    try:
        return training, captured(training), None
    except Exception as error:  # what cannot be captured runs as it is, and its record says why
        why = reason(error)
    del training
    give_back()
    training = Training(job, settings, device)
    training.rehearse()
    return training, training.step, why


def reason(error: BaseException) -> str:
    """What went wrong first: an end of a capture that has failed raises an error of its own."""
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {error}".strip().partition("\n")[0]


def captured(training: Training) -> Callable[[], None]:
    """The whole step, forward to optimizer, as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        training.rehearse()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        training.step()
    return graph.replay


def give_back() -> None:
    """Free what the run before held on the GPU, so that each begins alike."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def run(job: Job, settings: Settings, data: Data) -> Record:
    """Train, and measure loss and seconds on the way; only the steps themselves are timed."""
    give_back()
    on_gpu = data.device.type == "cuda"
    before = torch.cuda.memory_allocated() if on_gpu else 0
    training, step, why = ready(job, settings, data.device)
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20 if on_gpu else None
    starts = data.starts(settings, job.seed)
    rates = settings.learning_rate * ((torch.arange(settings.steps) + 1) / settings.warmup).clamp(max=1).to(data.device)
    marks = settings.marks()
    losses, seconds, each = [training.loss(data.windows)], [0.0], []
    for begin, end in itertools.pairwise(marks):
        begun = _now(data.device)
        for k in range(begin, end):
            training.tokens.copy_(data.training[starts[k].unsqueeze(1) + data.span])
            training.rate.copy_(rates[k])
            step()
        seconds.append(seconds[-1] + _now(data.device) - begun)
        each.append((seconds[-1] - seconds[-2]) / (end - begin))
        losses.append(training.loss(data.windows))
    return {
        **asdict(job),
        "settings": asdict(settings),
        "parameters": sum(parameter.numel() for parameter in training.parameters),
        "stream_parameters": sum(parameter.numel() for parameter in training.model.stream_parameters()),
        "tokens": [settings.tokens_a_step * mark for mark in marks],
        "losses": losses,
        "seconds": seconds,
        "step_seconds": dict(
            zip(("low", "median", "high"), np.quantile(each, (0.25, 0.5, 0.75)).tolist(), strict=True)
        ),
        "peak_mib": peak,
        "captured": why is None,
        "why_not_captured": why,
        "orders": learned_orders(training.model.stream),
    }


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
