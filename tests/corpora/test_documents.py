"""Readers: every format, NFC at the door, and one helpful line for every kind of bad input."""

import csv
import gzip
import io
import json
import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpora.characters import nfc
from corpora.documents import Document, RejectedRecord, read_documents, read_files, read_texts, report_rejected
from corpora.foundation.errors import DataError, UsageError
from corpora.readers.fields import FIELD_NAMES

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
    "null text": ("n.jsonl", between('{"id": "b", "text": null}'), 3, "column 'text' holds no text"),
    "missing value of pandas": ("n.jsonl", between('{"id": "b", "text": NaN}'), 3, "column 'text' holds no text"),
    "list as text": ("n.jsonl", between('{"id": "b", "text": ["본문"]}'), 3, "column 'text' holds no text"),
    "empty object": ("n.jsonl", between("{}"), 3, "no text column"),
    "duplicate": ("n.jsonl", between('{"id": "a", "text": "첫 기사다."}'), 3, "duplicate id 'a'"),
    "undecodable line": ("n.jsonl", between('{"id": "b", "text": "\udcff"}'), 3, "not UTF-8 (byte 0xff)"),
    "empty document": ("n.jsonl", between('{"id": "b", "text": " \\n"}'), 3, "empty document"),
    "lone surrogate": ("n.jsonl", between('{"id": "b", "text": "\\ud83d 반쪽"}'), 3, "lone surrogate"),
    "row too short": ("n.csv", "id,text\na,첫 기사다.\nb\nz,끝 기사다.\n", 3, "1 columns where the header has 2"),
    "row too long": ("n.csv", "id,text\na,첫 기사다.\nb,가,나\nz,끝 기사다.\n", 3, "3 columns where the header has 2"),
    "duplicate in tsv": ("n.tsv", "id\ttext\na\t첫 기사다.\na\t첫 기사다.\nz\t끝 기사다.\n", 3, "duplicate id 'a'"),
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
            path = write(name, content.encode("utf-8", "surrogateescape"))
            with fails(DataError, f"{path}:{line}: ", what):
                list(read_documents(path))


def test_lenient_reading_lists_a_bad_record_and_reads_on(write: Write, subtests: pytest.Subtests) -> None:
    for name, content, line, what in BAD_RECORDS.values():
        with subtests.test(name=name, content=content, line=line, what=what):
            path = write(name, content.encode("utf-8", "surrogateescape"))
            rejected: list[RejectedRecord] = []
            texts = [document.text for document in read_documents(path, rejected=rejected)]
            assert (texts[0], texts[-1]) == ("첫 기사다.", "끝 기사다.")
            assert [record.where for record in rejected] == [f"{path}:{line}"]
            assert what in rejected[0].reason
            if name == "n.jsonl":
                raw = content.splitlines()[line - 1].replace("\udcff", "\ufffd")
                assert rejected[0].record.strip() == raw[:200].strip()


def test_equal_ids_with_other_content_are_other_documents(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    """Spreadsheets keep 15 digits of an id."""
    rows = [("1.1001E+15", title) for title in ("가", "나", "다", "나")]
    table = "뉴스 식별자,제목,본문\n" + "".join(f"{id_},{title},본문이다.\n" for id_, title in rows)
    for name, content in {"n.csv": table, "n.tsv": table.replace(",", "\t")}.items():
        caplog.clear()
        rejected: list[RejectedRecord] = []
        documents = list(read_documents(write(name, content), rejected=rejected))
        assert [document.title for document in documents] == ["가", "나", "다", "나"], name
        assert [d.id for d in documents] == ["1.1001E+15", "1.1001E+15~3", "1.1001E+15~4", "1.1001E+15~5"], name
        assert rejected == [], name
        assert len(caplog.messages) == 1, name


def test_the_record_of_a_duplicate_is_the_second_one(write: Write) -> None:
    rejected: list[RejectedRecord] = []
    path = write("n.jsonl", between('{"id": "a", "text": "첫 기사다.", "n": 2}'))
    assert [document.id for document in read_documents(path, rejected=rejected)] == ["a", "z"]
    assert '"n": 2' in rejected[0].record


def test_a_file_of_blanks_read_whole_is_an_empty_document(write: Write, fails: Fails) -> None:
    path = write("a.txt", " \n\n")
    with fails(DataError, f"{path}:1: ", "empty document"):
        list(read_documents(path, text_unit="file"))


PACKED = gzip.compress(as_jsonl([{"id": str(k), "text": f"{k**5} 번째 기사다."} for k in range(500)]).encode())
BAD_FILES: dict[str, tuple[str, bytes, str]] = {
    "zero bytes": ("n.jsonl", b"", "zero bytes"),
    "zero bytes gzip": ("n.jsonl.gz", b"", "zero bytes"),
    "no gzip at all": ("n.jsonl.gz", as_jsonl(GOOD).encode(), "not a .gz file, or broken"),
    "truncated array": ("n.json", b'[{"text": "', "not valid JSON"),
    "object in place of an array": ("n.json", b'{"data": {}}', "a dict where an array is expected"),
    "two lists in one object": ("n.json", b'{"a": [{}], "b": [{}]}', "2 lists of records in one object"),
    "no parquet": ("n.parquet", b"PAR0", "not a Parquet file"),
    "empty array": ("n.json", b"[]", "no documents in it"),
    "unknown suffix": ("n.pdf", b"1", "unknown format '.pdf'; export its text as .txt"),
    "unknown suffix, gzip": ("n.doc.gz", b"1", "unknown format '.doc'"),
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


def test_what_can_be_read_of_a_broken_archive_is_read(write: Write, subtests: pytest.Subtests) -> None:
    for name, content in {"cut": PACKED[: len(PACKED) // 2], "no checksum": PACKED[:-8]}.items():
        with subtests.test(name=name):
            rejected: list[RejectedRecord] = []
            documents = list(read_documents(write("n.jsonl.gz", content), rejected=rejected))
            assert [document.id for document in documents] == [str(k) for k in range(len(documents))]
            assert len(documents) > 50
            assert "cut off here" in rejected[-1].reason


def test_a_damaged_archive_is_refused(write: Write, fails: Fails) -> None:
    path = write("n.jsonl.gz", PACKED[: len(PACKED) // 2] + b"\xff" * 40 + PACKED[len(PACKED) // 2 + 40 :])
    with fails(DataError, path, "the compressed file is damaged"):
        list(read_documents(path, rejected=[]))


def test_encodings_and_compressions_of_windows_are_read(write: Write, subtests: pytest.Subtests) -> None:
    content = as_csv(ROWS)
    for name, data in {
        "cp949": content.replace("“펑펑”", "펑펑").encode("cp949"),
        "utf-16": content.encode("utf-16"),
        "gzip of cp949": gzip.compress(content.encode("cp949")),
    }.items():
        with subtests.test(name=name):
            path = write("a.csv.gz" if "gzip" in name else "a.csv", data)
            assert [document.title for document in read_documents(path)] == [row["title"] for row in ROWS]


def test_wrapped_arrays_and_parquet_are_read(tmp_path: Path, write: Write) -> None:
    wrapped = write("a.json", json.dumps({"status": "ok", "response": {"total": 2, "items": ROWS}}))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    for path in (wrapped, tmp_path / "a.parquet"):
        assert [(d.id, d.text) for d in read_documents(path)] == [(r["id"], r["text"]) for r in ROWS], path


def test_columns_are_found_in_any_spelling(write: Write) -> None:
    header = "뉴스 식별자,일자,언론사,기고자,제목,통합 분류1,본문,URL"
    bigkinds = f"{header}\n01100,20210601,신문,김하늘,제목,정치>국회,본문이다.,u\n"
    [document] = read_documents(write("a.csv", bigkinds))
    assert (document.id, document.date, document.byline) == ("01100", "20210601", "김하늘")
    assert (document.title, document.section, document.text) == ("제목", "정치>국회", "본문이다.")
    for header in ("Text", "TEXT", " 댓글 내용", "댓글내용", "Review", "문장", "뭐라고든"):
        assert next(read_documents(write("b.csv", f"{header}\n본문이다.\n"))).text == "본문이다.", header


def test_a_missing_text_column_names_what_is_there(write: Write, fails: Fails) -> None:
    path = write("a.csv", "가,나\n1,2\n")
    with fails(DataError, f"{path}:2", "no text column", "its columns are '가', '나'"):
        list(read_documents(path))


def test_markup_is_taken_out_of_texts_and_titles(write: Write) -> None:
    record = {"title": "<b>&quot;새 다리&quot;</b> 열린다", "text": "<p>첫 줄.</p><script>x</script><p>둘째 줄.</p>"}
    [document] = read_documents(write("a.jsonl", json.dumps(record)))
    assert (document.title, document.text) == ('"새 다리" 열린다', "첫 줄.\n\n둘째 줄.")


def test_accepted_and_rejected_are_the_records_of_the_file(write: Write, subtests: pytest.Subtests) -> None:
    faults = {
        ".jsonl": ["{", '{"id": "1"}', "\udcff", '{"text": ""}', "[1]"],
        ".csv": ['x,"열린', "x", "x,y,z", "\udcff,본문", 'x,"가" 나', "x,"],
        ".tsv": ["x", "x\ty\tz", "\udcff\t본문", "x\t"],
    }
    for suffix, lines in faults.items():
        for fault in lines:
            with subtests.test(suffix=suffix, fault=fault):
                delimiter = {".csv": ",", ".tsv": "\t"}.get(suffix)
                good = [f"{k}{delimiter}본문 {k}" if delimiter else f'{{"text": "본문 {k}"}}' for k in range(200)]
                header = [f"id{delimiter}text"] if delimiter else []
                for position in (0, 3, 100, 200):
                    content = "\n".join([*header, *good[:position], fault, *good[position:]]) + "\n"
                    rejected: list[RejectedRecord] = []
                    path = write(f"n{suffix}", content.encode("utf-8", "surrogateescape"))
                    documents = list(read_documents(path, rejected=rejected))
                    assert len(documents) + len(rejected) == 201
                    assert len(rejected) <= 1


def test_reading_is_lazy(write: Write) -> None:
    documents = read_documents(write("n.jsonl", LINES[0] + "{\n"))
    assert next(documents).id == "a"
    with pytest.raises(DataError):
        next(documents)


def test_a_table_without_a_header_is_read_by_the_numbers_of_its_columns(write: Write) -> None:
    path = write("a.tsv", "a1\t기준금리를 묶었다.\na2\t물가가 올랐다.\n")
    documents = list(read_documents(path, fields={"id": "1", "text": "2"}))
    assert [(document.id, document.text) for document in documents] == [
        ("a1", "기준금리를 묶었다."),
        ("a2", "물가가 올랐다."),
    ]


def test_a_file_that_cannot_be_read_costs_itself_alone(
    write: Write, tmp_path: Path, fails: Fails, capsys: pytest.CaptureFixture[str]
) -> None:
    write("b/2.jsonl", as_jsonl(ROWS))
    write("b/1.txt", "")
    write("b/deep/3.json", "{")
    single = write("a.csv", as_csv(ROWS[:1]) + "a3\n")
    rejected: list[RejectedRecord] = []
    found = list(read_files([tmp_path / "b", single, single], rejected))
    assert [document.id for document in found] == ["a1", "a2", "a1"]
    assert [bad.where for bad in rejected] == [
        f"{tmp_path / 'b/1.txt'}",
        f"{tmp_path / 'b/deep/3.json'}",
        f"{single}:3",
    ]
    assert report_rejected(rejected) == 1
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith(bad.where) for line, bad in zip(lines, rejected, strict=True))
    assert lines[0].endswith("download or export it again")
    with fails(DataError, tmp_path / "b/1.txt"):
        list(read_files([tmp_path / "b/1.txt"], rejected))
    with fails(UsageError, tmp_path / "c", "no such file"):
        read_files([single, tmp_path / "c"], rejected)


def test_text_files_are_read_one_by_one(write: Write, tmp_path: Path) -> None:
    write("1.txt", "가\n")
    write("2.txt", b"\xff\xfe\x00")
    write("3.txt", "나\n")
    write("4.jsonl", as_jsonl(ROWS))
    rejected: list[RejectedRecord] = []
    assert list(read_texts([tmp_path], rejected)) == [
        (f"{tmp_path / '1.txt'}", "가\n"),
        (f"{tmp_path / '3.txt'}", "나\n"),
    ]
    assert [bad.where for bad in rejected] == [f"{tmp_path / '2.txt'}:1"]


def test_a_table_under_the_name_of_a_text_is_named(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    assert len(list(read_documents(write("a.txt", "id\t제목\t본문\n1\t가\t나\n"), text_unit="line"))) == 2
    assert "rename it to .tsv" in caplog.text
    caplog.clear()
    assert len(list(read_documents(write("b.txt", "탭이\t있는 글\n"), text_unit="line"))) == 1
    assert not caplog.text
