"""Articles: sentences and headlines of raw text, labelled data in every layout, labels by an oracle."""

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from corpora.foundation.errors import DataError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.summaries.articles import Article, read_article
from downstream.summaries.labelled import label_by_oracle, of_split, read_labelled

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

SENTENCES = ["새 다리가 열렸다.", "시민이 모였다.", "시장이 축사를 했다.", "새 다리가 열렸다."]


def contest_line(**changes: Any) -> str:
    record = {
        "id": "7",
        "media": "m",
        "article_original": SENTENCES,
        "extractive": [3, 1, 2],
        "abstractive": "다리 개통",
    }
    return json.dumps(record | changes, ensure_ascii=False) + "\n"


def ai_hub(**changes: Any) -> str:
    paragraphs = [[{"index": 0, "sentence": s} for s in part] for part in (SENTENCES[:1], SENTENCES[1:])]
    document = {"id": "7", "media_name": "m", "text": paragraphs, "abstractive": ["다리 개통"], "extractive": [0, 1, 3]}
    return json.dumps({"name": "news", "documents": [document | changes]}, ensure_ascii=False)


def test_a_raw_text_is_split_into_sentences_paragraphs_and_excluded_segments() -> None:
    article = read_article(
        "물빛시가 다리를 놓는다. 시민은 반겼다.\n\n공사는 3월에 시작한다.\n김하늘 기자 sky@mulbit.example"
    )
    assert article.texts == ["물빛시가 다리를 놓는다.", "시민은 반겼다.", "공사는 3월에 시작한다."]
    assert [segment.kind for segment in article.excluded] == ["byline"]


BODY = "물빛시가 다리를 놓는다. 시민은 반겼다. 공사는 3월에 시작한다."


def test_a_first_line_that_ends_like_a_headline_is_the_title() -> None:
    for headline in ("물빛시, 내년 봄 새 다리 착공", "‘새 다리’ 놓는 물빛시…시민 “반갑다”"):
        article = read_article(f"{headline}\n\n{BODY}")
        assert (article.title, len(article.sentences)) == (headline, 3)
        assert [segment.kind for segment in article.excluded] == ["headline"], headline


def test_a_title_that_is_given_goes_before_one_that_is_found() -> None:
    assert read_article(f"물빛시, 새 다리 착공\n{BODY}", "다른 제목").title == "다른 제목"


def test_a_first_line_that_is_a_sentence_and_lines_of_verse_are_no_headlines() -> None:
    lines = ["새 다리가 열렸다.", "다리가 열렸을까?", "다리는 3월에 열린다", "모두 반겼지요", "“왜 하필 지금인가?”"]
    for line in (*lines, "가" * 80):
        assert len(read_article(f"{line}\n{BODY}").sentences) == 4, line
    assert read_article("산 너머 남촌\n물 건너 마을\n바람은 불고\n꽃은 피고\n새는 우네").title == ""


def test_the_sample_is_read_with_its_authors_sentences() -> None:
    articles = list(read_labelled(SAMPLE_ROOT / "news.jsonl"))
    assert (len(articles), len(of_split(articles, "train")), len(of_split(articles, "dev"))) == (120, 90, 30)
    assert sum(len(article.sentences) for article in articles) == 1699
    assert all(len(article.extractive) == 3 for article in articles)
    rewrite = next(article for article in articles if article.id == "pol-04")
    assert rewrite.group == "pol-03"


def test_contest_data_keep_labels_by_index_though_two_sentences_are_alike(write: Write) -> None:
    (article,) = read_labelled(write("train.jsonl", contest_line()))
    assert article.texts == SENTENCES
    assert article.extractive == (1, 2, 3)
    assert (article.abstract, article.id) == ("다리 개통", "7")


def test_ai_hub_data_keep_paragraphs_and_may_be_gzipped(write: Write) -> None:
    path = write("news.json.gz", gzip.compress(ai_hub().encode()))
    (article,) = read_labelled(path)
    assert article.texts == SENTENCES
    assert (article.extractive, article.abstract) == ((0, 1, 3), "다리 개통")


def test_blank_sentences_go_and_labels_move_up(write: Write) -> None:
    line = contest_line(article_original=["  ", "가 나\n다.", "", "라."], extractive=[1, 3])
    (article,) = read_labelled(write("train.jsonl", line))
    assert (article.texts, article.extractive) == (["가 나 다.", "라."], (0, 1))


def test_articles_without_whole_labels_are_left_out_and_counted(write: Write) -> None:
    lines = [contest_line(extractive=[0, None, 2]), contest_line(article_original=["가.", " "], extractive=[1])]
    skipped: Counter[str] = Counter()
    articles = list(read_labelled(write("train.jsonl", "".join([*lines, contest_line()])), skipped))
    assert len(articles) == 1
    assert skipped == {"labels missing": 1, "a blank sentence is chosen": 1}


DAMAGES = (
    ("a.jsonl", contest_line(extractive=[0, 4]), "does not name sentences 0 to 3"),
    ("a.jsonl", contest_line(extractive=["0"]), "does not name sentences"),
    ("a.jsonl", contest_line(article_original="가."), "not a list of sentences"),
    ("a.jsonl", contest_line() + '{"article_ori', "not valid JSON"),
    ("a.json", ai_hub(text=["가."]), "no paragraphs of sentences"),
    ("a.json", '{"documents": 3}', "not a list"),
    ("a.json", '{"documents": [', "not valid JSON"),
    ("a.jsonl", '{"text": "가.", "sentences": [[0, 9]], "extractive": [0]}', "offsets outside the text"),
    ("a.jsonl", '{"text": "가.", "sentences": 3, "extractive": [0]}', "sentence offsets"),
)


def test_damaged_data_are_named_with_their_position(write: Write, fails: Fails) -> None:
    for name, content, what in DAMAGES:
        path = write(name, content)
        with fails(DataError, path, what):
            list(read_labelled(path))


def test_articles_with_headlines_are_labelled_by_the_oracle_and_lose_the_headline(write: Write) -> None:
    body = "하늘은 맑았다. 물빛시가 새 다리를 놓기로 했다. 시민은 반겼다."
    content = f'제목,내용\n"물빛시, 새 다리 놓는다","{body}"\n,"{body}"\n"전혀 무관함 QZ","{body}"\n'
    skipped: Counter[str] = Counter()
    (article,) = read_labelled(write("news.csv", content), skipped)
    assert (article.extractive, article.title) == ((1,), "")
    assert article.abstract == "물빛시, 새 다리 놓는다"
    assert skipped == {"no headline": 1, "no sentence covers the headline": 1}


def test_an_abstract_is_covered_by_f1_and_not_by_the_longest_sentence() -> None:
    text = "다리가 열렸다. 다리가 열렸다는 소식에 온 시내의 시민이 모여 춤을 추고 노래하며 밤을 새웠다."
    sentences = read_article(text).sentences
    abstract = "다리가 열렸다. " + "다리가 열렸다. " * 8
    assert label_by_oracle(Article(text, sentences), abstract, max_sentences=1).extractive == (0,)


def test_choices_find_their_texts_by_file_and_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Callable[..., AbstractContextManager[None]]
) -> None:
    text = "물빛시가 새 다리를 놓는다. 시민은 반겼다. 공사는 3월에 한다."
    root = tmp_path / "data"
    (root / "corpus").mkdir(parents=True)
    rows = [{"text": "다른 글이다.", "title": "다른 글"}, {"text": text, "title": "새 다리"}]
    (root / "corpus" / "news.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    record = {"file": "corpus/news.jsonl", "split": "dev", "chosen": [[0, 16], [26, 36]]}
    record["text_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    choices = tmp_path / "choices.jsonl"
    choices.write_text(json.dumps(record), encoding="utf-8")
    monkeypatch.setenv("PRESSBERT_DATA", str(root))
    [article] = read_labelled(choices)
    assert (article.extractive, article.title, article.split) == ((0, 2), "새 다리", "dev")
    assert article.source == "corpus/news.jsonl"
    choices.write_text(json.dumps(record | {"text_sha256": "0" * 64}), encoding="utf-8")
    with fails(DataError, root / "corpus/news.jsonl", "1 of the 1 texts"):
        list(read_labelled(choices))
