"""Tests of the held-out perplexity."""

import math
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from downstream.encoders.folder import BUNDLED
from pretraining.evaluate import evaluate_mlm

pytestmark = pytest.mark.usefixtures("one_thread")


def test_early_and_late_positions_are_told_apart(tmp_path: Path, corpus: Path) -> None:
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED / "encoder")
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=256, **shape))
    with torch.no_grad():
        # Noise at later positions makes their tokens harder for a model that favours a frequent one.
        model.cls.predictions.bias[tokenizer.convert_tokens_to_ids(".")] = 2.0
        model.bert.embeddings.position_embeddings.weight[128:] += 3.0 * torch.randn(128, 16)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    short = evaluate_mlm(tmp_path / "model", corpus, max_rows=64)
    assert not {key for key in short if "128" in key}
    long = evaluate_mlm(tmp_path / "model", corpus, max_length=256, max_rows=64)
    early, late = long["mlm_perplexity_to_128"], long["mlm_perplexity_from_128"]
    assert min(early, late) < long["mlm_perplexity"] < max(early, late)
    assert early == pytest.approx(short["mlm_perplexity"], rel=0.1)
    assert late != pytest.approx(early, rel=1e-3)
    characters = long["mlm_loss"] / math.log(2) / long["mlm_bits_per_character"]
    assert 1.0 < characters < 3.0  # of a token
