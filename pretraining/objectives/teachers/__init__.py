"""Objectives that learn from another model."""
