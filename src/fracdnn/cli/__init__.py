"""The command `fracdnn`."""

from fracdnn.cli.main import main

__all__ = ["main"]
