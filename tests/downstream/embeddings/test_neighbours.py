"""Pairs of texts without labels: near neighbours, each pair once, the same for the same seed."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from corpora.documents import read_documents
from corpora.foundation.errors import UsageError
from downstream.embed import main
from downstream.embeddings import neighbours
from downstream.embeddings.neighbours import RANKS, similar_pairs

Fails = Callable[..., AbstractContextManager[None]]


def circle(count: int) -> np.ndarray:
    """Return COUNT unit vectors, each nearest to those with the numbers beside its own."""
    angles = np.linspace(0, 2 * np.pi, count, endpoint=False) + np.linspace(0, 1e-3, count)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@pytest.mark.parametrize("block", [7, 1024])
def test_pairs_are_neighbours_of_the_ranks(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(neighbours, "BLOCK", block)
    vectors = circle(120)
    pairs = similar_pairs(vectors, 2, seed=3)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    ranks = (-cosines).argsort(1).argsort(1) + 1
    assert all(a != b and {int(ranks[a, b]), int(ranks[b, a])} & set(RANKS) for a, b in pairs)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    assert 120 < len(pairs) <= 240
    assert {k for pair in pairs for k in pair} == set(range(120))
    assert any(a > b for a, b in pairs)
    assert any(a < b for a, b in pairs)
    assert similar_pairs(vectors, 2, seed=3) == pairs != similar_pairs(vectors, 2, seed=4)


def test_few_texts_have_the_pairs_there_are() -> None:
    assert similar_pairs(circle(1)[:0], 3) == similar_pairs(circle(1), 3) == []
    assert [set(pair) for pair in similar_pairs(circle(2), 3)] == [{0, 1}]
    assert {frozenset(pair) for pair in similar_pairs(circle(4), 3)} == {
        frozenset({a, b}) for b in range(4) for a in range(b)
    }


def test_pairs_of_files_and_tasks_are_written_for_distillation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "pairs.jsonl"
    texts.write_text("비가 온다\n눈이 온다\n비가 온다\n" + "아주 긴 문장 " * 40 + "\n", encoding="utf-8")
    arguments = [str(texts), "--tasks", "klue-sts-sample", "--out", str(out), "--per-text", "1", "--max-chars", "100"]
    assert main(["pairs", *arguments, "--data", str(tmp_path)]) == 0
    counts = json.loads(capsys.readouterr().out)
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert counts["pairs"] == len(rows) > 10
    assert counts["left_out"] >= 1
    assert {text for row in rows for text in (row["text"], row["pair"])} >= {"비가 온다", "눈이 온다"}
    assert max(len(text) for row in rows for text in row.values()) <= 100
    assert len(list(read_documents(out, fields={"title": "pair"}))) == len(rows)


def test_texts_that_cannot_be_paired_are_refused(tmp_path: Path, fails: Fails, subtests: pytest.Subtests) -> None:
    for arguments, where, what in (
        ([], "pairs", "no texts are named"),
        (["--tasks", "korquad-sample"], "korquad-sample", "no single texts or pairs"),
        (["--tasks", "klue-sts-sample", "--per-text", "10"], "--per-text", "10 neighbours"),
        (["--tasks", "klue-sts-sample", "--max-chars", "1"], "pairs", "0 texts of at most 1 characters"),
    ):
        with subtests.test(what), fails(UsageError, where, what):
            main(["pairs", *arguments, "--out", str(tmp_path / "out.jsonl")])
