"""Documents in, encoder checkpoint out."""
