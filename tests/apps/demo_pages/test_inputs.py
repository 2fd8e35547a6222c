"""Uploaded files: they are read, or refused with one plain sentence."""

import io
import json
import re
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from apps.demo_pages.inputs import (
    MAX_ARTICLE,
    MAX_ARTICLES,
    MAX_UPLOAD_MB,
    InputError,
    ReadFile,
    check_text,
    explain,
    explain_rejected,
    read_article_file,
    read_comment_file,
    read_title_file,
)
from corpora.foundation.errors import CheckpointError, SuiteError, UsageError
from corpora.foundation.texts import Texts

KOREAN, ENGLISH = Texts("ko", "demo"), Texts("en", "demo")
READERS: tuple[Callable[[str, bytes], ReadFile], ...] = (read_article_file, read_title_file, read_comment_file)


def refusal(read: Callable[[str, bytes], ReadFile], name: str, content: bytes, texts: Texts = KOREAN) -> str:
    with pytest.raises((InputError, SuiteError)) as caught:
        read(name, content)
    return explain(caught.value, texts)


def test_documents_of_word_are_articles_alone() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(
            "word/document.xml", "<d><p><t>국회가 예산안을 의결했다.</t></p><p><t>정부는 공포한다.</t></p></d>"
        )
    [item] = read_article_file("보도자료.docx", buffer.getvalue()).records
    assert (item.title, item.text) == ("보도자료", "국회가 예산안을 의결했다.\n정부는 공포한다.")
    assert "읽을 수 없는 형식" in refusal(read_title_file, "보도자료.docx", buffer.getvalue())


def test_files_that_cannot_be_used() -> None:
    for name, content, expected in [
        ("a.pdf", b"x", "a.pdf은(는) 읽을 수 없는 형식입니다"),
        ("a", b"x", "읽을 수 없는 형식"),
        ("a.txt", b"", "a.txt에 내용이 없습니다"),
        ("a.txt", b"a" * (MAX_UPLOAD_MB * 1_000_000 + 1), "파일이 너무 큽니다(20.0 MB)"),
        ("a.csv", "번호,값\n1,2\n".encode(), "열을 찾지 못했습니다|글을 찾지 못했습니다"),
        ("a.json", b'{"text": "x"}', "JSON이 깨져"),
    ]:
        for read in READERS:
            assert re.search(expected.replace("(", r"\(").replace(")", r"\)"), refusal(read, name, content)), (
                read.__name__,
                name,
                expected,
            )
            # In English there is the same message, and nothing of the temporary folder in either.
            said = re.sub("본문|제목|'[^']*'", "", refusal(read, name, content, ENGLISH))
            assert not re.search("[가-힣]", said), (read.__name__, name, expected)
            assert "/tmp" not in refusal(read, name, content), (read.__name__, name, expected)


def test_an_excel_file_that_is_none_and_a_single_title_are_refused() -> None:
    assert "엑셀 파일이 아니거나" in refusal(read_title_file, "a.xlsx", b"PK\x03\x04broken")
    assert "둘 이상" in refusal(read_title_file, "a.txt", "제목 하나\n".encode())


def test_a_path_in_a_name_leads_nowhere() -> None:
    found = read_article_file("../../etc/뉴스.txt", "첫 문장이다.".encode())
    assert found.records[0].source == ".._.._etc_뉴스.txt"


def test_articles_keep_their_own_characters() -> None:
    text = unicodedata.normalize("NFD", "한글 기사다. 두 문장이다.")
    lines = [{"id": "가", "title": "제목", "text": text}, {"text": "다른 기사다."}]
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    found = read_article_file("뉴스.jsonl", content)
    assert [(i.id, i.text, i.title, i.source, i.line) for i in found.records] == [
        ("가", text, "제목", "뉴스.jsonl", 1),
        ("뉴스.jsonl:2", "다른 기사다.", "", "뉴스.jsonl", 2),
    ]


def test_bad_records_are_set_aside_with_their_place() -> None:
    content = '{"text": "좋다."}\n{"text": \n{"title": "본문 없음"}\n'.encode()
    found = read_article_file("a.jsonl", content)
    assert len(found.records) == 1
    shown = [explain_rejected(record, KOREAN) for record in found.rejected]
    assert shown[0].startswith("2번째 레코드: JSON이 깨져")
    assert shown[1].startswith("3번째 레코드: 본문이나 제목이 든 열을")


def test_other_formats_are_read() -> None:
    assert read_article_file("a.csv", "제목,본문\n가,나다.\n".encode()).records[0].title == "가"
    assert [a.title for a in read_title_file("a.csv", "제목,분류\n가나,정치\n다라,경제\n".encode()).records] == [
        "가나",
        "다라",
    ]
    assert read_comment_file("a.txt", "좋아요\n\n싫어요\n".encode()).records == ("좋아요", "싫어요")


def test_too_many_and_too_long_are_refused() -> None:
    many = b'{"text": "a."}\n' * (MAX_ARTICLES + 1)
    assert "5,000건까지" in refusal(read_article_file, "a.jsonl", many)
    assert "너무 깁니다(2,000,001자)" in refusal(read_article_file, "a.txt", b"a" * (MAX_ARTICLE + 1))
    with pytest.raises(InputError):
        check_text("  \n", 10)
    assert check_text(" 가 ", 10) == " 가 "


def test_other_errors_are_plain_too() -> None:
    for error, expected in [
        (CheckpointError(Path("/x/모델"), "no config.json", "restore it"), "모델 모델을 쓸 수 없습니다"),
        (UsageError("runtime onnx-int8", "onnx not installed", "install"), "왼쪽에서 torch를 고르세요"),
        (ValueError("no blank in the text"), "빈칸이 없습니다"),
        (ValueError("the text has 700 tokens and the model reads 512"), "700토큰"),
        (RuntimeError("segmentation of /secret/path"), "예상하지 못한 오류가 발생했습니다(RuntimeError)"),
    ]:
        assert expected in explain(error, KOREAN), error
        assert "/secret" not in explain(error, KOREAN), error
