"""Headlines: facts of a text, training on pairs of title and body, generation with a check, and evaluation."""
