"""Products a newsroom runs; they compose downstream models and train none."""
