"""Reading exports: columns by any name, dates in any form, bad records set aside; titles made ready to compare."""

import doctest
import gzip
import json
import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest

import apps.stories.articles
from apps.stories.articles import LONGEST_TITLE, Article, clean_title, read_articles, to_articles
from corpora.documents import Document, RejectedRecord
from corpora.foundation.errors import DataError

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

BIGKINDS = "뉴스 식별자,일자,언론사,기고자,제목,통합 분류1,본문,URL"
ROW = "01100101.20210601,20210601,물빛일보,김하늘,“금리 3.5% 동결”,경제>금융_재테크,본문이다.,https://press.example/1"
READ = Article(
    "“금리 3.5% 동결”", "01100101.20210601", "본문이다.", "2021-06-01", "경제", "물빛일보", "https://press.example/1"
)


def test_a_title_loses_what_is_no_part_of_its_story() -> None:
    for title, cleaned in [
        ("[속보] 얀센 예약 마감(종합2보)", "얀센 예약 마감"),
        ("얀센 예약 마감 (2보)", "얀센 예약 마감"),
        ("【단독】 기준금리\u3000동결", "기준금리 동결"),
        ("\uff3b포토\uff3d 첫눈 [영상]", "첫눈"),
        ("국회 [본회의] 통과", "국회 통과"),
        ("[오늘의 운세]", "오늘의 운세"),
        ("[오늘의 운세] 2021년 6월 2일(수)", "오늘의 운세 2021년 6월 2일 수"),
        ("[만평] 6월 2일자", "만평 6월 2일자"),
        ("[행사] 6월 2일 벼리시", "6월 2일 벼리시"),
        ("[인사] (주)벼리", "(주)벼리"),
        ("[", ""),
        ("···", ""),
        ("", ""),
        ("[ ] …", ""),
        ("🎉🎉", ""),
        ("🎉축제 개막🎉", "🎉축제 개막🎉"),
        (unicodedata.normalize("NFD", "첫눈"), "첫눈"),
        ("첫\ud800눈", "첫\ufffd눈"),
    ]:
        assert clean_title(title) == cleaned, title


def test_a_title_of_any_length_is_cleaned_at_once() -> None:
    for title in ["가" * 100_000, "[" * 100_000 + "가", "[가" * 50_000, "(종합" * 30_000]:
        assert len(clean_title(title)) <= LONGEST_TITLE, title[:9]


def test_dates_come_to_the_minute_and_in_korean_time(write: Write) -> None:
    for value, date in [
        ("20210601", "2021-06-01"),
        ("44348", "2021-06-01"),
        ("2021.06.01. 오후 9:30", "2021-06-01T21:30"),
        ("2021-06-01T09:30:15+09:00", "2021-06-01T09:30"),
        ("Tue, 01 Jun 2021 20:30:00 GMT", "2021-06-02T05:30"),
        ("어제", ""),
    ]:
        [article] = read_articles(write("a.jsonl", json.dumps({"title": "첫눈", "date": value})))
        assert article.date == date, value


def test_a_bigkinds_export_is_read_by_its_own_columns(write: Write) -> None:
    for encoding in ["utf-8", "utf-8-sig", "cp949", "utf-16"]:
        path = write("export.csv", f"{BIGKINDS}\n{ROW}\n".encode(encoding))
        assert read_articles(path) == [READ], encoding


def test_tsv_jsonl_json_and_gzip_give_the_same(write: Write) -> None:
    record = dict(zip(BIGKINDS.split(","), ROW.split(","), strict=True))
    lines = json.dumps(record, ensure_ascii=False)
    paths = [
        write("a.tsv", "\n".join(text.replace(",", "\t") for text in (BIGKINDS, ROW))),
        write("a.jsonl", lines + "\n"),
        write("a.json", f"[{lines}]"),
        write("a.jsonl.gz", gzip.compress(lines.encode())),
    ]
    assert [read_articles(path) for path in paths] == [[READ]] * 4


def test_the_sample_of_kpfsbert_clustering_is_read(write: Write) -> None:
    path = write("newstrust.json", '[{"title":"기공식 개최","category":"경제"},{"title":"[인사]","category":"사회"}]')
    assert read_articles(path) == [
        Article("기공식 개최", "newstrust.json:1", category="경제"),
        Article("[인사]", "newstrust.json:2", category="사회"),
    ]


def test_lines_of_text_are_titles(write: Write) -> None:
    assert [article.title for article in read_articles(write("a.txt", "첫눈\n\n막차 연장\n"))] == ["첫눈", "막차 연장"]


def test_the_first_of_several_categories_counts(write: Write) -> None:
    path = write("a.jsonl", '{"title": "첫눈", "category": ["날씨", "사회"]}\n{"title": "막차", "category": null}\n')
    assert [article.category for article in read_articles(path)] == ["날씨", ""]


def test_columns_can_be_named(write: Write) -> None:
    path = write("a.csv", "헤드라인,제목,나온 날,누가\n첫눈,틀림,2021-06-01,물빛일보\n")
    columns = {"title": "헤드라인", "date": "나온 날", "publisher": "누가"}
    assert read_articles(path, columns=columns) == [Article("첫눈", "a.csv:2", date="2021-06-01", publisher="물빛일보")]


def test_bad_records_are_set_aside_with_place_and_reason(write: Write) -> None:
    good = [f'{{"id": "{k}", "title": "{title}"}}' for k, title in enumerate(["첫눈", "막차"])]
    bad = [
        "{",
        '{"id": "2"}',
        '{"id": "3", "title": "  "}',
        '{"id": "0", "title": "첫눈"}',
        '{"title": "\\ud800"}',
        "[]",
    ]
    path = write("a.jsonl", "\n".join([good[0], *bad, good[1]]))
    rejected: list[RejectedRecord] = []
    assert [article.title for article in read_articles(path, rejected=rejected)] == ["첫눈", "막차"]
    assert [Path(record.where).name for record in rejected] == [f"a.jsonl:{k}" for k in range(2, 8)]
    reasons = ["not valid JSON", "no title column", "empty document", "duplicate id '0'", "lone surrogate", "a list"]
    assert all(reason in record.reason for reason, record in zip(reasons, rejected, strict=True))


def test_without_a_list_for_bad_records_the_first_raises(write: Write, fails: Fails) -> None:
    path = write("a.jsonl", '{"title": "첫눈"}\n{\n')
    with fails(DataError, f"{path}:2", "not valid JSON"):
        read_articles(path)


def test_a_file_without_titles_is_a_one_line_error(write: Write, fails: Fails) -> None:
    for name, content, what in [
        ("a.csv", "이름,값\n가,나\n", "no titles"),
        ("a.json", "{}", "an array is expected"),
        ("a.json", '[{"headlin": "x", "n": 1}]', "its columns are 'headlin', 'n'"),
        ("a.jsonl", "", "zero bytes"),
        ("a.pdf", "x", "unknown format '.pdf'"),
    ]:
        path = write(name, content)
        with fails(DataError, path, what):
            read_articles(path, rejected=[])


def test_a_file_without_titles_says_what_is_wrong_with_its_first_record(write: Write, fails: Fails) -> None:
    for name, content, fix in [
        ("a.csv", "이름,값\n가,나\n", "name it: --column title=…"),
        ("a.jsonl", '{"title": " "}\n', "fill its title"),
        ("a.jsonl", "{\n", "correct the record; it may be truncated"),
        ("a.hwp", "x", "download or export it again"),
    ]:
        path = write(name, content)
        with fails(DataError, path, "no titles", fix):
            read_articles(path, rejected=[])


def test_wrong_columns_are_one_line_errors(write: Write, fails: Fails) -> None:
    path = write("a.csv", "제목,일자\n첫눈,20210601\n")
    with fails(DataError, path, "missing column '날자'"):
        read_articles(path, columns={"date": "날자"}, rejected=[])
    with fails(DataError, path, "missing column '헤드라인'"):
        read_articles(path, columns={"title": "헤드라인"}, rejected=[])
    with fails(DataError, "--column", "unknown field 'tilte'", "'title'"):
        read_articles(path, columns={"tilte": "제목"})


def test_a_missing_file_is_a_one_line_error(tmp_path: Path, fails: Fails) -> None:
    with fails(DataError, tmp_path / "none.json", "No such file"):
        read_articles(tmp_path / "none.json")


def test_titles_documents_and_articles_are_taken() -> None:
    document = Document("첫 문장.\n둘째.", "d1", title="제목", date="2021.6.1", section="사회")
    untitled = Document("첫 문장.\n둘째.", "d2")
    assert to_articles(["첫\ud800눈", document, untitled, Article("막차", date="2021-06-01")]) == [
        Article("첫\ufffd눈", "1"),
        Article("제목", "d1", "첫 문장.\n둘째.", "2021-06-01", "사회"),
        Article("첫 문장.", "d2"),
        Article("막차", "4", date="2021-06-01"),
    ]


def test_what_is_no_article_is_refused() -> None:
    for articles in ["하나뿐인 제목", [1], [None]]:
        with pytest.raises(ValueError, match=r"articles is one string|an article is"):
            to_articles(cast(Any, articles))


def test_the_examples_are_true() -> None:
    assert doctest.testmod(apps.stories.articles).failed == 0
