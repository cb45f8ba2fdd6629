"""Tables in files and folders."""

import gzip
from datetime import date, timedelta

import numpy as np
import polars as pl


def mixed(n=500, seed=0, classes=True):
    """Numbers, whole and with gaps, categories with gaps, truth values, dates, ids, and a target with gaps."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2))
    kinds = np.array(["red", "green", "blue", None], dtype=object)[rng.integers(0, 4, n)]
    score = x[:, 0] - x[:, 1] + (kinds == "red") + 0.1 * rng.standard_normal(n)
    gaps, lost = rng.random(n) < 0.2, rng.random(n) < 0.05
    return pl.DataFrame(
        {
            "a": x[:, 0] * 3 + 100,
            "b": pl.Series([None if gone else value for gone, value in zip(gaps, x[:, 1], strict=True)]),
            "age": rng.integers(18, 90, n),
            "kind": pl.Series(kinds.tolist()),
            "flag": rng.random(n) < 0.3,
            "day": [date(2020, 1, 1) + timedelta(int(k)) for k in rng.integers(0, 900, n)],
            "id": [f"s{k}" for k in range(n)],
            "empty": pl.Series([None] * n, dtype=pl.String),
            "y": pl.Series(
                [
                    None if gone else (("low", "high")[int(value > 0)] if classes else float(value))
                    for gone, value in zip(lost, score, strict=True)
                ]
            ),
        }
    )


def write(table, path):
    name = path.name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(table.write_csv().encode()))
    elif name.endswith(".parquet"):
        table.write_parquet(path, row_group_size=70)
    elif name.endswith(".tsv"):
        table.write_csv(path, separator="\t")
    else:
        table.write_csv(path)
    return path


def write_parts(table, folder, ending, n_parts):
    """The rows in unequal parts, in order of their names."""
    folder.mkdir()
    borders = np.linspace(0, 1, n_parts + 1) ** 1.3 * table.height
    for number, (begin, end) in enumerate(zip(borders[:-1].astype(int), borders[1:].astype(int), strict=True)):
        write(table[begin:end], folder / f"part-{number:03d}.{ending}")
    return folder
