"""The measured half of docs/scale.md, made from docs/results/scale.json: `python -m benchmarks.scale [--add FILE …]`.

--add takes in what `benchmarks.distribution --out` and `benchmarks.stream --out` wrote. The model is here, with what it
supposes; its rates are the measured ones.
"""

import argparse
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measures import markdown, number
from fracdnn.files import write_whole
from records import pages

DOCS = Path(__file__).parents[1] / "docs"
ONE, TWO = "1 process, 2 threads", "2 processes, 1 thread"
NOT_MEASURED = "Not measured yet."
PROCESSES = (1, 8, 64, 512)
ROWS, COLUMNS = 100_000_000, 25
Results = dict[str, Any]


@dataclass(frozen=True)
class Network:
    """What is supposed of the machines: seconds of a message, bytes a second each way, and what a machine reads."""

    processes_a_machine: int = 16
    latency: float = 50e-6
    bandwidth: float = 25e9 / 8
    reading: float = 1e9

    def sum_seconds(self, n_bytes: int, processes: int) -> float:
        """A ring: 2 (P - 1) messages, and each rank sends and takes 2 (P - 1) / P of the row."""
        if processes == 1:
            return 0.0
        share = min(processes, self.processes_a_machine)  # who share the machine's line
        sent = 2 * (processes - 1) / processes * n_bytes
        return 2 * (processes - 1) * self.latency + sent * (share if processes > share else 1) / self.bandwidth

    def reading_seconds(self, processes: int) -> float:
        """Of the whole table."""
        machines = -(-processes // self.processes_a_machine)
        return 8 * ROWS * COLUMNS / (machines * self.reading)


@dataclass(frozen=True)
class Rates:
    """Of one process with one thread, from the measured points: seconds of a step without samples, and of a sample."""

    step: float
    sample: float
    sample_full: float
    n_bytes: int

    @classmethod
    def of(cls, found: Results) -> "Rates":
        """Two batch sizes of Adam on two processes give both numbers; their sums are within the step."""
        trainings, rows = found["trainings"], found["rows"]
        small, large, full = (trainings[name]["seconds of an iteration"][TWO] for name in _NAMES)
        small, large = small / (rows / 200), large / (rows / 2000)
        sample = 2 * (large - small) / (2000 - 200)
        return cls(small - 200 * sample / 2, sample, 2 * full / rows, trainings[_NAMES[0]]["bytes of an evaluation"])


_NAMES = ("adam, batches of 200", "adam, batches of 2000", "lbfgs")


def costs(results: Results) -> str:
    found = results.get("distribution")
    if found is None:
        return NOT_MEASURED
    rows = []
    for name, each in found["trainings"].items():
        one, two = (each["seconds of an iteration"][way] for way in (ONE, TWO))
        verdict = "reached" if each["ratio"] <= 1.05 else "MISS"
        cells = [number(one), number(two), f"{each['ratio']:.2f}", f"at most 1.05: {verdict}"]
        rows.append([name, *cells, f"{each['bytes of an evaluation']:,}"])
    headings = ["training", f"{ONE} (s)", f"{TWO} each (s)", "ratio", "asked", "bytes a rank gives an evaluation"]
    return (
        f"{found['rows']:,} rows of 30 numbers, an iteration of L-BFGS or an epoch of Adam, medians of "
        f"{found['turns']} interleaved turns:\n\n{markdown(headings, rows)}"
    )


def streams(results: Results) -> str:
    found = results.get("streams", [])
    if not found:
        return NOT_MEASURED
    rows = []
    for each in found:
        cells = [f"{each['rows']:,}", f"{each['MB_in_files'] / 1e3:.1f}", each["way"], f"{each['rows_per_second']:,}"]
        rows.append([*cells, f"{each['seconds_before_training']:,.0f}", f"{each['peak_MB']:,}"])
    headings = ["rows", "GB in files", "way", "rows/s of an epoch", "s before training", "peak memory (MB)"]
    text = markdown(headings, rows)
    pairs = {(each["rows"], each["way"]): each["rows_per_second"] for each in found}
    for (size, way), rate in pairs.items():
        if way == "streamed" and (size, "memory") in pairs:
            ratio = rate / pairs[size, "memory"]
            verdict = "reached" if ratio >= 0.7 else "MISS"
            text += f"\n\nStreamed / in memory at {size:,} rows: {ratio:.2f} (asked: at least 0.7, {verdict})."
    return text


def model(results: Results) -> str:
    found = results.get("distribution")
    if found is None:
        return NOT_MEASURED
    rates, network = Rates.of(found), Network()
    kinds = {
        "L-BFGS, an evaluation in memory": lambda p: _full(rates, network, p),
        "L-BFGS, an evaluation streamed": lambda p: max(_full(rates, network, p), network.reading_seconds(p)),
        "Adam, an epoch, batches of 2,000": lambda p: _epoch(rates, network, p, 2_000),
        "Adam, an epoch, batches of 64,000": lambda p: _epoch(rates, network, p, 64_000),
    }
    rows = []
    for name, seconds in kinds.items():
        alone = seconds(1)
        cells = [f"{number(seconds(p))} ({alone / seconds(p) / p:.0%})" for p in PROCESSES]
        rows.append([name, *cells, f"{_stops_paying(seconds):,}"])
    headings = ["", *(f"{p} process{'es' if p > 1 else ''}" for p in PROCESSES), "half of each is lost from"]
    told = (
        f"**A model, not a measurement.** {ROWS:,} rows of {COLUMNS} numbers; seconds, and in brackets the share of "
        f"the ideal speed-up. Processes of one thread on Arm Neoverse N1 cores, as measured, "
        f"{network.processes_a_machine} a machine; {8 * network.bandwidth / 1e9:.0f} Gbit/s between machines and "
        f"{1e6 * network.latency:.0f} µs a message; {network.reading / 1e9:.0f} GB/s of reading a machine. From the "
        f"measured points a step takes {1e3 * rates.step:.1f} ms and {1e6 * rates.sample:.1f} µs a sample, an "
        f"evaluation {1e6 * rates.sample_full:.1f} µs a sample."
    )
    return f"{told}\n\n{markdown(headings, rows)}"


def _full(rates: Rates, network: Network, processes: int) -> float:
    return ROWS / processes * rates.sample_full + network.sum_seconds(rates.n_bytes, processes)


def _epoch(rates: Rates, network: Network, processes: int, batch: int) -> float:
    step = rates.step + batch / processes * rates.sample + network.sum_seconds(rates.n_bytes, processes)
    return max(ROWS / batch * step, network.reading_seconds(processes))


def _stops_paying(seconds: Any) -> int:
    """The first power of two at which a process does half of what one alone does."""
    processes = 2
    while seconds(1) / seconds(processes) > processes / 2 and processes < 2**24:
        processes *= 2
    return processes


PARTS = {"costs": costs, "streams": streams, "model": model}


def filled(text: str, results: Results) -> str:
    return pages.filled(text, "scale", lambda name: PARTS[name](results))


def joined(results: Results, added: Results) -> Results:
    """What was added takes the place of what was there; of streams, that of the same rows and way."""
    streams = {(each["rows"], each["way"]): each for part in (results, added) for each in part.get("streams", [])}
    return {**results, **added, "streams": list(streams.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", type=Path, nargs="+", default=[], metavar="FILE")
    path, page = DOCS / "results" / "scale.json", DOCS / "scale.md"
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for added in parser.parse_args().add:
        results = joined(results, json.loads(added.read_text(encoding="utf-8")))
    write_whole(path, lambda temporary: temporary.write_text(json.dumps(results, indent=1) + "\n"))
    print(pages.fill_page(page, partial(filled, results=results)))


if __name__ == "__main__":
    main()
