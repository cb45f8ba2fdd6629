"""How cost grows: over depth to 10⁴ layers (64 x 64, float32), over samples to 10⁶ (paper's network, width 2)."""

from functools import partial

from benchmarks.case import Case, Group, Options
from benchmarks.cases import depth
from benchmarks.cases.paper_size import PaperSize, rivals

DEPTH_REACH = {"naive": 100, "exact": 3000}
SAMPLE_REACH = {"naive": 10_000, "plain": 100_000}


def depth_cases(options: Options) -> list[Case]:
    depths = (10, 40) if options.quick else (10, 30, 100, 300, 1000, 3000, 10_000)
    ways = ["residual", "exact", "compressed", "naive"]
    return [
        depth.case(
            n,
            8 if options.quick else 64,
            8 if options.quick else 64,
            ways=[way for way in ways if n <= DEPTH_REACH.get(way, n)],
            turns=2 if options.quick else 7 if n <= 1000 else 3,
            targets=False,
            memory=False,
        )
        for n in depths
    ]


def sample_cases(options: Options) -> list[Case]:
    counts = (100, 1000) if options.quick else (100, 1000, 10_000, 100_000, 1_000_000)
    ways = ["blocked", "plain", "naive"]
    return [
        Case(
            name=f"{n} samples",
            settings={"samples": n},
            build=partial(PaperSize, 2, n),
            rivals=rivals(*(way for way in ways if n <= SAMPLE_REACH.get(way, n))),
            turns=2 if options.quick else 9 if n <= 10_000 else 3,
            settle=1 if n <= 10_000 else 0,
        )
        for n in counts
    ]


DEPTH = Group(
    "scaling-depth", "a stack of N x (Linear, Tanh) to 10,000 layers, 64 x 64, float32, forward + backward", depth_cases
)
SAMPLES = Group(
    "scaling-samples",
    "value and gradient of the paper's network (35 layers, width 2, float64) to 10^6 samples",
    sample_cases,
)
