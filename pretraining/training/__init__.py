"""Rows into a trained encoder: batches, the loop, optimizers, checkpoints, estimates, reports."""
