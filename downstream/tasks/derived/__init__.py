"""Tasks derived from other texts."""
