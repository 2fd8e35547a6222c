"""Stored vectors of a teacher: resumed after a kill, checked when opened, and learnt from."""

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard

from corpora.build import BuildConfig, build
from corpora.corpus import corpus_files, corpus_texts
from corpora.foundation.errors import CheckpointError, DataError, RecipeError, UsageError
from corpora.foundation.files import parse_signed
from downstream.embed import Embedder, encode, main
from downstream.embeddings import vectors as vectors_module
from downstream.embeddings.embedder import BUNDLED
from downstream.embeddings.losses import TeacherLoss
from downstream.embeddings.recipe import STAGES, EmbedRecipe
from downstream.embeddings.rows import Rows, make_batches, read_rows
from downstream.embeddings.training import train_embedder
from downstream.embeddings.vectors import write_vectors
from pretraining.data.vectors import MANIFEST, SHARDS, StoredVectors

Fails = Callable[..., AbstractContextManager[None]]
PLACES, OCCASIONS = ("서울", "부산", "대구", "광주"), ("회의에는", "행사에는", "집회에는")
TEXTS = [f"{a} {b} {number}명이 참여했다." for a in PLACES for b in OCCASIONS for number in range(1, 5)]


@pytest.fixture(scope="module")
def teacher(standins: dict[str, Path]) -> Embedder:
    return Embedder.load(standins["mbert"])


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors_module, "SHARD_SIZE", 10)


@pytest.fixture
def stored(teacher: Embedder, tmp_path: Path) -> Path:
    write_vectors(TEXTS, teacher, tmp_path / "stored", prompt="query: ", attribution="learnt from X", batch_size=4)
    return tmp_path / "stored"


def test_rows_are_the_teachers_vectors_with_its_prompt(stored: Path, teacher: Embedder) -> None:
    opened = StoredVectors.open(stored)
    wanted = encode([f"query: {text}" for text in TEXTS], model=teacher)
    assert list(opened.texts) == TEXTS
    assert [len(shard) for shard in opened.shards] == [10, 10, 10, 10, 8]
    assert np.abs(opened.rows(range(len(TEXTS))) - wanted).max() < 1e-3  # float16
    assert np.abs(opened.rows([47, 3]) - wanted[[47, 3]]).max() < 1e-3
    assert (opened.manifest.model_sha256, opened.manifest.dimension) == (teacher.sha256, teacher.dimension)


def test_a_killed_command_computes_only_what_is_missing(
    stored: Path, teacher: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    computed: list[int] = []
    original = Embedder.encode

    def watched(self: Embedder, texts: Any, **settings: Any) -> Any:
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(len(texts))
        return original(self, texts, **settings)

    monkeypatch.setattr(Embedder, "encode", watched)
    settings: dict[str, Any] = {"prompt": "query: ", "attribution": "learnt from X", "batch_size": 4}
    with pytest.raises(KeyboardInterrupt):
        write_vectors(TEXTS, teacher, tmp_path / "killed", **settings)
    with fails(DataError, tmp_path / "killed", "not finished"):
        StoredVectors.open(tmp_path / "killed")
    monkeypatch.setattr(Embedder, "encode", original)
    write_vectors(TEXTS, teacher, tmp_path / "killed", **settings)
    names = sorted(path.name for path in stored.iterdir())
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == names
    for name in names:
        assert (tmp_path / "killed" / name).read_bytes() == (stored / name).read_bytes(), name


def test_vectors_of_equal_texts_are_copied(
    stored: Path, teacher: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    computed: list[str] = []
    original = Embedder.encode

    def watched(self: Embedder, texts: Any, **settings: Any) -> Any:
        computed.extend(texts)
        return original(self, texts, **settings)

    monkeypatch.setattr(Embedder, "encode", watched)
    texts = [TEXTS[40], "새 문장이다.", *TEXTS[:12], "또 다른 문장이다.", "새 문장이다."]
    write_vectors(texts, teacher, tmp_path / "more", prompt="query: ", batch_size=4, reuse=[stored])
    assert set(computed) == {"query: 새 문장이다.", "query: 또 다른 문장이다."}
    monkeypatch.undo()
    wanted = encode([f"query: {text}" for text in texts], model=teacher)
    assert np.abs(StoredVectors.open(tmp_path / "more").rows(range(len(texts))) - wanted).max() < 1e-3
    with fails(UsageError, "--reuse", "prompt='query: '", "''"):
        write_vectors(texts, teacher, tmp_path / "other", batch_size=4, reuse=[stored])


def test_the_vectors_of_a_corpus_are_those_of_its_documents_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [{"id": str(n), "title": f"{n}번째 소식", "text": text} for n, text in enumerate(TEXTS)]
    (tmp_path / "news.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    build([tmp_path / "news.jsonl"], tmp_path / "corpus", BuildConfig(held_out=0.2))
    capsys.readouterr()
    assert main(["vectors", str(tmp_path / "corpus"), "--model", str(BUNDLED), "--out", str(tmp_path / "stored")]) == 0
    texts = [text for file in corpus_files(tmp_path / "corpus") for text in corpus_texts(file)]
    assert 20 < len(texts) < len(TEXTS)
    assert list(StoredVectors.open(tmp_path / "stored").texts) == texts


def test_vectors_of_something_else_are_kept(stored: Path, teacher: Embedder, fails: Fails) -> None:
    before = {path.name: path.read_bytes() for path in stored.iterdir()}
    for texts, prompt in ((TEXTS[1:], "query: "), (TEXTS, "passage: ")):
        with fails(UsageError, stored, "other texts or settings", "--out"):
            write_vectors(texts, teacher, stored, prompt=prompt, attribution="learnt from X", batch_size=4)
    assert {path.name: path.read_bytes() for path in stored.iterdir()} == before


def test_damage_is_noticed(stored: Path, tmp_path: Path, fails: Fails) -> None:
    for name in ("00003.npy", "texts.jsonl"):
        copy = tmp_path / f"damaged-{name}"
        shutil.copytree(stored, copy)
        content = bytearray((copy / name).read_bytes())
        content[-3] ^= 1
        (copy / name).write_bytes(content)
        with fails(DataError, copy / name, "digest differs"):
            StoredVectors.open(copy)
    (stored / SHARDS).unlink()
    with fails(DataError, stored, "not finished"):
        StoredVectors.open(stored)


def test_batches_hold_every_text_once_and_texts_of_similar_length() -> None:
    stage = STAGES["teacher_vectors"](kind="teacher_vectors", data=("x",), batch_size=8)
    texts = ["가" * (1 + 7 * k % 100) for k in range(800)]
    batches = make_batches(Rows({"sentence": texts, "label": range(800)}, None, []), stage, 0)
    assert sorted(row for batch in batches for row in batch) == list(range(800))
    spread = [max(len(texts[row]) for row in batch) - min(len(texts[row]) for row in batch) for batch in batches]
    assert np.mean(spread) < 10  # of 100
    assert [len(texts[batch[0]]) for batch in batches] != sorted(len(texts[batch[0]]) for batch in batches)


def test_the_loss_is_the_formula(stored: Path) -> None:
    opened = StoredVectors.open(stored)
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(6, 5, generator=generator)
    model = SimpleNamespace(get_embedding_dimension=lambda: 5)
    loss = TeacherLoss(model, [opened, opened], cosine_weight=3.0)
    loss.model = lambda _: {"sentence_embedding": student}
    rows = [0, 47, 48, 60, 95, 20]  # of both folders
    found = loss([{}], torch.tensor(rows))

    def unit(values: Any) -> Any:
        return values / np.linalg.norm(values, axis=1, keepdims=True)

    every = opened.rows(range(len(TEXTS))).astype(np.float64)
    teacher = unit(every[[row % len(TEXTS) for row in rows]] - every.mean(axis=0))
    numbers = student.numpy().astype(np.float64)
    mapped = unit(numbers @ loss.map.weight.detach().numpy().T + loss.map.bias.detach().numpy())
    cosines = unit(numbers) @ unit(numbers).T - teacher @ teacher.T
    vector_term = np.mean(1 - (mapped * teacher).sum(1))
    assert float(found.detach()) == pytest.approx(vector_term + 3 * np.mean(cosines**2), abs=1e-5)

    loss._dimensions = [2, 5]
    first = unit(numbers[:, :2]) @ unit(numbers[:, :2]).T - teacher @ teacher.T
    cosine_term = (np.mean(cosines**2) + np.mean(first**2)) / 2
    found = loss([{}], torch.tensor(rows))
    assert float(found.detach()) == pytest.approx(vector_term + 3 * cosine_term, abs=1e-5)


def test_a_student_learns_its_teachers_cosines(
    stored: Path, standins: dict[str, Path], teacher: Embedder, tmp_path: Path, fails: Fails
) -> None:
    def distance(model: Any) -> float:
        student, wanted = encode(TEXTS, model=model), encode([f"query: {text}" for text in TEXTS], model=teacher)
        wanted = wanted - wanted.mean(axis=0)
        wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
        return float(np.mean((student @ student.T - wanted @ wanted.T) ** 2))

    stage = STAGES["teacher_vectors"](
        kind="teacher_vectors", data=(str(stored),), batch_size=16, epochs=25, peak_lr=2e-3
    )
    recipe = EmbedRecipe(stages=(stage,), max_length=24, evaluate=())
    manifest = train_embedder(standins["klue-bert"], recipe, out=tmp_path / "student")
    assert distance(tmp_path / "student") < 0.3 * distance(standins["klue-bert"])
    assert manifest["stages"][1]["num_rows"] == len(TEXTS)
    assert "learnt from X" in ModelCard.load(tmp_path / "student" / "README.md").text
    other = STAGES["teacher_vectors"](kind="teacher_vectors", data=(str(tmp_path),))
    with fails(RecipeError, "stage 1, data", "is no folder of vectors", "downstream.embed vectors"):
        read_rows(other, tmp_path, "stage 1")


def test_the_command_stores_vectors_with_weights_of_eight_bits(
    standins: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], fails: Fails
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS, TEXTS[0], " "]), encoding="utf-8")
    command = ["vectors", str(tmp_path / "texts.txt"), "--model", str(BUNDLED)]
    assert main([*command, "--int8", "--out", str(tmp_path / "int8")]) == 0
    assert json.loads(capsys.readouterr().out) == parse_signed((tmp_path / "int8" / MANIFEST).read_text())
    opened = StoredVectors.open(tmp_path / "int8")
    assert (list(opened.texts), opened.manifest.is_int8) == (TEXTS, True)
    exact = encode(TEXTS, model=BUNDLED)
    cosines = (opened.rows(range(len(TEXTS))) * exact).sum(axis=1)
    assert cosines.min() > 0.98
    assert np.abs(opened.rows(range(len(TEXTS))) - exact).max() > 1e-3  # 8 bits were used
    with fails(CheckpointError, standins["klue-bert"], "8 bits"):
        Embedder.load(standins["klue-bert"], is_int8=True)
