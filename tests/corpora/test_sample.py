"""The embedded sample holds what it promises: news articles and, drawn from them, a little of every task."""

import json
import re
import unicodedata
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from corpora.foundation.files import SAMPLE_ROOT
from downstream.task import QuestionExample, TextExample, get_task

ARTICLES: list[dict[str, Any]] = [
    json.loads(line) for line in (SAMPLE_ROOT / "news.jsonl").read_text(encoding="utf-8").splitlines()
]
BY_ID = {article["id"]: article for article in ARTICLES}
FILES = sorted(path for path in SAMPLE_ROOT.rglob("*") if path.is_file())


def examples(task: str, split: str) -> list[Any]:
    return list(get_task(f"{task}-sample").read_split(split, Path()).examples)


def test_there_are_a_hundred_articles_from_eight_sections() -> None:
    assert len(ARTICLES) == len(BY_ID) >= 100
    assert len({article["section"] for article in ARTICLES}) >= 8
    assert {article["split"] for article in ARTICLES} == {"train", "dev"}


def test_an_article_has_sentences_with_offsets_and_three_picks(subtests: pytest.Subtests) -> None:
    for article in ARTICLES:
        with subtests.test(article=article):
            assert 6 <= len(article["sentences"]) <= 20
            cursor = 0  # captions, by-lines and subheads stand between sentences and are none
            for start, end in article["sentences"]:
                assert cursor <= start
                assert article["text"][start:end] == article["text"][start:end].strip() != ""
                cursor = end
            assert cursor <= len(article["text"])
            assert len(article["extractive"]) == len(set(article["extractive"])) == 3
            assert set(article["extractive"]) < set(range(len(article["sentences"])))


def test_related_articles_are_in_the_same_split() -> None:
    related = {article["id"]: article["related"] for article in ARTICLES if "related" in article}
    assert related
    assert all(BY_ID[one]["split"] == BY_ID[other]["split"] for one, other in related.items())


def test_unrelated_articles_share_at_most_12_percent_of_their_character_6_grams() -> None:
    grams = {}
    for article in ARTICLES:
        text = re.sub(r"\s", "", article["text"])
        grams[article["id"]] = {text[k : k + 6] for k in range(len(text) - 5)}
    related = {frozenset((article["id"], article["related"])) for article in ARTICLES if "related" in article}
    copies = [
        (one, other)
        for one, other in combinations(grams, 2)
        if frozenset((one, other)) not in related
        and len(grams[one] & grams[other]) > 0.12 * min(len(grams[one]), len(grams[other]))
    ]
    assert copies == []


def test_files_are_composed_utf8_without_an_address_that_could_exist(subtests: pytest.Subtests) -> None:
    for path in FILES:
        with subtests.test(path=path):
            text = path.read_text(encoding="utf-8")
            assert unicodedata.is_normalized("NFC", text)
            assert [found for found in re.findall(r"[\w.+-]+@[\w.-]*\w", text) if not found.endswith(".example")] == []


def test_sentiment_is_balanced_and_unrepeated() -> None:
    train, test = examples("nsmc", "train"), examples("nsmc", "test")
    assert len(train) + len(test) >= 400
    assert len({example.text for example in [*train, *test]}) == len(train) + len(test)
    for split in (train, test):
        assert set(Counter(example.label for example in split).values()) == {len(split) // 2}


def test_inference_is_balanced_and_shares_no_premise_between_the_splits() -> None:
    train, dev = examples("klue-nli", "train"), examples("klue-nli", "dev")
    assert len(train) + len(dev) >= 300
    for split in (train, dev):
        assert set(Counter(example.label for example in split).values()) == {len(split) // 3}
    assert not {example.text for example in train} & {example.text for example in dev}


def test_similarity_is_spread_over_the_scale() -> None:
    train, dev = examples("klue-sts", "train"), examples("klue-sts", "dev")
    assert len(train) + len(dev) >= 200
    for split in (train, dev):
        fifths = Counter(min(4, int(example.label)) for example in split)
        assert min(fifths[k] for k in range(5)) >= len(split) / 10
    assert not {(e.text, e.pair) for e in train} & {(e.text, e.pair) for e in dev}


@pytest.mark.parametrize("task", ["korquad", "klue-mrc"])
def test_questions_are_asked_on_articles_of_their_own_split(task: str) -> None:
    split_of = {article["text"]: article["split"] for article in ARTICLES}
    by_split: dict[str, list[QuestionExample]] = {split: examples(task, split) for split in ("train", "dev")}
    assert sum(map(len, by_split.values())) >= 200
    for split, questions in by_split.items():
        assert {split_of[question.context] for question in questions} == {split}
        assert len({(question.context, question.question) for question in questions}) == len(questions)


def test_a_share_of_the_klue_questions_is_unanswerable_and_none_of_korquad() -> None:
    for split in ("train", "dev"):
        questions = examples("klue-mrc", split)
        unanswerable = [question for question in questions if not question.answers]
        assert 0.2 < len(unanswerable) / len(questions) < 0.4  # 9,211 of 29,313 in KLUE-MRC
        assert {question.question_type for question in unanswerable} == {3}
        assert all(question.answers for question in examples("korquad", split))


def test_every_split_is_read_with_labels_from_the_texts_not_from_their_order() -> None:
    """A sorted file would let a model, or a truncated read, see one class only."""
    labels: dict[str, list[object]] = defaultdict(list)
    for task, split in (("nsmc", "test"), ("klue-nli", "dev")):
        golds: list[TextExample] = examples(task, split)
        labels[task] = [example.label for example in golds[: len(golds) // 3]]
    assert len(set(labels["nsmc"])) == 2
    assert len(set(labels["klue-nli"])) == 3
