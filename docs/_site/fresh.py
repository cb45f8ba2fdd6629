"""The gallery's scripts run in one process: each finds torch as a process of its own would."""

from typing import Any

import torch


def torch_defaults(_gallery: dict[str, Any], _script: str) -> None:
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
