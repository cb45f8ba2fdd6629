"""What `torch.compile` costs: six small layers with memory beside the same layers in `nn.Sequential`.

    python -m benchmarks.compiling [--layers 6]

Each way compiles in a process of its own, with empty caches. Prints CPU seconds of the first forward and backward pass,
those of the compiler's processes included, and the time of later passes in those without `torch.compile`.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

WAYS = ("nn.Sequential", "FractionalStack", "FractionalStack, learned order")


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def work(way: str, n_layers: int) -> dict[str, float]:
    """In a process: the first pass, then turns of ten passes with and without `torch.compile`."""
    import torch
    from torch import nn

    from fracdnn.nn import FractionalStack

    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(n_layers)]
    learned = way.endswith("learned order")
    module = nn.Sequential(*layers) if way == WAYS[0] else FractionalStack(layers, order=0.5, learn_order=learned)
    x, compiled, before = torch.randn(32, 8), torch.compile(module), cpu_seconds()
    compiled(x).sum().backward()
    found = {"first pass (CPU s)": round(cpu_seconds() - before, 1)}
    module(x).sum().backward()

    def seconds(call: nn.Module) -> float:
        begun = time.perf_counter()
        for _ in range(10):
            call(x).sum().backward()
        return time.perf_counter() - begun

    ratios = [seconds(compiled) / seconds(module) for _ in range(30)]
    return {**found, "later passes, compiled / not": round(statistics.median(ratios), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(work(given.way, given.layers)))
        return
    for way in WAYS:
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "benchmarks.compiling", "--way", way, "--layers", str(given.layers)]
            environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
            told = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout
        print(way, told.decode().strip(), flush=True)


if __name__ == "__main__":
    main()
