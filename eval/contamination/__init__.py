"""Evaluation texts in training text: counted, and scores without them."""
