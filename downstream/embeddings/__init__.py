"""Sentence embeddings: recipes, training, and semantic similarity."""
