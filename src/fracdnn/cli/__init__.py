"""The command `fracdnn`. Importing it takes the standard library alone, so that it can say which package is missing."""

import os
import sys

from fracdnn.cli.termination import end_if_permanent, end_with_launcher, exit_code, take_as_interrupt
from fracdnn.exceptions import MissingExtraError
from fracdnn.extras import missing, require
from fracdnn.interrupts import interrupt_afterwards
from fracdnn.version import __version__


def main() -> None:
    """Run a command; exit with 0 done, 1 the user can fix it, 2 wrong usage, 130 interrupted, 143 by SIGTERM."""
    # --debug may stand anywhere; `messages.guarded` asks the environment for it.
    if "--debug" in sys.argv:
        sys.argv.remove("--debug")
        os.environ["FRACDNN_DEBUG"] = "1"
    if sys.argv[1:2] == ["--version"]:  # at once: typer takes a quarter of a second
        print(f"fracdnn {__version__}")
        return
    if sys.argv[1:] == ["info", "--system"]:  # without any extra, too
        from fracdnn.cli.system import show_system

        show_system()
        return
    take_as_interrupt()
    end_with_launcher()
    end_if_permanent()
    try:
        require("typer")
        with interrupt_afterwards():
            from fracdnn.cli.app import app
        app(prog_name="fracdnn")
    except KeyboardInterrupt:
        sys.exit(exit_code())
    except SystemExit as done:
        if done.code == 130:  # Typer's for either signal, where it comes before the command
            sys.exit(exit_code())
        raise
    except MissingExtraError as error:
        if error.name is None or os.environ.get("FRACDNN_DEBUG"):
            raise
        # Whichever extra brings it, this one brings all that commands need.
        print(f"fracdnn: {missing(error.name, 'cli')}", file=sys.stderr)
        sys.exit(1)


__all__ = ["main"]
