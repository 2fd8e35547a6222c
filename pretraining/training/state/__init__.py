"""What a run carries from step to step: counters and sums, averaged weights, and their checkpoints."""
