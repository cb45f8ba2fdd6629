"""`torchrun --nproc-per-node 1 -m tests.training.nccl_run FILE`: trainings on a GPU by sums of NCCL, and without."""

import sys
from pathlib import Path

import torch
from torch import distributed

from fracdnn.training import AdamTraining, FullBatchTraining, together
from tests.training.rank_groups import level_set_part

TRAININGS = {"bfgs": FullBatchTraining("bfgs", 30, tolerance_grad=0.0), "adam": AdamTraining(0.02, 16, 6)}


def trained(training, *, alone):
    task = level_set_part(0, 1)
    task.network.cuda()
    task.x, task.target, task.weight = task.x.cuda(), task.target.cuda(), task.weight.cuda()
    together.is_alone = lambda: alone
    history = training.fit(task)
    return torch.cat([p.detach().reshape(-1) for p in task.network.parameters()]).cpu(), history.to_dict()["records"]


if __name__ == "__main__":
    distributed.init_process_group("cpu:gloo,cuda:nccl")
    sums = []
    reduce = distributed.all_reduce

    def counted(values, *options):
        sums.append(values.device.type)
        return reduce(values, *options)

    distributed.all_reduce = counted
    found = {}
    for name, training in TRAININGS.items():
        sums.clear()
        ours, records = trained(training, alone=False)
        alone, expected = trained(training, alone=True)
        found[name] = {
            "apart": float((ours - alone).abs().max()),
            "losses": max(abs(a["loss"] - b["loss"]) for a, b in zip(records, expected, strict=True)),
            "sums on the GPU": sums.count("cuda"),
        }
    distributed.destroy_process_group()
    Path(sys.argv[1]).write_text(repr(found))
