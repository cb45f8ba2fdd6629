"""Every figure and table of the paper, each a small configuration and the code that runs it.

`python -m reproduction list` names them, `python -m reproduction all --out results` (`make reproduce`) runs them.
"""
