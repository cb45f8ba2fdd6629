"""The command `fracdnn`."""

from fracdnn.cli.main import app

__all__ = ["app"]
