"""The benchmark of planted near-copies: copies have the similarity that was drawn, and merged pairs are counted."""

import itertools
import random

import pytest

from benchmarks.corpus_copies import Pair, jaccard, lengths_table, make_article, make_copy, table
from corpora.documents import read_documents
from corpora.sentences import split_by_rules
from pretraining.recipe import SAMPLE


def test_the_index_is_that_of_runs_of_five_letters() -> None:
    assert jaccard("가나다라마바", "가나다라마바") == 1
    assert jaccard("가나 다라. 마바", "가나다라마사") == pytest.approx(1 / 3)  # of 가나다라마, 나다라마바, 나다라마사
    assert jaccard("가나다라마", "바사아자차") == 0


def test_a_copy_has_about_the_index_that_was_drawn() -> None:
    rng = random.Random(1)  # noqa: S311 - no secrets
    texts = [document.text for document in itertools.islice(read_documents(SAMPLE), 10)]
    pool = [" ".join(words) for text in texts for line in text.split("\n") for words in split_by_rules(line)]
    for target in (0.55, 0.7, 0.85, 0.95):
        article = make_article(rng, pool)
        copy, index = make_copy(rng, article, pool, target)
        assert index == jaccard(article, copy)
        assert target - 0.03 <= index <= target + 0.01


def test_a_pair_is_merged_if_one_of_its_texts_is_dropped() -> None:
    pairs = [Pair("a", "b", "0.80"), Pair("c", "d", "0.95"), Pair("e", "f", "0.70"), Pair("g", "h", "headlines")]
    lines = table(pairs, {"a", "c", "d", "e", "f", "g", "h"}).splitlines()
    assert "| copies, Jaccard index 0.80 to 0.85 | 1 | 1 | 100.00 % |" in lines
    assert "| copies, Jaccard index 0.95 to 1.00 | 1 | 0 | 0.00 % |" in lines
    assert "| all from 0.80 | 2 | 1 | 50.00 % |" in lines
    assert "| all below 0.80 | 1 | 0 | 0.00 % |" in lines
    assert lines[-1] == "| minimal pairs, headlines | 1 | 0 | 0.00 % |"


def test_sentences_are_counted_by_length() -> None:
    lines = lengths_table([["가" * 119, "나" * 120, "다 라. " * 60], ["마" * 240] * 1000, []]).splitlines()
    assert lines[2:] == [
        "| `press_releases_municipal.jsonl.gz` | 3 | 2 | 0 |",
        "| `boddari_wikinews.csv` | 1,000 | 1,000 | 1,000 |",
        "| `petitions.jsonl.gz` | 0 | 0 | 0 |",
    ]
