"""A news WordPiece vocabulary: the tokenizer, its training, and what it is worth."""
