"""Documents into rows of token ids: tokenized once, packed, masked."""
