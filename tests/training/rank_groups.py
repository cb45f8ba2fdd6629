"""Groups of real processes that train together (gloo), forked from one that has imported everything."""

import os
import signal
import sys
import traceback
from datetime import timedelta

import torch
from torch import distributed

from fracdnn.datasets import make_level_set
from fracdnn.nn import FractionalNetwork
from fracdnn.training import Objective, Regularization, Task

SECONDS = 60


def run_group(count, work, folder, timeout=30.0):
    """`work(rank, count)` on so many processes at once; what each gives, as tests load it, and the exit codes."""
    folder.mkdir()
    processes = [_forked(rank, count, work, folder, timeout) for rank in range(count)]
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in processes]


def _forked(rank, count, work, folder, timeout):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.alarm(SECONDS)  # whatever hangs ends
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
        torch.set_num_threads(1)
        store = distributed.FileStore(str(folder / "store"), count)
        distributed.init_process_group(
            "gloo", store=store, rank=rank, world_size=count, timeout=timedelta(seconds=timeout)
        )
        torch.save(work(rank, count), folder / f"rank{rank}.pt")
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def loaded(folder, count):
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(count)]


def borders(n, rank, count, shares=None):
    """Where a rank's rows begin and end; `shares` are the sizes of all shards, equal ones if None."""
    if shares is None:
        return rank * n // count, (rank + 1) * n // count
    return sum(shares[:rank]), sum(shares[: rank + 1])


def level_set_part(
    rank, count, n=200, shares=None, seed=0, loss="cross_entropy", weighted=True, strength=1.0, **options
):
    """A rank's part of one task, whatever the number of ranks."""
    X, y = (torch.from_numpy(part) for part in make_level_set(n, random_state=seed))
    weight = 0.5 + torch.rand(n, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    target = y if loss == "cross_entropy" else torch.stack([X[:, 0] * X[:, 1], X[:, 0]], 1)
    generator = torch.Generator().manual_seed(seed)
    network = FractionalNetwork(2, 2, **{"n_layers": 3, "order": 0.5, "generator": generator, **options}).double()
    begin, end = borders(n, rank, count, shares)
    objective = Objective(
        loss, Regularization(decay_output=1e-2 * strength, smooth=1e-2, decay_bias=1e-3, decay=1e-2 * strength)
    )
    return Task(
        network,
        objective,
        (2 * X - 1)[begin:end],
        target[begin:end],
        weight[begin:end] if weighted else None,
        generator,
    )
