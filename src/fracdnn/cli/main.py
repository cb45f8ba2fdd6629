"""The commands. Each imports what it needs when it runs."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="fracdnn",
    help="Deep networks with memory: layers as time steps of a fractional differential equation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from fracdnn import __version__

        typer.echo(f"fracdnn {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("fracdnn-demo"),
) -> None:
    """Train the paper's network on its level-set data, with a progress bar, a picture and the paper's number.

    Example: fracdnn demo --out pictures
    """
    from fracdnn.cli.demo import show_demo

    show_demo(out)


@app.command()
def reproduce(
    parts: Annotated[list[str], typer.Argument(help="Which results: all, or names as `fracdnn reproduce list` shows.")],
    out: Annotated[Path, typer.Option(help="Folder for numbers (JSON) and figures (PNG, SVG).")] = Path("results"),
    quick: Annotated[bool, typer.Option("--quick", help="Smaller settings than the paper's, in a minute.")] = False,
    perfume: Annotated[Path | None, typer.Option(help="The perfume table; else the cache, or a download.")] = None,
) -> None:
    """Run numerical results of the paper, and compare.

    Example: fracdnn reproduce all --out results
    """
    from fracdnn.cli.reproduce import reproduce_parts

    reproduce_parts(parts, out, quick=quick, perfume_path=perfume)
