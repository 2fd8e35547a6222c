"""Tasks made out of other texts."""
