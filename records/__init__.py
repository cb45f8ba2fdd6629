"""What studies share: runs kept in files, run in processes, shown on pages, and checked before a release.

`reproduction`, `benchmarks`, `benchmarks.study` and `examples.gpt` list jobs and run one; `keeping` holds what came of
them in docs/results with settings, seed, commit and versions, and knows which are still to be run; `processes` runs
many; `pages` puts tables into a page's marked places; `checking` runs some again and compares digits.
"""
