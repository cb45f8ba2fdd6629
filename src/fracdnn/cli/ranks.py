"""The processes that torchrun starts, as one command: `torchrun --nproc-per-node 2 -m -- fracdnn train …`."""

import math
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import typer
from torch import distributed

from fracdnn.cli.messages import fail, mute
from fracdnn.exceptions import RankError

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextmanager
def process_group(timeout: float, source: str) -> Iterator[None]:
    """The ranks of torchrun's environment, without it one process; only the first one talks to people.

    A rank that does not answer for `timeout` seconds is given up.
    """
    if not (math.isfinite(timeout) and timeout > 0):
        raise typer.BadParameter(f"must be a number of seconds above 0, got {timeout}", param_hint="--timeout")
    if not all(name in os.environ for name in _TORCHRUN) or int(os.environ["WORLD_SIZE"]) < 2:
        yield
        return
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    mute(rank > 0)
    if source == "-":
        fail("DATA must be a file if several processes run, because all of them read it, got -; save the table first")
    limit = timedelta(seconds=timeout)
    try:
        store, _, _ = next(iter(distributed.rendezvous("env://", timeout=limit)))  # type: ignore[attr-defined]
        name = _agreed_name(store, rank, count, timeout)
        own = distributed.PrefixStore(name, store)  # type: ignore[attr-defined]
        gpus, backend = torch.cuda.device_count() if torch.cuda.is_available() else 0, "gloo"
        if gpus:  # each process takes one; NCCL adds up where each has one of its own, else gloo
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % gpus)
            os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # so that a rank that hangs is an error here
            if _processes_here() <= gpus and distributed.is_nccl_available():
                backend = "cpu:gloo,cuda:nccl"
        distributed.init_process_group(backend, store=own, rank=rank, world_size=count, timeout=limit)
    except RuntimeError as error:
        words = " ".join(str(error).split())[:120]
        raise RankError(
            f"all {count} processes must start within {timeout:g} s, got fewer ({words}); "
            f"start torchrun on every machine, or pass a longer --timeout"
        ) from error
    try:
        yield
    finally:
        distributed.destroy_process_group()


def _agreed_name(store: Any, rank: int, count: int, timeout: float) -> str:
    """A name for this start of the processes, which torchrun may have started before.

    Its store still holds what earlier starts left there, and gloo would look for processes that are gone. So each rank
    answers to the first one's name with one of its own, and takes it when the first one has seen that.
    """
    mine, ends = secrets.token_hex(8), time.monotonic() + timeout
    if rank == 0:
        store.set("fracdnn/name", mine)
    while time.monotonic() < ends:
        name = store.get("fracdnn/name").decode()
        answers = [f"fracdnn/{name}/{other}" for other in range(1, count)]
        if rank > 0:
            store.set(f"fracdnn/{name}/{rank}", mine)
        elif store.check(answers):
            store.set(f"fracdnn/{name}/seen", " ".join(store.get(answer).decode() for answer in answers))
            return name
        if store.check([f"fracdnn/{name}/seen"]) and mine in store.get(f"fracdnn/{name}/seen").decode().split():
            return name
        time.sleep(0.01)
    raise RuntimeError(f"not all processes answered within {timeout:g} s")


def _processes_here() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
