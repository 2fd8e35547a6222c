"""Tests of the held-out perplexity."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from corpora.build import BuildConfig, build
from corpora.cleaning import CleaningConfig
from corpora.sources import Source
from downstream.encoders.folder import BUNDLED
from pretraining.evaluate import evaluate_mlm

pytestmark = pytest.mark.usefixtures("one_thread")


def small_model(num_positions: int) -> tuple[Any, Any]:
    """Return the bundled tokenizer, and a small random model of its vocabulary."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED / "encoder")
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return tokenizer, BertForMaskedLM(
        BertConfig(vocab_size=len(tokenizer), max_position_embeddings=num_positions, **shape)
    )


def test_early_and_late_positions_are_told_apart(tmp_path: Path, corpus: Path) -> None:
    tokenizer, model = small_model(256)
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


def test_every_source_is_scored_by_itself(tmp_path: Path) -> None:
    tokenizer, model = small_model(128)
    with torch.no_grad():
        model.cls.predictions.bias[tokenizer.convert_tokens_to_ids("시청")] = 20.0
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    # The model predicts one word. It stands in the text of one source, and not in that of the other.
    texts = {"known.txt": "시청 앞과 시청 뒤와 시청 옆의 시청", "other.txt": "법원은 오늘 판결을 선고했다"}
    for name, text in texts.items():
        lines = (f"{text} {number}" for number in range(40))
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    sources = [Source(tmp_path / name, text_unit="line") for name in texts]
    cleaning = CleaningConfig(quality=False, near_duplicates=0, repeated_lines=0)
    build(sources, tmp_path / "corpus", BuildConfig(held_out=0.5, cleaning=cleaning))
    scores = evaluate_mlm(tmp_path / "model", tmp_path / "corpus", max_length=32, by_source=True)
    by_source = scores.pop("mlm_bits_per_character_by_source")
    assert list(by_source) == list(texts)
    assert by_source["known.txt"] < scores["mlm_bits_per_character"] < by_source["other.txt"]
    assert evaluate_mlm(tmp_path / "model", tmp_path / "corpus", max_length=32) == scores
