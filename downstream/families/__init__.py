"""Families of tasks: how examples become tensors, and outputs predictions."""
