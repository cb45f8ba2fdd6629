"""Several processes: training a stack (`ddp`, `fsdp2`), searching for settings (`search`). Each file runs by itself."""
