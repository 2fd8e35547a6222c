"""Extractive summaries: features, models, training, evaluation."""
