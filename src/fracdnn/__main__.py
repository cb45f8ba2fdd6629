"""`python -m fracdnn` is the command `fracdnn`."""

from fracdnn.cli import app

app(prog_name="fracdnn")
