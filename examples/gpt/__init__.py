"""Depth memory in a small transformer, against other ways to pass states on: `python -m examples.gpt --help`."""
