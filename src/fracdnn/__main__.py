"""`python -m fracdnn` is the command `fracdnn`."""

from fracdnn.cli import main

main()
