"""Documents into rows of token ids: tokenised once, packed, masked."""
