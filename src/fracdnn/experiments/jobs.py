"""Independent runs side by side, one thread each."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from fracdnn.experiments.part import Tick


def in_parallel(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]], tick: Tick) -> list[Any]:
    """The function of each tuple of arguments, in their order, on all cores; `tick` is called as each is done."""
    from joblib import Parallel, delayed

    found = []
    jobs = (delayed(_in_one_thread)(function, *each) for each in arguments)
    for result in Parallel(n_jobs=-1, return_as="generator")(jobs):
        found.append(result)
        tick()
    return found


def _in_one_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return function(*arguments)
    finally:
        torch.set_num_threads(before)
