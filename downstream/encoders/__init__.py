"""Pretrained encoders: where they come from, their folders, tokenizers and weights.

Every source is resolved to a local folder: a known key or hub id is downloaded to the hub cache, a folder is used as it
is. Weights are read from safetensors only. Models that are published as pickled weights alone are converted once:

    python -m downstream.encoders SOURCE --out DIR

This package is the only place with model-specific handling (sources: the models' repositories and model cards):

* kpfBERT has neither a trained pooler nor an NSP head; fine-tuning starts from a random pooler.
* All five are cased. Lower-casing would strip accents by NFD, which decomposes Hangul.
* KoBERT's vocabulary is a SentencePiece model with `[UNK] 0 [PAD] 1 [CLS] 2 [SEP] 3 [MASK] 4`; its hub folder names
  XLNet's tokenizer, which puts the special tokens last.
* KorBERT (ETRI, by licence only) marks the end of an eojeol by `_` instead of word continuations by `##`, splits on
  white space alone, and lists its subwords with counts in `vocab.korean.rawtext.list`.
* Only BERT, ALBERT, XLNet and ELECTRA take `token_type_ids`.
"""
