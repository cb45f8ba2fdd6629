"""`fracdnn train` for tables larger than memory: examined in one pass, then read again by every epoch."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fracdnn.cli.messages import fail, say
from fracdnn.cli.metrics import Scores, new_scores
from fracdnn.cli.ranks import processes_here
from fracdnn.columns.cells import has_no_text
from fracdnn.estimators import FractionalClassifier
from fracdnn.estimators.streamed import fit_classifier, fit_regressor
from fracdnn.tabular.examination import Division, ExaminedTable, examine
from fracdnn.tabular.memory import bytes_of, free_bytes, needed_bytes, shown_bytes
from fracdnn.tabular.model import TableModel
from fracdnn.tabular.streaming import TableStream
from fracdnn.training import together

if TYPE_CHECKING:
    import polars as pl

# Of the rows held out, a run keeps this many for its report.
MOST_HELD_OUT = 100_000
# Parameters that streamed tables do without: values that ask for nothing else, and what is done whatever is given.
UNUSED = {
    "n_members": (("auto", 1), "trains one network, without bins"),
    "n_bins": (("auto", 0), "trains one network, without bins"),
    "outlier_limit": ((None,), "takes all values of its target as they are"),
}


def is_too_large(source: str, limit: str | float | None) -> bool:
    """Whether a table has to be streamed: it would take more than the limit, by default half of what is free, of which
    each process on this machine has its share.
    """
    if source == "-" or not Path(source).exists():
        return False
    free = free_bytes() // (2 * processes_here())
    needed, most = needed_bytes(source), free if limit is None else bytes_of(limit)
    if needed > most:
        taken = f"would take about {shown_bytes(needed)} in memory, more than {shown_bytes(most)} (--memory-limit)"
        say(f"streaming: {source} {taken}")
    return needed > most


def examined(source: str, settings: Any) -> ExaminedTable:
    with together.joint("looking at the table"):
        if settings.search:
            instead = "got one that is streamed; leave it out, or raise --memory-limit"
            fail(f"--search must go with a table in memory, {instead}")
        stream = TableStream.of(source, encoding=settings.encoding)
    parameters = FractionalClassifier().get_params() | settings.parameters
    seed = settings.parameters.get("random_state", 0)
    drawn = together.from_rank(0, torch.tensor(secrets.randbits(32)), "the seed of what is held out")
    division = Division(
        test=settings.test_fraction,
        validation=float(parameters["validation_fraction"]) if _holds_out(parameters["early_stopping"]) else 0.0,
        seed=int(drawn) if seed is None else int(seed),
    )
    names = {"drop": settings.drop, "keep": settings.keep, "categorical": settings.categorical}
    return examine(stream, settings.target, task=settings.task, division=division, **names)


def _holds_out(early_stopping: bool | str) -> bool:
    """Only where it is asked for: "auto" trains on all rows of a streamed table."""
    return early_stopping != "auto" and bool(early_stopping)


def say_unused(parameters: dict[str, Any]) -> None:
    """Of what is given for several members, bins or outliers, that a streamed table has none."""
    for name, (same, instead) in UNUSED.items():
        if name in parameters and parameters[name] not in same:
            flag = f"--{name.replace('_', '-')} {parameters[name]:g}"
            say(f"{flag} is not used: a streamed table {instead}")


def fit(estimator: Any, table: ExaminedTable) -> None:
    samples = table.samples("training")
    validation = table.samples("validation") if table.n_rows("validation") else None
    if _holds_out(estimator.early_stopping) and validation is None:
        fail("--early-stopping must leave rows to stop by, got none; pass a larger --validation-fraction")
    target, others = table.target, (table.standardization, validation, table.encoding)
    if target.classes is not None:
        fit_classifier(estimator, samples, target.classes, target.counts, *others)
    elif target.scale is not None:
        fit_regressor(estimator, samples, target.scale, *others)


def scores_of(model: TableModel, table: ExaminedTable, *roles: str) -> Scores:
    """Of all rows with these roles; each rank looks at some of the pieces."""
    scores = new_scores(model)
    with together.joint("predicting"):
        for place in range(together.rank(), len(table.stream.pieces), together.count()):
            for role in roles:
                for _, X, y in table.parts(place, role):
                    scores.add(X, y)
    scores.add_up()
    return scores


def held_out(table: ExaminedTable, most: int) -> "tuple[pl.DataFrame, np.ndarray]":
    """The first rows that were held out, at most so many, and their targets."""
    import polars as pl

    # Parts may have columns in another order, and sheets other types where nothing is learned from them.
    names, used = [name for name in table.stream.schema if name != table.target.name], table.encoding.names
    frames, values, n = [], [], 0
    for place in range(len(table.stream.pieces)):
        for frame, _, y in table.parts(place, "test", whole=True) if n < most else ():
            texts = {name for name in names if name not in used and not has_no_text(frame[name].dtype)}
            kept = [frame[name].cast(pl.String) if name in texts else frame[name] for name in names]
            frames.append(pl.DataFrame(kept)[: most - n])
            values.append(y[: most - n])
            n += frames[-1].height
    if not frames:
        return pl.DataFrame({name: [] for name in table.encoding.names}), np.empty(0)
    return pl.concat(frames, how="vertical_relaxed"), np.concatenate(values)
