"""The commands. Each imports what it needs when it runs."""

import inspect
import os
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fracdnn.cli import options
from fracdnn.cli.messages import fail, guarded, mute
from fracdnn.cli.places import MODEL, Places, check_model, check_predictions, check_writable
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.interrupts import interrupt_afterwards
from fracdnn.tables.reading import check_sheet, check_there, files_of, read_parts
from fracdnn.tables.words import check_columns, check_target_name

app = typer.Typer(
    name="fracdnn",
    help="Deep networks with memory: layers as time steps of a fractional differential equation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes leave no room for the names of options in 80 columns, and take time
)
# Options of `train` that its short help shows.
_USUAL = ["target", "out", "run", "task", "drop", "categorical", "test_fraction", "quiet", "as_json"]

Model = Annotated[Path, typer.Argument(help="A model file that `fracdnn train` wrote.")]
Data = Annotated[
    str, typer.Argument(help="A table: .csv, .tsv, .csv.gz, .parquet, .xlsx, or a folder of parts; - is CSV.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No messages and no progress on standard error.")]
Json = Annotated[bool, typer.Option("--json", help="The result as one JSON document on standard output.")]


def loaded(name: str, *, trains: bool = False) -> Any:
    """The module `fracdnn.cli.<name>`, imported when a command runs, with Ctrl-C deferred: an import would lose it.

    `trains` also imports torch._dynamo. torch's first optimizer would import it, in the midst of a training, where
    Ctrl-C means something else: to stop early and keep the model.
    """
    with interrupt_afterwards():
        if trains:
            import_module("torch._dynamo")
        return import_module(f"fracdnn.cli.{name}")


def _check_inputs(model: Path, data: str | None, encoding: str) -> None:
    """Refuse what is no model or table before anything is imported that takes time."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        mute(os.environ.get("RANK") != "0")
        fail("this command must run in one process, got several; start it without torchrun, for each part of the table")
    check_model(model)
    if data is not None:
        check_there(data)
    options.check_encoding(encoding)
    loaded("model_info").read_model(model)


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None: ...  # `main` does both


def _train(
    data: Data,
    out: Annotated[Path | None, typer.Option(help="The model file to write.")] = None,
    run: Annotated[
        Path | None, typer.Option(help="A folder for the model and the held-out rows, as `fracdnn report` reads it.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with any of these options.",
            callback=options.read_config,
            is_eager=True,
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    help_all: Annotated[
        bool, typer.Option("--help-all", help="Show all options, including those of network and training, and exit.")
    ] = False,
    **given: Any,
) -> None:
    """Learn from a table: classification or regression, depending on the target column.

    The command detects numbers, categories and dates, fills in missing values, and holds out part of the rows to test.
    Ctrl-C writes the best model so far; if NAME.fracdnn exists, it is kept, and NAME.interrupted.fracdnn is written.

    \b
    Examples:
      fracdnn train measurements.csv --target label --out model.fracdnn
      fracdnn train houses.parquet --target price --drop id --run houses --learn-order
      fracdnn train measurements.csv --config settings.toml --out model.fracdnn
      torchrun --nproc-per-node 2 -m -- fracdnn train measurements.csv --target label --out model.fracdnn
    """  # noqa: D301
    check_there(data)
    if out is None and run is None:
        raise typer.BadParameter("pass --out MODEL or --run FOLDER: where to write the model", param_hint="--out")
    settings, places = options.settings_of(given), Places(out, run, config)
    places.choose_checkpoint(settings.parameters)
    if "WORLD_SIZE" not in os.environ:  # else the processes of torchrun find out together
        places.check(data, settings.parameters.get("checkpoint_path"))
        # That the table has the columns; a pipe and an Excel sheet are read only once.
        if data.lower().endswith(".xlsx"):
            check_sheet(data, settings.sheet)
        elif all(Path(file).is_file() for file in files_of(data)):
            part = next(read_parts(data, encoding=settings.encoding, sheet=settings.sheet))
            check_columns((*settings.drop, *settings.keep, *settings.categorical), part.columns)
            check_target_name(settings.target, [name for name in part.columns if name not in settings.drop])
    loaded("train", trains=True).train(data, settings, places, as_json=as_json)


def _with_options() -> Any:
    """`train` as Typer takes it, with options in place of **given, those of its short help first."""
    signature = inspect.signature(_train)
    data, *own, _ = (each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values())
    others = {each.name: each for each in (*own, *options.train_options())}
    every = [data, *(others.pop(name) for name in _USUAL), *others.values()]
    train = guarded(_train)
    train.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    train.__annotations__ = {each.name: each.annotation for each in every}
    return train


class _Train(TyperCommand):
    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        is_short = "--help" in args
        for option in self.params[1:]:
            shown = option.name in (*_USUAL, "help_all") if is_short else option.name != "help_all"
            option.hidden = not shown  # type: ignore[attr-defined]
        return super().make_context(info_name, ["--help"] if "--help-all" in args else args, parent, **extra)


app.command("train", cls=_Train)(_with_options())


@app.command()
@guarded
def predict(
    model: Model,
    data: Data,
    out: Annotated[str, typer.Option(help="The file to write: .csv, .tsv or .parquet; - is standard output.")] = "-",
    keep: Annotated[
        list[str] | None, typer.Option("--id", help="A column to keep, such as an id; may be repeated.")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            help="Add intervals that contain this share of new values, or the set of plausible classes; such as 0.9."
        ),
    ] = None,
    encoding: options.Encoding = options.ENCODING,
    sheet: options.Sheet = None,
    quiet: Quiet = False,
) -> None:
    """Predict for each row of a table: the class with the probability of every class, or the value.

    Large tables are read and written in parts, so that memory stays small.

    \b
    Examples:
      fracdnn predict model.fracdnn new.csv --out predictions.csv --id sample --interval 0.9
      zcat new.csv.gz | fracdnn predict model.fracdnn - > predictions.csv
    """  # noqa: D301
    _check_inputs(model, data, encoding)
    check_predictions(out, model, data)
    if interval is not None and not 0 < interval < 1:
        raise InvalidArgumentError(f"interval must hold numbers between 0 and 1, got {interval:g}; such as 0.9")
    loaded("predict").predict(model, (data, encoding, sheet), out, keep or [], interval)


@app.command()
@guarded
def evaluate(
    model: Model,
    data: Data,
    encoding: options.Encoding = options.ENCODING,
    sheet: options.Sheet = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare predictions with the target column of a table: accuracy, log-loss, calibration, classes; R² and errors.

    Example: fracdnn evaluate model.fracdnn test.csv --json
    """
    _check_inputs(model, data, encoding)
    loaded("predict").evaluate(model, (data, encoding, sheet), as_json=as_json)


@app.command()
@guarded
def info(
    model: Annotated[Path | None, typer.Argument(help="A model file that `fracdnn train` wrote.")] = None,
    system: Annotated[
        bool, typer.Option("--system", help="Show versions, devices, kernels and settings, for a bug report.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what a model file holds: network, order, the columns it expects, how it was trained, versions.

    Examples:
    fracdnn info model.fracdnn

    fracdnn info --system
    """
    if system == (model is not None):
        raise typer.BadParameter("pass either a model file or --system", param_hint="MODEL")
    if model is None:
        loaded("system").show_system(as_json=as_json)
    else:
        check_model(model)
        loaded("model_info").info(model, as_json=as_json)


@app.command()
@guarded
def report(
    run: Annotated[Path, typer.Argument(help="A folder that `train --run` wrote, or a model file with --data.")],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    data: Annotated[
        str | None, typer.Option(help="A table with the target to report on. Default: the held-out rows.")
    ] = None,
    encoding: options.Encoding = options.ENCODING,
    sheet: options.Sheet = None,
    quiet: Quiet = False,
) -> None:
    """Write one HTML page that opens offline: scores, calibration, importances, dependence, training.

    \b
    Examples:
      fracdnn report run --out report.html
      fracdnn report model.fracdnn --data test.csv --out report.html
    """  # noqa: D301
    import_module("fracdnn.report")  # which takes no time, and says what is missing
    _check_inputs(run / MODEL if run.is_dir() else run, data, encoding)
    check_writable("--out", out)
    loaded("predict").report(run, out, data=data, encoding=encoding, sheet=sheet)


@app.command()
@guarded
def fit(
    data: Data,
    circuit: Annotated[str | None, typer.Option(help="Such as 'R0-p(R1,CPE1)': frequency in Hz, Re Z, Im Z.")] = None,
    body: Annotated[str | None, typer.Option(help="Such as 'p(E0,E1-S1)': rad/s, G', G''; or time, G(t).")] = None,
    model: Annotated[str | None, typer.Option(help="relaxation or dose: time, value.")] = None,
    sigma: Annotated[
        str | None,
        typer.Option(help="Standard deviation: a number, a column's name, or modulus (the default for spectra)."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The HTML file to write.")] = None,
    save: Annotated[Path | None, typer.Option(help="A JSON file with all numbers.")] = None,
    starts: Annotated[int, typer.Option(min=1, help="Number of starting points; the best fit is kept.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random starts.")] = 0,
    encoding: options.Encoding = options.ENCODING,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a circuit, a viscoelastic body or a model to measurements: parameters with 95 % intervals, and a verdict.

    The first column of the table holds times or frequencies, the next ones values; a heading is optional.

    \b
    Examples:
      fracdnn fit spectrum.csv --circuit "R0-p(R1,CPE1)" --out report.html
      fracdnn fit data.csv --model relaxation
    """  # noqa: D301
    check_there(data)
    given, fixed = {"circuit": circuit, "body": body, "model": model}, {"n_starts": starts, "random_state": seed}
    loaded("fit_command", trains=True).run_fit(data, given, sigma, encoding, out, save, as_json=as_json, **fixed)


@app.command()
@guarded
def demo(out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("fracdnn-demo")) -> None:
    """Train the paper's network on its level-set data, with a progress bar, a picture and the paper's number.

    Example: fracdnn demo --out pictures
    """
    loaded("demo", trains=True).show_demo(out)
