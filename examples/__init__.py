"""What the library does in networks of other kinds; each folder is run by `python -m examples.NAME`."""
