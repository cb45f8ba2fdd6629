"""From the columns of a table to the inputs of a network: one rule for each kind, for the command and for Python.

`summary` decides what a column is, `column` holds what was learned of it, `encoding` makes inputs of it. The rules in
words: docs/estimators.md.
"""
