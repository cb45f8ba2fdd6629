"""What the first value and gradient in a process take: with nothing compiled yet, with all compiled, and again.

Each time a fresh process; imports are not counted. "again" is the second value and gradient in the same process.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial

from benchmarks.case import Case, Group, Options, Rival

TOLERANCE = 1e-10
PROGRAM = """
import json, time
from benchmarks.cases.paper_size import PaperSize

problem, seconds = PaperSize(2, 280), []
for _ in range(2):
    begun = time.perf_counter()
    problem.value_and_gradient(problem.network)
    seconds.append(time.perf_counter() - begun)
print(json.dumps({"seconds": seconds, "error": problem.error(problem.network)}))
"""


class FirstUse:
    """A cache folder of its own for compiled code, filled by the first process, whose numbers are checked."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.first = self.process(empty=True)

    def process(self, *, empty: bool) -> dict:
        if empty:
            shutil.rmtree(self.folder, ignore_errors=True)
        environment = {**os.environ, "NUMBA_CACHE_DIR": self.folder}
        command = [sys.executable, "-c", PROGRAM]
        run = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        return json.loads(run.stdout)

    def seconds(self, *, empty: bool, call: int) -> float:
        told = self.process(empty=empty)
        if not told["error"] <= TOLERANCE:
            raise RuntimeError(f"a fresh process has error {told['error']:.1e}; its time does not count")
        return told["seconds"][call]

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def rival(self, *, empty: bool, call: int) -> Rival:
        run = partial(self.seconds, empty=empty, call=call)
        return Rival(run, lambda: self.first["error"], TOLERANCE, tells_seconds=True)


def cases(options: Options) -> list[Case]:
    return [
        Case(
            name="width 2, 280 samples",
            settings={"width": 2, "samples": 280},
            build=FirstUse,
            rivals={
                "empty cache": partial(FirstUse.rival, empty=True, call=0),
                "full cache": partial(FirstUse.rival, empty=False, call=0),
                "again": partial(FirstUse.rival, empty=False, call=1),
            },
            turns=1 if options.quick else 3,
            warm_turns=0,
        )
    ]


GROUP = Group(
    "first-use", "the first value and gradient in a process: compiling the kernel, or finding it compiled", cases
)
