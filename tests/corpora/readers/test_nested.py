"""The JSON of 모두의 말뭉치 and of AI-Hub's data sets, in their published layouts."""

import doctest
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import corpora.readers.nested
from corpora.documents import RejectedRecord, read_documents

Write = Callable[[str, str | bytes], Path]

FIRST = "한국은행이 기준금리를 3.0%로 묶었다고 17일 밝혔다."
SECOND = "총재는 물가를 더 지켜보겠다고 말했다."
PUBLISHED: dict[str, Any] = {
    "모두의 말뭉치 신문": {
        "id": "NWRW1800000021",
        "metadata": {"title": "국립국어원 신문 말뭉치", "creator": "국립국어원", "year": "2018"},
        "document": [
            {
                "id": "NWRW1800000021.1",
                "metadata": {
                    "title": "물빛일보 2018년 기사",
                    "author": "김하늘",
                    "publisher": "물빛일보",
                    "date": "20180101",
                    "topic": "경제",
                },
                "paragraph": [
                    {"id": "NWRW1800000021.1.1", "form": "금리 동결"},
                    {"id": "NWRW1800000021.1.2", "form": FIRST},
                    {"id": "NWRW1800000021.1.3", "form": SECOND},
                ],
            }
        ],
    },
    "AI-Hub 문서요약": {
        "name": "신문기사",
        "documents": [
            {
                "id": "NWRW1800000021.1",
                "category": "경제",
                "media_name": "물빛일보",
                "publish_date": "20180101",
                "title": "금리 동결",
                "text": [[{"index": 0, "sentence": FIRST}], [{"index": 1, "sentence": SECOND}]],
                "abstractive": ["금리를 묶었다."],
            }
        ],
    },
    "AI-Hub 기계독해": {
        "creator": "AI-Hub",
        "data": [
            {
                "doc_id": "NWRW1800000021.1",
                "doc_title": "금리 동결",
                "doc_source": "물빛일보",
                "doc_published": "20180101",
                "doc_class": {"class": "경제", "code": "E"},
                "paragraphs": [
                    {"paragraph_id": 1, "context": FIRST, "qas": [{"question": "얼마로?"}]},
                    {"paragraph_id": 2, "context": SECOND, "qas": []},
                ],
            }
        ],
    },
    "AI-Hub 낚시성 기사": {
        "sourceDataInfo": {
            "newsID": "NWRW1800000021.1",
            "newsCategory": "경제",
            "newsTitle": "금리 동결",
            "newsContent": f"{FIRST}\n{SECOND}",
        },
        "labeledDataInfo": {
            "clickbaitClass": 1,
            "processSentenceInfo": [
                {"sentenceNo": 1, "sentenceContent": FIRST},
                {"sentenceNo": 2, "sentenceContent": SECOND},
            ],
        },
    },
    "AI-Hub 웹 말뭉치": {
        "SJML": {
            "header": {"identifier": "말뭉치"},
            "text": [
                {
                    "id": "NWRW1800000021.1",
                    "title": "금리 동결",
                    "content": f"{FIRST}\n{SECOND}",
                    "write_date": "20180101",
                    "source_site": "물빛일보",
                }
            ],
        }
    },
}


def test_the_documented_example_holds() -> None:
    assert doctest.testmod(corpora.readers.nested).failed == 0


def test_articles_of_published_layouts_are_read_with_headline_and_paragraphs(
    write: Write, subtests: pytest.Subtests
) -> None:
    for name, content in PUBLISHED.items():
        with subtests.test(layout=name):
            (document,) = read_documents(write("a.json", json.dumps(content, ensure_ascii=False)))
            assert (document.id, document.title, document.text) == (
                "NWRW1800000021.1",
                "금리 동결",
                f"{FIRST}\n{SECOND}",
            )
            assert document.section in {"경제", ""}
            assert document.date in {"20180101", ""}
            assert document.publisher in {"물빛일보", ""}


def test_a_document_without_text_is_one_bad_record(write: Write) -> None:
    published = json.loads(json.dumps(PUBLISHED["모두의 말뭉치 신문"]))
    published["document"].append({"id": "2", "metadata": {"title": "빈 기사"}, "paragraph": []})
    rejected: list[Any] = []
    assert len(list(read_documents(write("a.json", json.dumps(published)), rejected=rejected))) == 1
    assert [record.where.rpartition("/")[2] for record in rejected] == ["a.json:2"]


def test_fields_of_flat_objects_stay_as_they_are(write: Write) -> None:
    (document,) = read_documents(
        write("a.jsonl", json.dumps({"text": FIRST, "tags": ["a", "b"], "meta": {"date": "2024"}}))
    )
    assert document.extra == {"tags": ["a", "b"], "meta": {"date": "2024"}}
    assert document.date == "2024"


def test_objects_of_records_are_read_whole(write: Write, subtests: pytest.Subtests) -> None:
    keyed = {f"n{number}": {"title": "금리 동결", "text": f"{number}. {FIRST}"} for number in range(3)}
    columns = {field: {key: article[field] for key, article in keyed.items()} for field in ("title", "text")}
    short = {"n1": {"title": "첫눈", "text": "짧다."}, "n2": {"title": "막차", "text": "끝.", "date": "2021-06-01"}}
    for name, content, number in (("by key", keyed, 3), ("columns", columns, 3), ("short", short, 2)):
        with subtests.test(layout=name):
            documents = list(read_documents(write("a.json", json.dumps(content))))
            assert len(documents) == number
            assert name == "columns" or [document.id for document in documents] == list(content)


def test_parts_of_one_object_are_not_taken_for_records(write: Write, subtests: pytest.Subtests) -> None:
    article = {"title": "금리 동결", "text": FIRST}
    for name, content in {
        "a wrapper": {"meta": {"title": "검색 결과", "count": 1}, "data": {"text": "질의", "items": [article]}},
        "an article alone": {"title": "금리 동결", "text": FIRST, "meta": {"title": "x", "text": "y"}},
    }.items():
        with subtests.test(layout=name):
            rejected: list[Any] = []
            assert len(list(read_documents(write("a.json", json.dumps(content)), rejected=rejected))) == 1, rejected


def test_json_lines_are_read_under_the_name_of_json(write: Write) -> None:
    lines = [json.dumps({"title": "금리 동결", "text": FIRST}), '{"title": "끊긴', json.dumps({"text": SECOND})]
    rejected: list[Any] = []
    path = write("export.json", "\n".join(lines))
    assert [document.text for document in read_documents(path, rejected=rejected)] == [FIRST, SECOND]
    assert [record.where for record in rejected] == [f"{path}:2"]


def test_indented_objects_one_after_another_are_records(write: Write, subtests: pytest.Subtests) -> None:
    rows = [{"id": "a", "title": "하나", "text": "본문 {하나}"}, {"id": "b", "title": "둘", "text": "본문 둘"}]
    indented = "\n".join(json.dumps(row, ensure_ascii=False, indent=2) for row in rows) + "\n"
    for name in ("a.jsonl", "a.json"):
        with subtests.test(name):
            assert [document.id for document in read_documents(write(name, indented))] == ["a", "b"]
    rejected: list[RejectedRecord] = []
    line = json.dumps(rows[1], ensure_ascii=False)
    path = write("open.jsonl", f'{{\n  "title": "닫히지 않음",\n{line}\n{{\n')
    assert [document.id for document in read_documents(path, rejected=rejected)] == ["b"]
    assert [bad.where for bad in rejected] == [f"{path}:1", f"{path}:4"]


def test_values_with_their_types_and_lists_of_paragraphs(write: Write) -> None:
    mongo = {"_id": {"$oid": "65f1"}, "content": "본문", "published_at": {"$date": {"$numberLong": "1734395400000"}}}
    paragraphs = {"title": "제목", "paragraphs": ["첫 문단.", "둘째 문단."]}
    objects = {"title": "제목", "body": [{"text": "첫 문단."}, {"text": "둘째 문단."}]}
    own = {"title": "제목", "text": "첫 문단.\n둘째 문단.", "sentences": [[0, 5], [6, 12]], "contents": ["다른 글"]}
    lines = (json.dumps(row, ensure_ascii=False) for row in (mongo, paragraphs, objects, own))
    found = list(read_documents(write("a.jsonl", "\n".join(lines))))
    assert (found[0].id, found[0].date, found[0].text) == ("65f1", "1734395400000", "본문")
    assert [(one.title, one.text) for one in found[1:]] == 3 * [("제목", "첫 문단.\n둘째 문단.")]


def test_fields_beside_their_format_are_read(write: Write, subtests: pytest.Subtests) -> None:
    text = "국회가 예산안을 의결했다."
    exports: dict[str, dict[str, Any]] = {
        "WordPress": {
            "id": 7,
            "title": {"rendered": "제목"},
            "content": {"rendered": f"<p>{text}</p>", "protected": False},
        },
        "Drupal": {"id": 7, "attributes": {"title": "제목", "body": {"value": f"<p>{text}</p>", "format": "html"}}},
        "Elasticsearch": {"_index": "news", "_id": "7", "_source": {"title": "제목", "body": text}},
        "XML": {"id": 7, "title": {"@lang": "ko", "#text": "제목"}, "body": {"#text": text}},
        "a headline of parts": {"id": 7, "headline": {"main": "제목", "kicker": None}, "body": text},
        "an article that has a value": {"id": 7, "article": {"title": "제목", "text": text, "value": "3"}},
    }
    for name, row in exports.items():
        with subtests.test(name):
            [found] = read_documents(write("a.json", json.dumps([row], ensure_ascii=False)))
            assert (found.id, found.title, found.text) == ("7", "제목", text)
