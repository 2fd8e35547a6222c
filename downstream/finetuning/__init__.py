"""Fine-tuning: training methods, batches, heads and results."""
