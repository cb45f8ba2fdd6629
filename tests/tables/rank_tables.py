"""`python -m tests.tables.rank_tables FOLDER WHAT`: real processes that examine a table together.

FOLDER holds the tables. Polars is first used by the processes, since its threads do not come along in a fork.
"""

import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from fracdnn.tables import examination, reading
from fracdnn.tables.examination import Division, examine
from fracdnn.tables.streaming import TableStream
from fracdnn.training import together
from tests.training.rank_groups import run_group
from tests.training.rank_runs import failure

COUNTS = (1, 2, 3, 5)
# A gzipped file is one piece: there are two, for up to five processes.
TABLES = [("csv", "y"), ("csv", "value"), ("parquet", "value"), ("parquet", "color"), ("csv.gz", "y")]
DIVISION = Division(test=0.2, validation=0.1, seed=4)


def stream_of(source, **options):
    reading.PART_BYTES = 150_000
    return TableStream.of(str(source), **{"piece_rows": 1500, **options})


def said(found):
    """All that was found, to the last bit."""
    target, scaling = found.target, found.standardization
    return {
        "columns": [asdict(column) for column in found.encoding.columns],
        "notes": found.summary.notes(found.every),
        "left_out": found.every.left_out,
        "scaling": (scaling.mean.tolist(), scaling.deviation.tolist()),
        "target": repr((target.digest(), target.least, target.most)),
        "sizes": found.sizes.tolist(),
        "n_without_target": found.n_without_target,
        "digest": found.digest,
    }


def examined(source, target="y", **options):
    return said(examine(stream_of(source), target, division=DIVISION, **options))


def equal(folder):
    """What each process finds in tables of all kinds, and how many pieces it has read."""

    def work(rank, count):
        read, read_piece = [], examination.read_piece

        def noted(piece, **options):
            read.append(piece.number)
            return read_piece(piece, **options)

        examination.read_piece = noted
        found = {}
        for source, target in TABLES:
            found[source, target] = examined(folder / source, target)
        found["bad"] = failure(lambda: examined(folder / "bad"))
        return found, len(read)

    return [run_group(count, work, folder / str(count)) for count in COUNTS]


def faults(folder):
    """How all processes end where one is in trouble."""

    def work(rank, count):
        found, read_piece = {}, examination.read_piece
        stream = stream_of(folder / "parquet")
        last = stream.pieces[-1].file

        def stopped(piece, **options):
            if piece.file is last:
                os.kill(os.getpid(), signal.SIGINT)
            return read_piece(piece, **options)

        def fails(name, stream=stream, target="y"):
            found[name] = failure(lambda: examine(stream, target))

        examination.read_piece = stopped
        fails("interrupted")
        examination.read_piece = read_piece
        fails("other table", stream if rank else stream_of(folder / "parquet", piece_rows=70))
        fails("other settings", target="value" if rank == 1 else "y")
        together.settle("the other cases")
        if rank == 0:
            path = Path(last.path)
            state = path.stat()
            path.write_bytes(b"no parquet" * (state.st_size // 10) + b"x" * (state.st_size % 10))
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        together.settle("the end of the part")
        fails("unreadable")
        fails("no such column", target="z")
        return found

    return [run_group(3, work, folder / "faults")]


RUNS = {"equal": equal, "faults": faults}

if __name__ == "__main__":
    codes = RUNS[sys.argv[2]](Path(sys.argv[1]))
    assert not any(code for group in codes for code in group), codes
