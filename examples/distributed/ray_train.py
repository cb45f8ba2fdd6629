"""The training of `ddp.py`, unchanged, in Ray's workers: `python examples/distributed/ray_train.py`.

Ray starts the processes, on one machine or many, joins them to a process group and starts them again after a failure.
For GPUs: `ScalingConfig(num_workers=2, use_gpu=True)`, and model and data on `ray.train.torch.get_device()`.
"""

from typing import Any

import ray
from ray import train
from ray.train.torch import TorchTrainer
from torch import distributed

from examples.distributed.ddp import trained


def loop(config: dict[str, Any]) -> list[float]:
    """What each worker does; the process group is there already."""
    return trained(distributed.get_rank(), distributed.get_world_size())


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    result = TorchTrainer(loop, scaling_config=train.ScalingConfig(num_workers=2)).fit()
    for step, loss in enumerate(result.return_value):
        print(f"step {step}: loss {loss:.6f}")
    ray.shutdown()


if __name__ == "__main__":
    main()
