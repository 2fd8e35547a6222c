"""Controlled experiments: recipes, runs and pages."""
