"""What the writing tools share: rules, edits, morphemes, and the models that they come with."""
