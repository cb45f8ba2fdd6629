"""Where commands write: never to what they read. Only what is light is imported, so that errors come at once."""

import os
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any

from fracdnn.cli.messages import fail
from fracdnn.tables.reading import files_of

MODEL, HELD_OUT, LOCK, METRICS = "model.fracdnn", "held-out.csv", "train.lock", "metrics.jsonl"
OUT_ENDINGS = (".csv", ".tsv", ".parquet")


@dataclass
class Places:
    """Where a training writes, the TOML file of its settings, and a checkpoint that is ours to remove."""

    out: Path | None
    run: Path | None
    config: Path | None = None
    own_checkpoint: Path | None = None

    @property
    def models(self) -> list[Path]:
        return [path for path in (self.out, self.run and self.run / MODEL) if path is not None]

    def choose_checkpoint(self, parameters: dict[str, Any]) -> None:
        """Put one beside the model into the estimator's parameters: for a run always, else on request."""
        requested = self.run is not None or "max_time" in parameters or parameters.get("resume")
        if "checkpoint_path" not in parameters and requested:
            self.own_checkpoint = self.models[-1].with_suffix(".ckpt")  # that of the run, where there is one
            parameters["checkpoint_path"] = str(self.own_checkpoint)

    def check(self, source: str, checkpoint: str | None) -> None:
        """Refuse places that are read, are one another, or cannot be written."""
        if self.run is not None and self.run.is_file():
            fail(f"--run must be a folder, got the file {self.run}; pass another path")
        path = None if checkpoint is None else Path(checkpoint)
        outputs = [("--out", self.out), ("--run", self.run and self.run / MODEL), ("--checkpoint-path", path)]
        outputs += [(option, file and place_for(file, True)) for option, file in outputs[:2]]
        outputs += [("--run", self.run and self.run / name) for name in (HELD_OUT, LOCK, METRICS)]
        for option, file in outputs:
            if file is not None:
                check_writable(option, file)
                check_output(option, file, source, self.config)
        if path is not None and path.absolute() in [model.absolute() for model in self.models]:
            fail(f"--checkpoint-path must differ from the model file, got {path} for both; pass another path")


def check_model(path: Path) -> None:
    """That there is a file, and what to do where there is none; what it holds is not looked at."""
    is_folder = path.is_dir()
    if path.exists() and not is_folder:
        return
    model = path / MODEL if is_folder else path
    what = f"{path} must be a model file, got {'a folder' if is_folder else 'none there'}"
    if model.exists():
        fail(f"{what}; pass the model in it, {model}")
    if model.with_suffix(".ckpt").exists():
        fail(f"{what} but the checkpoint of an unfinished training; repeat its fracdnn train with --resume")
    out = f"--run {model.parent}" if model.name == MODEL else "--out model.fracdnn"
    fail(f"{what}; check the path, or train a model: fracdnn train TABLE --target COLUMN {out}")


def check_predictions(out: str, *sources: str | Path) -> None:
    """Refuse what no predictions are written to: another kind of file, or an input."""
    if out != "-" and Path(out).suffix not in OUT_ENDINGS:
        fail(f"--out must end in one of {', '.join(OUT_ENDINGS)}, or be - for standard output, got {out}")
    check_output("--out", out, *sources)


def check_writable(option: str, out: Path) -> None:
    """Refuse a folder, and a path below what is no folder or cannot be written to."""
    above = next(each for each in out.absolute().parents if each.exists())
    if out.is_dir():
        fail(f"{option} must be a file, got the folder {out}; pass a path in it")
    if not (above.is_dir() and os.access(above, os.W_OK)):
        fail(f"{option} must be in a folder that can be written to, got {out}; pass another path")


def check_output(option: str, out: str | Path, *sources: str | Path | None) -> None:
    """Refuse an output that is a source, by another path, a link or in other case, or lies in a folder of parts.

    A source is a file or a folder with the parts of a table; "-" is standard input, and as output standard output.
    """
    written = _status(out, 1)
    for source in (each for each in sources if each is not None):
        is_folder = source != "-" and Path(source).is_dir()
        below = filter(Path.is_file, Path(source).rglob("*"))
        for file in below if is_folder else files_of(str(source)):
            read = _status(file, 0)
            if written and read and S_ISREG(written.st_mode) and os.path.samestat(written, read):
                what = "the file on standard input" if file == "-" else str(file)
                fail(f"{option} must not be an input, got {out}, which is {what}; pass another path")
        if is_folder and out != "-" and _would_be_part(Path(out), Path(source)):
            fail(f"{option} must be outside the table's folder {source}, got {out}; pass another path")


def _status(path: str | Path, number: int) -> os.stat_result | None:
    """Of a file, or of standard input (0) or output (1) where it is one."""
    try:
        return os.fstat(number) if path == "-" else Path(path).stat()
    except OSError:  # it is not there, or closed
        return None


def _would_be_part(out: Path, folder: Path) -> bool:
    """Whether a reader of the folder would meet it: all but names that begin with . or _."""
    path = out.resolve()
    for inner, outer in zip((path, *path.parents), path.parents, strict=False):
        if outer.exists() and outer.samefile(folder):
            return not inner.name.startswith((".", "_"))
    return False


def place_for(path: Path, interrupted: bool) -> Path:
    """Where to write a model: beside one that is there, NAME.interrupted.fracdnn, unless the training was finished."""
    if interrupted and path.is_file():
        return path.with_name(f"{path.stem}.interrupted{path.suffix}")
    return path
