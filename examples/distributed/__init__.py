"""Several processes: training a stack (`ddp`, `fsdp2`, `ray_train`), searching (`search`, `optuna_search`)."""
