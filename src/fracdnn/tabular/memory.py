"""Whether a table fits into memory: what it would take, what there is, and limits as people write them."""

import os
import re
from pathlib import Path

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.extras import require
from fracdnn.tabular.reading import ending_of, files_of, readable

# Bytes that reading, preparing and training take for each byte of a table of float64; about 7 were measured for Parquet
# (benchmarks/stream.py). For text a guess: as large as its numbers in float64, gzipped a quarter of that.
_COPIES = 8
_COMPRESSION = 4
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def needed_bytes(source: str) -> int:
    """About what training on the whole table would take; a pipe or a sheet, which cannot be streamed, counts as 0."""
    require("polars")
    import polars as pl

    total = 0
    for file in files_of(source) if source != "-" else ():
        ending = ending_of(file)
        if ending == ".parquet":
            with readable(file, ending):
                scan = pl.scan_parquet(file, glob=False)
                total += 8 * len(scan.collect_schema()) * scan.select(pl.len()).collect().item()
        elif ending != ".xlsx":
            total += Path(file).stat().st_size * (_COMPRESSION if ending.endswith(".gz") else 1)
    return _COPIES * total


def free_bytes() -> int:
    """What new processes can have without swapping."""
    table = Path("/proc/meminfo")
    found = re.search(r"MemAvailable:\s+(\d+) kB", table.read_text()) if table.exists() else None
    if found:
        return 1024 * int(found[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def bytes_of(text: str | float, name: str = "memory_limit") -> int:
    """A number of bytes, perhaps with a unit: 500MB, 2GB, 1.5G."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", str(text).strip().lower())
    if found is None:
        raise InvalidArgumentError(f"{name} must be a number of bytes such as 500MB or 2GB, got {str(text)!r:.40}")
    return int(float(found[1]) * _UNITS[found[2]])


def shown_bytes(n: float) -> str:
    """As people read it, in powers of ten."""
    for unit in ("bytes", "kB", "MB"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} GB"
