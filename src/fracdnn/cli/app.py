"""The commands. Each imports what it needs when it runs."""

import inspect
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fracdnn.cli.loading import loaded
from fracdnn.cli.messages import guarded
from fracdnn.version import __version__

UTF_8 = "utf-8"

app = typer.Typer(
    name="fracdnn",
    help="Deep networks with memory: layers as time steps of a fractional differential equation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Model = Annotated[Path, typer.Argument(help="A model file that `fracdnn train` wrote.")]
Data = Annotated[
    str, typer.Argument(help="A table: .csv, .tsv, .csv.gz, .parquet, .xlsx, or a folder of parts; - is CSV.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No remarks and no progress on standard error.")]
Json = Annotated[bool, typer.Option("--json", help="The result as one JSON document on standard output.")]
NewCategories = Annotated[str, typer.Option(help="What to do with categories unknown from training: error or ignore.")]

Run = Annotated[Path | None, typer.Option(help="A folder for model and held-out rows, for `fracdnn report`.")]
Task = Annotated[str | None, typer.Option(help="auto, classification or regression; auto looks at the target.")]
TestFraction = Annotated[float | None, typer.Option(help="Rows held out to test the model; 0.2 by default.")]
MemoryLimit = Annotated[
    str | None, typer.Option(help="Stream a table that would take more, such as 2GB; half of what is free by default.")
]
Encoding = Annotated[
    str | None,
    typer.Option(help="How a .csv or .tsv file is encoded, such as latin-1, cp1252 or utf-16; utf-8 by default."),
]
Timeout = Annotated[
    float | None, typer.Option(help="Under torchrun: seconds to wait for another process; 1800 by default.")
]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    if version:
        typer.echo(f"fracdnn {__version__}")
        raise typer.Exit


def _train(
    data: Data,
    out: Annotated[Path | None, typer.Option(help="The model file to write.")] = None,
    run: Run = None,
    target: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    task: Task = None,
    test_fraction: TestFraction = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A column to use, though it looks like row numbers or an id; repeatable.")
    ] = None,
    categorical: Annotated[list[str] | None, typer.Option(help="A column of categories, though numbers.")] = None,
    search: Annotated[bool | None, typer.Option("--search", help="Try settings by cross-validation.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes for --search; -1 for all cores.")] = None,
    memory_limit: MemoryLimit = None,
    start_over: Annotated[
        bool | None, typer.Option("--start-over", help="Discard the checkpoint of an earlier training; see --resume.")
    ] = None,
    encoding: Encoding = None,
    timeout: Timeout = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with any of these options.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **parameters: Any,
) -> None:
    """Learn from a table: classification or regression, as the target column asks for.

    Columns of numbers and categories are told apart, missing values filled in; part of the rows is held out to test.
    Ctrl-C writes the best model so far, as NAME.interrupted.fracdnn where NAME.fracdnn is there already, which is kept.

    Examples:
    fracdnn train measurements.csv --target label --out model.fracdnn

    fracdnn train houses.parquet --target price --drop id --run houses --learn-order

    fracdnn train measurements.csv --config settings.toml --search --jobs 2 --out model.fracdnn

    torchrun --nproc-per-node 2 -m -- fracdnn train measurements.csv --target label --out model.fracdnn
    """
    options = loaded("options")
    own: dict[str, Any] = {"target": target, "task": task, "test_fraction": test_fraction}
    own |= {"drop": drop or None, "keep": keep or None, "categorical": categorical or None, "search": search}
    own |= {"jobs": jobs, "memory_limit": memory_limit, "start_over": start_over, "encoding": encoding}
    own["timeout"] = timeout
    settings = options.read_config(config, [*own, *parameters]) if config is not None else {}
    settings |= options.chosen({**own, **parameters})
    if out is None and run is None:
        raise typer.BadParameter("pass --out MODEL or --run FOLDER: where to write the model", param_hint="--out")
    if "target" not in settings:
        raise typer.BadParameter("pass --target COLUMN: the column to predict", param_hint="--target")
    beside = {name: settings[name] for name in own if name in settings}
    network = {name: settings[name] for name in parameters if name in settings}
    command = loaded("train", trains=True)
    places = loaded("runs").Places(out, run, config)
    given = loaded("settings").Settings(**beside, parameters=network)
    command.train(data, given, places, quiet=quiet, as_json=as_json)


def _with_options(generated: Iterable[inspect.Parameter]) -> Any:
    """`train` as Typer takes it, with these options in place of **parameters."""
    signature = inspect.signature(_train)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    both = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in [*own, *generated]]

    @guarded
    def train(**given: Any) -> None:
        _train(**given)

    train.__doc__ = _train.__doc__
    train.__signature__ = signature.replace(parameters=both)  # type: ignore[attr-defined]
    train.__annotations__ = {p.name: p.annotation for p in both}
    return train


@lru_cache(maxsize=1)
def _whole_train() -> Any:
    """`train` with an option for each parameter of the estimators, which take seconds to import."""
    whole = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    whole.command("train")(_with_options(loaded("options").estimator_parameters().values()))
    return typer.main.get_command(whole)


class _ListedTrain(TyperCommand):
    """`train` for the list of commands; to run it, show its help or complete its options takes the whole one."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if extra.get("resilient_parsing"):  # completion, perhaps of a file's name
            return super().make_context(info_name, args, parent, **extra)
        return _whole_train().make_context(info_name, args, parent, **extra)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        if incomplete.startswith("-"):
            return _whole_train().shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


app.command("train", cls=_ListedTrain)(_with_options([]))


@app.command()
@guarded
def predict(
    model: Model,
    data: Data,
    out: Annotated[str, typer.Option(help="Where to: .csv, .tsv or .parquet; - is standard output.")] = "-",
    keep: Annotated[
        list[str] | None, typer.Option("--id", help="A column to keep, such as an id; may be repeated.")
    ] = None,
    new_categories: NewCategories = "error",
    encoding: Encoding = None,
    timeout: Timeout = None,
    quiet: Quiet = False,
) -> None:
    """Predict for each row of a table: the class with the probability of every class, or the value.

    Large tables are read and written in parts, so that memory stays small.

    Examples:
    fracdnn predict model.fracdnn new.csv --out predictions.csv --id sample

    zcat new.csv.gz | fracdnn predict model.fracdnn - > predictions.csv
    """
    _check_new_categories(new_categories)
    given = {"new_categories": new_categories, "encoding": encoding or UTF_8, "timeout": timeout, "quiet": quiet}
    loaded("predict").predict(model, data, out, keep=keep or [], **given)


@app.command()
@guarded
def evaluate(
    model: Model,
    data: Data,
    new_categories: NewCategories = "error",
    encoding: Encoding = None,
    timeout: Timeout = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare predictions with the target column of a table: accuracy, log-loss, calibration, classes; R² and errors.

    Example: fracdnn evaluate model.fracdnn test.csv --json
    """
    _check_new_categories(new_categories)
    given = {"new_categories": new_categories, "encoding": encoding or UTF_8, "timeout": timeout, "quiet": quiet}
    loaded("predict").evaluate(model, data, as_json=as_json, **given)


@app.command()
@guarded
def info(model: Model, as_json: Json = False) -> None:
    """Show what a model file holds: network, order, the columns it expects, how it was trained, versions.

    Example: fracdnn info model.fracdnn
    """
    loaded("predict").info(model, as_json=as_json)


@app.command()
@guarded
def report(
    run: Annotated[Path, typer.Argument(help="A folder that `train --run` wrote, or a model file with --data.")],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    data: Annotated[str | None, typer.Option(help="Rows to show, with their target; else those held out.")] = None,
    encoding: Encoding = None,
    quiet: Quiet = False,
) -> None:
    """Write one HTML page that opens offline: scores, calibration, importances, curves, memory, regions, flow.

    Examples:
    fracdnn report run --out report.html

    fracdnn report model.fracdnn --data test.csv --out report.html
    """
    loaded("predict").report(run, out, data=data, encoding=encoding or UTF_8, quiet=quiet)


def _check_new_categories(value: str) -> None:
    if value not in ("error", "ignore"):
        raise typer.BadParameter(f"must be error or ignore, got {value!r}", param_hint="--new-categories")


@app.command()
@guarded
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("fracdnn-demo"),
) -> None:
    """Train the paper's network on its level-set data, with a progress bar, a picture and the paper's number.

    Example: fracdnn demo --out pictures
    """
    loaded("demo", trains=True).show_demo(out)


@app.command()
@guarded
def play(
    table: Annotated[
        str | None, typer.Argument(help="Your own points: two columns of numbers and one of classes, 2 to 5 of them.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Where to serve; 0 is any free one. 8642 by default, if free.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
    encoding: Encoding = None,
) -> None:
    """Train small networks with memory in the browser, and see what they learn, remember and pass back.

    The page is served to this machine alone, until Ctrl-C.

    Examples:
    fracdnn play

    fracdnn play measurements.csv --port 8000 --no-browser
    """
    loaded("play").serve_playground(table, port=port, browser=browser, encoding=encoding or UTF_8)


@app.command()
@guarded
def warmup() -> None:
    """Compile the kernel for small networks now, once for this machine, so that no first training waits for it.

    Example: fracdnn warmup
    """
    loaded("warmup").show_warmup()
