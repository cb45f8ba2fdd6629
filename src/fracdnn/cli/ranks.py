"""The processes that torchrun starts, as one command: `torchrun --nproc-per-node 2 -m fracdnn train …`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch import distributed

from fracdnn.cli.messages import mute
from fracdnn.exceptions import RankError
from fracdnn.training.together import Ranks, ranks_here

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextmanager
def process_group(timeout: float) -> Iterator[Ranks]:
    """The ranks of torchrun's environment, without it one process; only the first one talks to people.

    A rank that does not answer for `timeout` seconds is given up. Where the first is lost, the next one says so.
    """
    if not all(name in os.environ for name in _TORCHRUN) or int(os.environ["WORLD_SIZE"]) < 2:
        yield ranks_here()
        return
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    mute(rank > 0)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    try:
        distributed.init_process_group("gloo", timeout=timedelta(seconds=timeout))
    except RuntimeError as error:
        words = " ".join(str(error).split())[:120]
        raise RankError(
            f"all {count} processes must start within {timeout:g} s, got fewer ({words}); "
            f"start torchrun on every machine, or pass a longer --timeout"
        ) from error
    try:
        yield ranks_here()
    except RankError as error:
        mute(rank != error.told_by)
        raise
    finally:
        distributed.destroy_process_group()
