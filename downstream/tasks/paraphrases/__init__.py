"""Tasks about paraphrases."""
