"""Several processes: training a stack (`ddp`, `fsdp2`, `ray_train`), a search over settings (`search`, `optuna_search`)."""
