"""The benchmark of headlines and articles of a day: whole days are held out, and ranks are counted within a day."""

import json
from pathlib import Path

import numpy as np

from benchmarks.same_day import Article, by_ngrams, page, read_articles, reciprocal_ranks, split_days
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


def test_a_day_is_in_one_part_and_every_part_has_some() -> None:
    articles = read_articles([SAMPLE])
    parts = split_days(articles)
    assert sorted(article for some in parts.values() for article in some) == sorted(articles)
    days = [{article.day for article in some} for some in parts.values()]
    assert all(days)
    assert sum(map(len, days)) == len(set.union(*days))


def test_ranks_are_counted_among_the_bodies_of_the_day() -> None:
    articles = [Article("가", "1", "월"), Article("나", "2", "화"), Article("다", "3", "월"), Article("라", "4", "월")]
    table = {"가": (1, 9, 2, 3), "나": (0, 0, 0, 0), "다": (5, 9, 4, 3), "라": (0, 9, 0, 1)}

    def likeness(one: list[str], two: list[str]) -> np.ndarray:
        return np.array([[table[title][int(body) - 1] for body in two] for title in one], dtype=np.float64)

    assert reciprocal_ranks(articles, likeness).tolist() == [1 / 3, 1, 1 / 2, 1]
    sample = read_articles([SAMPLE])
    ranks = reciprocal_ranks(sample, by_ngrams(sample))
    assert 0.8 < ranks.mean() < 1
    text = page({"train": articles, "dev": [], "test": articles[:1]}, [["bundled", "", "50.0"]], ["one against two"])
    assert "4 of 2 days (train), 0 of 0 days (dev), 1 of 1 days (test)" in text
    assert "| bundled |  | 50.0 |" in text
