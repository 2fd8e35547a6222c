"""The benchmark of headlines and articles of a day: whole days are held out, and ranks are counted within a day."""

import json
from pathlib import Path

import numpy as np

from benchmarks.same_day import BASELINE, Article, by_ngrams, held_out_share, page, read_articles, reciprocal_ranks
from downstream.encoders.folder import BUNDLED
from pretraining.recipe import SAMPLE


def test_articles_have_title_body_and_day_and_count_once(tmp_path: Path) -> None:
    records = [
        {"title": "예산 확정", "text": "예산 확정\n시의회가 확정했다.", "date": "2026-07-01T10:00"},
        {"title": "예산 확정", "text": "시의회가 확정했다.", "date": "2026-07-01"},
        {"title": "날짜 없음", "text": "시의회가 확정했다."},
        {"title": "", "text": "시의회가 확정했다.", "date": "2026-07-01"},
    ]
    path = tmp_path / "articles.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    assert read_articles([path]) == [Article("예산 확정", "시의회가 확정했다.", "2026-07-01")]


def test_the_days_are_those_that_the_training_of_the_embedder_left_out() -> None:
    manifest = json.loads((BUNDLED / "MANIFEST.json").read_text(encoding="utf-8"))
    stages = manifest["recipe"]["embedder"]["stages"]
    assert [stage["held_out_days"] for stage in stages if stage["kind"] == "headline_body"] == [held_out_share()]
    assert 0 < held_out_share() < 1


def test_ranks_are_counted_among_the_bodies_of_the_day() -> None:
    articles = [Article("가", "1", "월"), Article("나", "2", "화"), Article("다", "3", "월"), Article("라", "4", "월")]
    table = {"가": (1, 9, 2, 3), "나": (0, 0, 0, 0), "다": (5, 9, 4, 3), "라": (0, 9, 0, 1)}

    def likeness(one: list[str], two: list[str]) -> np.ndarray:
        return np.array([[table[title][int(body) - 1] for body in two] for title in one], dtype=np.float64)

    assert reciprocal_ranks(articles, likeness).tolist() == [1 / 3, 1, 1 / 2, 1]
    sample = read_articles([SAMPLE])
    ranks = reciprocal_ranks(sample, by_ngrams(sample))
    assert 0.8 < ranks.mean() < 1
    found = {BASELINE: np.array([1, 1 / 2, 1, 1]), "bundled embedder": np.ones(4)}
    text = page(7, articles, found)
    assert "4 press releases of 2 days" in text
    assert "counted on the 7 articles" in text
    assert f"| {BASELINE} | 75.0 | 0.8750 |  |  |" in text
    assert "| bundled embedder | 100.0 | 1.0000 | +0.1250 | 1.0000 |" in text
