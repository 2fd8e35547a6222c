"""Readers: every format, NFC at the door, and one helpful line for every kind of bad input."""

import csv
import gzip
import io
import json
import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corpora.documents import FIELD_NAMES, Document, RejectedRecord, nfc, read_documents
from corpora.foundation.errors import DataError

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]
Row = dict[str, str]

ROWS = [
    {"id": "a1", "title": "금리 동결", "date": "2024-12-17", "text": "한국은행이 기준금리를 3.0%로 묶었다."},
    {"id": "a2", "title": "‘첫눈’, 내일", "date": "2024-12-18", "text": "서울에 첫눈이 “펑펑” 온다."},
]


def as_jsonl(rows: list[Row]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def as_json(rows: list[Row]) -> str:
    return json.dumps(rows, ensure_ascii=False)


def as_csv(rows: list[Row]) -> str:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def as_tsv(rows: list[Row]) -> str:
    return "".join("\t".join(row) + "\n" for row in [list(rows[0]), *(row.values() for row in rows)])


def as_txt(rows: list[Row]) -> str:
    return "\n\n".join(row["text"] for row in rows) + "\n"


FORMATS = {".jsonl": as_jsonl, ".json": as_json, ".csv": as_csv, ".tsv": as_tsv, ".txt": as_txt}


def nfd(text: str) -> str:
    return unicodedata.normalize("NFD", text)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_same_texts_in_order(write: Write, suffix: str, packed: bool) -> None:
    content = FORMATS[suffix](ROWS).encode()
    path = write(f"news{suffix}.gz", gzip.compress(content)) if packed else write(f"news{suffix}", content)
    documents = list(read_documents(path))
    assert [document.text for document in documents] == [row["text"] for row in ROWS]
    assert {document.source for document in documents} == {path.name}
    if suffix == ".txt":
        assert [document.id for document in documents] == [f"{path.name}:1", f"{path.name}:3"]
    else:
        assert [(d.id, d.title, d.date) for d in documents] == [(r["id"], r["title"], r["date"]) for r in ROWS]


def test_decomposed_hangul_comes_out_composed_also_in_column_names(write: Write, subtests: pytest.Subtests) -> None:
    for suffix in FORMATS:
        with subtests.test(suffix=suffix):
            rows = [{"본문" if name == "text" else name: value for name, value in row.items()} for row in ROWS]
            content = as_txt(ROWS) if suffix == ".txt" else FORMATS[suffix](rows)
            assert nfd(content) != content
            documents = list(read_documents(write(f"news{suffix}", nfd(content))))
            assert [document.text for document in documents] == [row["text"] for row in ROWS]
            assert all(nfc(text) == text for document in documents for text in (document.text, document.title))


def test_composition_leaves_typography_as_it_is(write: Write) -> None:
    text = "면적 84㎡, ２０２２년 “인용” …"
    assert next(read_documents(write("a.txt", text))).text == text


def test_a_byte_order_mark_is_not_text(write: Write) -> None:
    assert next(read_documents(write("a.csv", b"\xef\xbb\xbf" + as_csv(ROWS).encode()))).id == "a1"


def test_fields_are_found_under_the_names_newsrooms_use(write: Write, subtests: pytest.Subtests) -> None:
    for name, alias in [(field, column) for field, columns in FIELD_NAMES.items() for column in columns]:
        with subtests.test(name=name, alias=alias):
            record = {"text": "본문이다."} | {"쪽수": 3} if name != "text" else {"쪽수": 3}
            document = next(read_documents(write("a.jsonl", json.dumps(record | {alias: "값"}))))
            assert getattr(document, name) == "값"
            assert document.extra == {"쪽수": 3}


def test_a_field_named_by_the_caller_beats_the_usual_names(write: Write) -> None:
    path = write("a.jsonl", '{"text": "요약", "기사본문": "전문이다.", "no": 7}')
    assert list(read_documents(path, fields={"text": "기사본문", "id": "no"})) == [
        Document("전문이다.", "7", source="a.jsonl", extra={"text": "요약"})
    ]


def test_a_named_field_that_holds_no_text_is_refused(write: Write, fails: Fails, subtests: pytest.Subtests) -> None:
    for value in ["null", '["목록"]', '{"가": 1}']:
        with subtests.test(value=value):
            path = write("a.jsonl", f'{{"기사본문": {value}}}')
            with fails(DataError, f"{path}:1", "기사본문"):
                list(read_documents(path, fields={"text": "기사본문"}))


def test_a_misspelt_named_column_is_told_the_nearest_one(write: Write, fails: Fails) -> None:
    path = write("a.jsonl", '{"contents": "본문"}')
    with fails(DataError, f"{path}:1", "missing column 'contnets'; did you mean 'contents'?"):
        list(read_documents(path, fields={"text": "contnets"}))


def test_plain_text_is_cut_at_blank_lines_at_lines_or_not_at_all(write: Write, subtests: pytest.Subtests) -> None:
    for unit, texts, lines in [
        ("block", ["첫 단락\n둘째 줄", "둘째 단락"], [2, 6]),
        ("line", ["첫 단락", "둘째 줄", "둘째 단락"], [2, 3, 6]),
        ("file", ["\n첫 단락\n둘째 줄\n \n\n둘째 단락\n"], [1]),
    ]:
        with subtests.test(unit=unit, texts=texts, lines=lines):
            documents = list(read_documents(write("a.txt", "\n첫 단락\n둘째 줄\n \n\n둘째 단락\n"), text_unit=unit))
            assert [document.text for document in documents] == texts
            assert [document.id for document in documents] == [f"a.txt:{line}" for line in lines]


def test_windows_line_ends_cut_like_any_other(write: Write) -> None:
    path = write("a.txt", "가\r\n\r\n나\r\n")
    assert [document.text for document in read_documents(path)] == ["가", "나"]
    assert [document.text for document in read_documents(path, text_unit="line")] == ["가", "나"]


def test_a_record_of_an_array_is_called_by_its_number(write: Write) -> None:
    path = write("a.json", '[{"text": "첫 기사다."},\n\n{"text": "둘째 기사다."}]')
    assert [document.id for document in read_documents(path)] == ["a.json:1", "a.json:2"]


def test_a_separator_or_line_break_inside_quotes_is_text_in_csv_and_a_quote_is_text_in_tsv(write: Write) -> None:
    quoted = write("a.csv", 'id,text\n1,"쉼표, 따옴표 ""둘""\n그리고 줄"\n2,끝\n')
    assert [document.text for document in read_documents(quoted)] == ['쉼표, 따옴표 "둘"\n그리고 줄', "끝"]
    unquoted = write("a.tsv", 'id\ttext\n1\t"여는 따옴표뿐\n2\t끝\n')
    assert [document.text for document in read_documents(unquoted)] == ['"여는 따옴표뿐', "끝"]


GOOD = [{"id": "a", "text": "첫 기사다."}, {"id": "z", "text": "끝 기사다."}]
LINES = as_jsonl(GOOD).splitlines(keepends=True)


def between(bad: str) -> str:
    return LINES[0] + "\n" + bad + "\n" + LINES[1]  # the blank line counts: the bad record stands in line 3


BAD_RECORDS = {
    "truncated JSON": ("n.jsonl", between('{"id": "b", "text": "잘린'), 3, "not valid JSON"),
    "two objects in a line": ("n.jsonl", between('{"text": "가"} {"text": "나"}'), 3, "not valid JSON"),
    "no object": ("n.jsonl", between('["목록"]'), 3, "a list where an object is expected"),
    "endless nesting": ("n.jsonl", between("[" * 100_000), 3, "not valid JSON"),
    "endless number": ("n.jsonl", between('{"text": "가", "id": ' + "1" * 5_000 + "}"), 3, "not valid JSON"),
    "missing column": ("n.jsonl", between('{"id": "b", "txet": "본문"}'), 3, "no text column"),
    "null text": ("n.jsonl", between('{"id": "b", "text": null}'), 3, "no text column"),
    "empty object": ("n.jsonl", between("{}"), 3, "no text column"),
    "duplicate id": ("n.jsonl", between('{"id": "a", "text": "다른 기사다."}'), 3, "duplicate id 'a'"),
    "empty document": ("n.jsonl", between('{"id": "b", "text": " \\n"}'), 3, "empty document"),
    "lone surrogate": ("n.jsonl", between('{"id": "b", "text": "\\ud83d 반쪽"}'), 3, "lone surrogate"),
    "row too short": ("n.csv", "id,text\na,첫 기사다.\nb\nz,끝 기사다.\n", 3, "1 columns where the header has 2"),
    "row too long": ("n.csv", "id,text\na,첫 기사다.\nb,가,나\nz,끝 기사다.\n", 3, "3 columns where the header has 2"),
    "duplicate id in tsv": ("n.tsv", "id\ttext\na\t첫 기사다.\na\t다른\nz\t끝 기사다.\n", 3, "duplicate id 'a'"),
    "no object in an array": ("n.json", f'[{json.dumps(GOOD[0])}, "b", {json.dumps(GOOD[1])}]', 2, "a str where"),
    "null text in an array": (
        "n.json",
        f'[{json.dumps(GOOD[0])}, {{"text": null}}, {json.dumps(GOOD[1])}]',
        2,
        "no text",
    ),
    "after a record of two lines": ("n.csv", 'text\n첫 기사다.\n"두\n줄"\n""\n끝 기사다.\n', 5, "empty document"),
}


def test_a_bad_record_stops_strict_reading_with_its_line(write: Write, fails: Fails, subtests: pytest.Subtests) -> None:
    for name, content, line, what in BAD_RECORDS.values():
        with subtests.test(name=name, content=content, line=line, what=what):
            path = write(name, content)
            with fails(DataError, f"{path}:{line}: ", what):
                list(read_documents(path))


def test_lenient_reading_lists_a_bad_record_and_reads_on(write: Write, subtests: pytest.Subtests) -> None:
    for name, content, line, what in BAD_RECORDS.values():
        with subtests.test(name=name, content=content, line=line, what=what):
            path = write(name, content)
            rejected: list[RejectedRecord] = []
            texts = [document.text for document in read_documents(path, rejected=rejected)]
            assert (texts[0], texts[-1]) == ("첫 기사다.", "끝 기사다.")
            assert [record.where for record in rejected] == [f"{path}:{line}"]
            assert what in rejected[0].reason
            if name == "n.jsonl":
                assert rejected[0].record.strip() == content.splitlines()[line - 1][:200].strip()


def test_the_record_of_a_duplicate_is_the_second_one(write: Write) -> None:
    rejected: list[RejectedRecord] = []
    path = write("n.jsonl", between('{"id": "a", "text": "다른 기사다."}'))
    assert [document.id for document in read_documents(path, rejected=rejected)] == ["a", "z"]
    assert "다른" in rejected[0].record


def test_a_file_of_blanks_read_whole_is_an_empty_document(write: Write, fails: Fails) -> None:
    path = write("a.txt", " \n\n")
    with fails(DataError, f"{path}:1: ", "empty document"):
        list(read_documents(path, text_unit="file"))


KOREAN = "경제 기사의 본문이다. " * 2_000
PACKED = gzip.compress(as_jsonl([{"id": str(k), "text": f"{k**5} 번째 기사다."} for k in range(500)]).encode())
CP949_HINT = "it looks like CP949"
BAD_FILES: dict[str, tuple[str, bytes, str]] = {
    "CP949 jsonl": ("n.jsonl", '{"text": "본문"}'.encode("cp949"), CP949_HINT),
    "CP949 csv": ("n.csv", "id,본문\n1,기사\n".encode("cp949"), CP949_HINT),
    "CP949 gzip": ("n.txt.gz", gzip.compress(KOREAN.encode("cp949")), CP949_HINT),
    # Decoding goes block by block: one of these two has a block border in the middle of a syllable.
    "long CP949, even": ("n.txt", KOREAN.encode("cp949"), CP949_HINT),
    "long CP949, odd": ("n.txt", ("1" + KOREAN).encode("cp949"), CP949_HINT),
    "UTF-16": ("n.txt", "본문".encode("utf-16"), "not UTF-8 (byte 0xff)"),
    "zero bytes": ("n.jsonl", b"", "zero bytes"),
    "zero bytes gzip": ("n.jsonl.gz", b"", "zero bytes"),
    "truncated gzip": ("n.jsonl.gz", PACKED[: len(PACKED) // 2], "truncated gzip"),
    "gzip without its checksum": ("n.jsonl.gz", PACKED[:-8], "truncated gzip"),
    "damaged gzip": ("n.jsonl.gz", PACKED[:200] + b"\xff" * 40 + PACKED[240:], "broken or truncated gzip"),
    "no gzip at all": ("n.jsonl.gz", as_jsonl(GOOD).encode(), "broken or truncated gzip"),
    "truncated array": ("n.json", b'[{"text": "', "not valid JSON"),
    "object in place of an array": ("n.json", b'{"data": []}', "a dict where an array is expected"),
    "empty array": ("n.json", b"[]", "no documents in it"),
    "unknown suffix": ("n.hwp", b"1", "unknown format '.hwp'"),
    "unknown suffix, gzip": ("n.xml.gz", b"1", "unknown format '.xml'"),
    "no suffix": ("news", b"1", "unknown format ''"),
    "only .gz": ("news.gz", b"1", "unknown format"),
}


@pytest.mark.parametrize("lenient", [False, True], ids=["strict", "lenient"])
@pytest.mark.parametrize(("name", "content", "what"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_cannot_be_read_is_one_line_in_either_mode(
    write: Write, fails: Fails, name: str, content: bytes, what: str, lenient: bool
) -> None:
    path = write(name, content)
    with fails(DataError, path, what):
        list(read_documents(path, rejected=[] if lenient else None))


@pytest.mark.parametrize("lenient", [False, True], ids=["strict", "lenient"])
def test_a_missing_file_and_a_folder_are_one_line(tmp_path: Path, fails: Fails, lenient: bool) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    for name, what in {"missing.jsonl": "No such file", "folder.jsonl": "directory"}.items():
        with fails(DataError, tmp_path / name, what):
            list(read_documents(tmp_path / name, rejected=[] if lenient else None))


def test_a_quote_that_never_closes_does_not_swallow_the_records_after_it(write: Write, fails: Fails) -> None:
    path = write("n.csv", 'id,text\n1,"첫 기사다.\n2,둘째 기사다.\n3,셋째 기사다.\n')
    with fails(DataError, path):
        list(read_documents(path))


def test_reading_is_lazy(write: Write) -> None:
    documents = read_documents(write("n.jsonl", LINES[0] + "{\n"))
    assert next(documents).id == "a"
    with pytest.raises(DataError):
        next(documents)
