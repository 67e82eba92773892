"""Jobs: plans that run, their checkpoints, progress and results."""
