"""Pretrained encoders: where they come from, their tokenizers and weights."""
