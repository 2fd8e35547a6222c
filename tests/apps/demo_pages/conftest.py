"""Tiny models for the pages of the demo: random weights, but every file of real ones."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertModel

from corpora.documents import read_documents
from corpora.foundation.files import SAMPLE_ROOT
from downstream.encoders.folder import TASK_KEY
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.task import get_task
from pretraining.vocabulary.tokenizer import save_tokenizer
from pretraining.vocabulary.wordpiece import train_wordpiece

WHO = ("벼리시", "너울전자", "다솔군", "서율대", "청람구단", "물안농협", "도울은행", "윤슬극단", "감나무재단", "로스마")
WHAT = (
    "어린이 진료소",
    "접이식 전화기",
    "지방채 조례",
    "수소 촉매",
    "결승전",
    "우박 피해",
    "대출 금리",
    "창작 뮤지컬",
    "기록 영화",
    "화물선 나포",
)
SAID = ("{}, {} 공식 발표", "[속보] {} {}", "{} {}…오늘 확정", "“{} {}” 논란", "{} {} 전망 (종합)")


@pytest.fixture(scope="session")
def titles() -> Callable[[int], list[str]]:
    """Return a function that gives titles of invented events, each in five wordings; 500 at most."""
    pairs = [(WHO[(k + shift) % 10], WHAT[k]) for shift in range(10) for k in range(10)]
    return lambda count: [SAID[k % 5].format(*pairs[k // 5]) for k in range(count)]


@pytest.fixture(scope="session")
def model_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tiny encoder, classifier, question answerer and embedder. Nobody writes into it."""
    root = tmp_path_factory.mktemp("demo-models")
    lines = [line for d in read_documents(SAMPLE_ROOT / "news.jsonl") for line in d.text.split("\n") if line.strip()]
    tokenizer = train_wordpiece(lines, 2000)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=256,
    )
    torch.manual_seed(0)
    BertForMaskedLM(config).save_pretrained(root / "tiny-encoder")
    BertModel(config).save_pretrained(root / "tiny-embedder")
    for name in ("tiny-encoder", "tiny-embedder"):
        save_tokenizer(tokenizer, root / name)
    for name, task_name in (("tiny-classifier", "nsmc"), ("tiny-reader", "klue-mrc")):
        task, loaded = get_task(task_name), load_tokenizer(root / "tiny-encoder")
        model = load_model(root / "tiny-encoder", loaded, task.family.auto_class, task.family.head_config())
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 2:
                    parameter.mul_(3)  # fresh weights answer the same to everything
        setattr(model.config, TASK_KEY, task.name)
        model.save_pretrained(root / name)
        save_tokenizer(tokenizer, root / name)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    embedder = root / "tiny-embedder"
    (embedder / "1_Pooling").mkdir()
    (embedder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (embedder / "modules.json").write_text(json.dumps(modules))
    (embedder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 128}))
    return root
