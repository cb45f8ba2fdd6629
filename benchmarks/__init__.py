"""What is timed, against what: `python -m benchmarks --list` names it all, `make bench` runs it.

`case` says what a case is, `cases` holds them and `registry` lists them; `runner` checks and times them; `page` makes
docs/benchmarks.md from the results. Studies of accuracy (`study`, `defaults`) take longer, have results of their own
and are run by hand.
"""
