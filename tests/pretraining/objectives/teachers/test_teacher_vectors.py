"""Teacher vectors: which sentences have one, what stays unmasked, the loss, and that the exported encoder is plain."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, BertConfig

from corpora.foundation.errors import DataError, RecipeError
from corpora.foundation.files import sha256, write_json
from pretraining.data.rows import SPECIAL
from pretraining.data.shards import Sharded
from pretraining.data.vectors import MANIFEST, SHARDS, TEXTS
from pretraining.objectives.teachers.teacher_vectors import (
    TeacherVectors,
    TeacherVectorsConfig,
    TeacherVectorsModel,
    mean_states,
)
from pretraining.training.batches import BatchSource

Corpus = Callable[[list[Any]], Any]
Draw = Callable[..., Any]
Fails = Callable[..., AbstractContextManager[None]]

LENGTH, DIMENSION = 64, 12
MASK = 4


def write_vectors(folder: Path, count: int) -> Path:
    """Write COUNT random vectors in two shards."""
    folder.mkdir()
    values = np.random.default_rng(0).standard_normal((count, DIMENSION)) + 1.5
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    lines = "".join(json.dumps(f"문장 {n}", ensure_ascii=False) + "\n" for n in range(count))
    (folder / TEXTS).write_text(lines, encoding="utf-8")
    half = -(-count // 2)
    names = []
    for number, part in enumerate((values[:half], values[half:])):
        names.append(f"{number:05}.npy")
        np.save(folder / names[-1], part.astype(np.float16))
    write_json(
        folder / MANIFEST,
        {
            "model": "teacher",
            "model_sha256": "0",
            "prompt": "",
            "is_int8": False,
            "dimension": DIMENSION,
            "num_texts": count,
            "texts_sha256": sha256(folder / TEXTS),
        },
    )
    write_json(folder / SHARDS, {name: sha256(folder / name) for name in names})
    return folder


@pytest.fixture(scope="module")
def news(numbered: Corpus, structure: Draw) -> Any:
    return numbered([structure(300, seed=1), structure(100, seed=2)])


@pytest.fixture(scope="module")
def vectors(news: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vectors(tmp_path_factory.mktemp("vectors") / "stored", len(news.tokens))


def make_source(corpus: Any, **settings: Any) -> BatchSource:
    layout = corpus.layout(LENGTH, isolate_documents=True, seed=0)
    objective = TeacherVectors(TeacherVectorsConfig(**settings), layout)
    rows = [objective.make_rows(corpus.tokens, number) for number in range(len(corpus.tokens.shards))]
    return BatchSource(Sharded.from_lengths(rows, [len(shard) for shard in rows]), objective, 16)


def make_model(source: BatchSource) -> TeacherVectorsModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=source.objective.layout.specials.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = source.objective.build_model(config)
    assert isinstance(model, TeacherVectorsModel)
    model.use_attention(torch.device("cpu"))
    return model


def all_rows(source: BatchSource, epoch: int = 0) -> dict[str, torch.Tensor]:
    count = len(source.corpus)
    return source.tensors(np.arange(count), np.full(count, epoch))


def test_every_document_of_one_segment_has_its_own_vector(news: Any, vectors: Path) -> None:
    source = make_source(news, vectors=str(vectors))
    stored = source.objective._vectors  # type: ignore[attr-defined]
    seen = []
    for shard in source.corpus.shards:
        for row in range(len(shard)):
            start = int(shard.ids.offsets[row])
            part = slice(int(shard.lengths.offsets[row]), int(shard.lengths.offsets[row + 1]))
            for length, label in zip(shard.lengths.values[part], shard.labels[part], strict=True):
                tokens = shard.ids.values[start + 1 : start + int(length) - 1].tolist()
                start += int(length)
                owners = [n for n in range(len(news.tokens)) if _document(news, n) == tokens]
                assert label == 0 or label - 1 in owners
                seen += [int(label) - 1] if label else []
                assert label or not owners
    assert len(seen) == len(set(seen)) > 100
    batch = all_rows(source)
    numbers = np.concatenate([shard.labels[shard.labels > 0] - 1 for shard in source.corpus.shards])
    np.testing.assert_allclose(batch["vectors"].numpy(), stored.rows(numbers.tolist()))
    assert len(batch["vector_starts"]) == len(seen)


def _document(corpus: Any, number: int) -> list[int]:
    shard, k = corpus.tokens.locate(number)
    ids: list[int] = shard.ids[k].tolist()
    return ids


def test_a_share_of_the_sequences_stays_whole(news: Any, vectors: Path) -> None:
    for share in (0.0, 0.5):
        source = make_source(news, vectors=str(vectors), whole_share=share, mask_rate=0.4)
        masked, whole = [], []
        for epoch in range(4):
            batch = all_rows(source, epoch)
            is_masked = torch.zeros(batch["input_ids"].numel(), dtype=torch.bool)
            is_masked[batch["masked_positions"]] = True
            keys = batch["sequence_ids"] + torch.arange(len(batch["sequence_ids"]))[:, None] * LENGTH
            keys, is_masked = keys.flatten(), is_masked & (batch["sequence_ids"].flatten() > 0)
            sequences = torch.unique(keys[batch["sequence_ids"].flatten() > 0])
            counts = torch.stack([is_masked[keys == key].sum() for key in sequences])
            sizes = torch.stack([(keys == key).sum() for key in sequences])
            long = sizes > 12
            whole.append((counts[long] == 0).float().mean())
            masked.append(counts[counts > 0].sum() / (sizes[counts > 0] - 2).sum())
        assert np.mean(whole) == pytest.approx(share, abs=0.08)
        assert np.mean(masked) == pytest.approx(0.4, abs=0.04)


def test_the_loss_is_that_of_each_sentence_alone(news: Any, vectors: Path) -> None:
    source = make_source(news, vectors=str(vectors))
    model = make_model(source).eval()
    batch = source.tensors(np.arange(6), np.zeros(6, np.int64))
    outputs = model(**batch)
    pooled = []
    for start in batch["vector_starts"].tolist():
        row, column = divmod(start, batch["input_ids"].shape[1])
        own = batch["sequence_ids"][row] == batch["sequence_ids"][row, column]
        ids = batch["input_ids"][row][own][None]
        hidden = model.network.bert(ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        pooled.append(hidden[0].mean(0))
    states = torch.stack(pooled)
    stored = source.objective._vectors  # type: ignore[attr-defined]
    mean = torch.from_numpy(np.concatenate([np.asarray(shard, np.float32) for shard in stored.shards]).mean(axis=0))
    target = batch["vectors"].float() - mean
    target = target / target.norm(dim=1, keepdim=True)
    mapped = model.map(states)
    expected = (1 - (mapped * target).sum(1) / mapped.norm(dim=1)).sum()
    torch.testing.assert_close(outputs["vector_loss"], expected, atol=1e-4, rtol=1e-4)
    unit = states / states.norm(dim=1, keepdim=True)
    errors = ((unit @ unit.T - target @ target.T) ** 2).mean(1).sum()
    torch.testing.assert_close(outputs["cosine_loss"], errors, atol=1e-4, rtol=1e-4)
    sum(outputs[f"{term.name}_loss"] for term in source.objective.terms).backward()  # type: ignore[union-attr]
    assert all(p.grad is not None for n, p in model.named_parameters() if "pooler" not in n)


def test_padding_and_other_sequences_are_in_no_mean() -> None:
    states = torch.arange(12.0).reshape(6, 2)
    sequence_ids = torch.tensor([[1, 2, 2], [1, 1, 0]])
    means = mean_states(states, sequence_ids, torch.tensor([0, 1, 3]))
    assert means.tolist() == [[0.0, 1.0], [3.0, 4.0], [7.0, 8.0]]
    assert mean_states(states, sequence_ids, torch.zeros(0, dtype=torch.int64)).shape == (0, 2)


def test_held_out_rows_have_masks_but_no_vectors(news: Any, vectors: Path) -> None:
    source = make_source(news, vectors=str(vectors))
    settings = TeacherVectors.held_out_settings(source.objective.config)
    assert isinstance(settings, TeacherVectorsConfig)
    held_out = make_source(news, **settings.model_dump())
    batch = all_rows(held_out)
    assert len(batch["vector_starts"]) == 0
    with torch.no_grad():
        outputs = make_model(source)(**batch)
    assert float(outputs["vector_loss"]) == float(outputs["cosine_loss"]) == 0.0
    assert float(outputs["mlm_loss"]) > 0
    assert (all_rows(source)["input_ids"] == MASK).any()
    assert all(len(shard.kinds[shard.kinds != SPECIAL]) for shard in held_out.corpus.shards)


def test_the_export_is_a_plain_bert(news: Any, vectors: Path, tmp_path: Path) -> None:
    model = make_model(make_source(news, vectors=str(vectors)))
    state = dict(model.state_dict())
    model.export(state).save_pretrained(tmp_path)
    opened, loading = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert opened.config.model_type == "bert"
    assert set(model.objective_parts(state)) == {"map.weight", "map.bias"}


def test_vectors_of_another_corpus_are_refused(news: Any, tmp_path: Path, fails: Fails) -> None:
    other = write_vectors(tmp_path / "other", 7)
    with fails(DataError, "corpus", "7 vectors", f"{len(news.tokens):,} training documents"):
        make_source(news, vectors=str(other))
    with fails(RecipeError, "objective.vectors", "missing"):
        make_source(news).objective.build_model(BertConfig())
