"""A Korean news WordPiece vocabulary: the tokenizer, its training, and a report on held-out text."""
