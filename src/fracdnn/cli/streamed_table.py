"""`fracdnn train` for tables larger than memory: examined in one pass, then read again by every epoch."""

import os
import re
import secrets
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from fracdnn.cli.messages import fail, say
from fracdnn.cli.metrics import Scores, over_ranks, scores_of
from fracdnn.cli.options import bytes_of
from fracdnn.cli.ranks import processes_here
from fracdnn.columns.cells import has_no_text
from fracdnn.columns.late import pl
from fracdnn.estimators import FractionalClassifier
from fracdnn.estimators.streamed_fit import fit_streamed
from fracdnn.extras import require
from fracdnn.tabular.examination import Division, ExaminedTable, examine
from fracdnn.tabular.model import TableModel
from fracdnn.tabular.reading import ending_of, files_of, readable
from fracdnn.tabular.streaming import TableStream
from fracdnn.training import together

# Of the rows held out, a run keeps this many for its report.
MOST_HELD_OUT = 100_000
# Parameters that streamed tables do without: values that ask for nothing else, and what is done whatever is given.
UNUSED = {
    "n_members": (("auto", 1), "uses one network, without bins"),
    "n_bins": (("auto", 0), "uses one network, without bins"),
    "outlier_limit": ((None,), "keeps all target values"),
}
# Bytes that reading, preparing and training take for each byte of a table of float64; about 7 were measured for Parquet
# (benchmarks/stream.py). For text a guess: as large as its numbers in float64, gzipped a quarter of that.
_COPIES = 8
_COMPRESSION = 4


def is_too_large(source: str, limit: str | float | None) -> bool:
    """Whether a table has to be streamed: it would take more than the limit, by default half of what is free, of which
    each process on this machine has its share.
    """
    if source == "-" or not all(Path(file).exists() for file in files_of(source)):
        return False
    table = Path("/proc/meminfo")  # what new processes can have without swapping
    found = re.search(r"MemAvailable:\s+(\d+) kB", table.read_text()) if table.exists() else None
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = (1024 * int(found[1]) if found else pages // 2) // (2 * processes_here())
    require("polars")
    content = 0  # in bytes; a sheet, which cannot be streamed, counts as 0
    for file in files_of(source):
        ending = ending_of(file)
        if ending == ".parquet":
            with readable(file, ending):
                scan = pl.scan_parquet(file, glob=False)
                content += 8 * len(scan.collect_schema()) * scan.select(pl.len()).collect().item()
        elif ending != ".xlsx":
            content += Path(file).stat().st_size * (_COMPRESSION if ending.endswith(".gz") else 1)
    needed, most = _COPIES * content, free if limit is None else bytes_of(limit)
    if needed > most:
        taken = f"would take about {shown_bytes(needed)} in memory, more than {shown_bytes(most)} (--memory-limit)"
        say(f"streaming: {source} {taken}")
    return needed > most


def shown_bytes(n: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} GB"


class StreamedTable(ExaminedTable):
    """A table on disk, which a training and its scores read again."""

    def fit(self, estimator: Any) -> None:
        samples, target = self.samples("training"), self.target
        validation = self.samples("validation") if self.n_rows("validation") else None
        if _holds_out(estimator.early_stopping) and validation is None:
            fail("--early-stopping needs validation rows, got none; pass a larger --validation-fraction")
        given: dict[str, Any] = {"classes": target.classes, "counts": target.counts, "target_scale": target.scale}
        fit_streamed(estimator, samples, self.standardization, self.encoding, validation=validation, **given)

    def scores(self, model: TableModel, role: str) -> Scores | None:
        """Of all rows to test, or to learn from or stop early by; each rank looks at some of the pieces."""
        if not self.n_rows(role):
            return None
        roles, here = ("training", "validation"), range(together.rank(), len(self.stream.pieces), together.count())
        with together.joint("predicting"):
            parts = (self.parts(place, each) for place in here for each in (roles if role == "training" else (role,)))
            scores = scores_of(model, (part[1:] for part in chain.from_iterable(parts)))
        return over_ranks(scores)

    @property
    @together.joint("reading the rows held out")
    def held_out(self) -> "pl.DataFrame":
        """The first rows that were held out, at most `MOST_HELD_OUT`, as they are in the table; on the first rank."""
        # Parts may have columns in another order, and sheets other types where nothing is learned from them.
        names, used = list(self.stream.schema), self.encoding.names
        frames, n, most = [], 0, MOST_HELD_OUT if together.is_first() else 0
        for place in range(len(self.stream.pieces)):
            for frame, _, _ in self.parts(place, "test", whole=True) if n < most else ():
                texts = {name for name in names if name not in used and not has_no_text(frame[name].dtype)}
                kept = [frame[name].cast(pl.String) if name in texts else frame[name] for name in names]
                frames.append(pl.DataFrame(kept)[: most - n])
                n += frames[-1].height
        return pl.concat(frames, how="vertical_relaxed") if frames else pl.DataFrame(schema=self.stream.schema)


def examined(source: str, settings: Any) -> StreamedTable:
    with together.joint("looking at the table"):
        if settings.search:
            fail("--search needs the table in memory, but it is streamed; leave it out, or raise --memory-limit")
        stream = TableStream.of(source, encoding=settings.encoding, sheet=settings.sheet)
    parameters = FractionalClassifier().get_params() | settings.parameters
    seed = settings.parameters.get("random_state", 0)
    drawn = together.from_rank(0, torch.tensor(secrets.randbits(32)), "the seed of what is held out")
    division = Division(
        test=settings.test_fraction,
        validation=float(parameters["validation_fraction"]) if _holds_out(parameters["early_stopping"]) else 0.0,
        seed=int(drawn) if seed is None else int(seed),
    )
    names = {"drop": settings.drop, "keep": settings.keep, "categorical": settings.categorical}
    given = {"task": settings.task, "division": division, "decimal": settings.decimal}
    return StreamedTable(**vars(examine(stream, settings.target, **given, **names)))


def _holds_out(early_stopping: bool | str) -> bool:
    """Only on request: "auto" trains on all rows of a streamed table."""
    return early_stopping != "auto" and bool(early_stopping)


def say_unused(parameters: dict[str, Any]) -> None:
    """Of what is given for several members, bins or outliers, that a streamed table has none."""
    for name, (same, instead) in UNUSED.items():
        if name in parameters and parameters[name] not in same:
            flag = f"--{name.replace('_', '-')} {parameters[name]:g}"
            say(f"{flag} is not used: training on a streamed table {instead}")
