"""Whether the published runs still come out, where their text and their device are at hand."""

from pathlib import Path

import torch

from examples.gpt.streams import RESIDUAL
from examples.gpt.text import Text, python_text
from examples.gpt.training import NAME, Data, Job, Record, Settings, run
from records.checking import Again, holds
from records.keeping import made_with, plain, read_file

RESULTS = Path(__file__).parents[2] / "docs" / "results" / NAME
COMPARED = ("losses", "orders", "parameters", "stream_parameters")


def check_runs(path: Path = RESULTS, text: Text | None = None) -> bool:
    """The first seed of the residual stream and of another, at each depth."""
    text, made, published = text or python_text(), made_with(("numba",)), read_file(path)[1]
    text_now, device_now = plain(text.described()), made["machine"].get("gpu")
    repeatable = [each for each in published if _origin(each) == (text_now, device_now)]
    if not repeatable:
        print(f"gpt: not checked, since the {len(published)} runs are of another text or device")
        return True
    chosen = {(each["depth"], each["arm"] == RESIDUAL): each for each in repeatable[::-1] if "failed" not in each}
    return holds("gpt", (_again(each, text, repeatable) for each in chosen.values()), made)


def _origin(record: Record) -> tuple[Record, str | None]:
    return record["text"], record["made_with"]["machine"].get("gpu")


def _again(before: Record, text: Text, published: list[Record]) -> Again:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    job, settings = Job(before["arm"], before["depth"], before["seed"]), Settings(**before["settings"])
    found = plain(run(job, settings, Data(text, settings, device)))
    alike = [each for each in published if (each["arm"], each["depth"]) == (job.arm, job.depth)]
    return Again(str(job), before, {name: found[name] for name in COMPARED}, alike)
