"""Encoder in, tools out: tasks, metrics and fine-tuning."""
