"""Zip archives, HWPX, WARC, Arrow and compressed files: accepted + rejected = records, and no bomb is unpacked."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from corpora.build import BuildConfig, build
from corpora.corpus import read_corpus
from corpora.documents import Document, RejectedRecord, read_documents
from corpora.foundation.errors import DataError

Write = Callable[[str, str | bytes], Path]

TEXTS = [f"벼리시 의회가 {k}번째 본회의에서 예산 {k * 37}억 원을 의결했다." for k in range(4)]


def zipped(files: dict[str, str | bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def read(path: Path) -> tuple[list[Document], list[RejectedRecord]]:
    rejected: list[RejectedRecord] = []
    return list(read_documents(path, rejected=rejected)), rejected


def test_the_files_of_a_zip_archive_are_read_in_order_and_a_bad_one_costs_itself(write: Write, tmp_path: Path) -> None:
    path = write(
        "a.zip",
        zipped(
            {
                "2021/b.jsonl": json.dumps({"text": TEXTS[1]}) + "\n{\n" + json.dumps({"id": "x", "text": TEXTS[2]}),
                "2021/a.html": f"<p>{TEXTS[0]}</p>",
                "2021/c.json": "[",
                "2021/d.json.gz": gzip.compress(json.dumps([{"text": TEXTS[3]}]).encode()),
                "2021/photo.jpg": b"\xff\xd8",
                "__MACOSX/._b.jsonl": "x",
            }
        ),
    )
    documents, rejected = read(path)
    assert [document.text for document in documents] == TEXTS
    assert [document.id for document in documents] == [
        "a.zip!2021/a.html:1",
        "a.zip!2021/b.jsonl:1",
        "x",
        "a.zip!2021/d.json.gz:1",
    ]
    assert [record.where.rpartition("/")[2] for record in rejected] == ["b.jsonl:2", "c.json:1"]
    manifest = build([path], tmp_path / "out", BuildConfig(held_out=0))
    assert [document.id for document in read_corpus(tmp_path / "out")] == [
        "a.zip!2021/a.html:1",
        "a.zip!2021/b.jsonl:1",
        "a.zip#x",
        "a.zip!2021/d.json.gz:1",
    ]
    assert (manifest.totals.num_read, manifest.totals.num_rejected) == (4, 2)
    lines = (tmp_path / "out" / "rejected.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["where"] for line in lines] == ["a.zip!2021/b.jsonl:2", "a.zip!2021/c.json:1"]


def test_what_unpacks_to_more_than_text_does_is_refused(write: Write, subtests: pytest.Subtests) -> None:
    line = json.dumps({"text": TEXTS[0]}).encode() + b"\n"
    bomb = line * (1 + (20 << 20) // len(line))
    with subtests.test(kind="gz"), pytest.raises(DataError, match="200 times its size"):
        list(read_documents(write("a.jsonl.gz", gzip.compress(bomb))))
    with subtests.test(kind="zip"):
        documents, rejected = read(write("a.zip", zipped({"a.jsonl": bomb, "b.jsonl": line})))
        assert len(documents) == len(rejected) == 1
        assert "unpacks to more than" in rejected[0].reason
    with subtests.test(kind="damaged"):
        content = bytearray(zipped({"a.txt": TEXTS[0], "b.txt": TEXTS[1]}))
        content[45] ^= 255
        documents, rejected = read(write("a.zip", bytes(content)))
        assert ([document.text for document in documents], len(rejected)) == ([TEXTS[1]], 1)


def test_paragraphs_of_hwpx_are_lines(write: Write) -> None:
    name = "http://www.hancom.co.kr/hwpml/2011/paragraph"
    lines = "".join(f"<hp:p><hp:run><hp:t>{text[:9]}</hp:t><hp:t>{text[9:]}</hp:t></hp:run></hp:p>" for text in TEXTS)
    section = f'<?xml version="1.0"?><hs:sec xmlns:hs="s" xmlns:hp="{name}">{lines}</hs:sec>'
    documents, _ = read(
        write("보도자료.hwpx", zipped({"mimetype": "application/hwp+zip", "Contents/section0.xml": section}))
    )
    assert [(document.title, document.text) for document in documents] == [("보도자료", "\n".join(TEXTS))]


def test_paragraphs_of_docx_are_lines_without_deleted_and_repeated_text(write: Write) -> None:
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    box = "<w:txbxContent><w:p><w:r><w:t>상자</w:t></w:r></w:p></w:txbxContent>"
    choice = f"<c:AlternateContent><c:Choice>{box}</c:Choice><c:Fallback>{box}</c:Fallback></c:AlternateContent>"
    parts = (
        f"<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>{TEXTS[0][:9]}</w:t></w:r>"
        "<w:del><w:r><w:delText>지운 글</w:delText></w:r></w:del>"
        f"<w:ins><w:r><w:t>{TEXTS[0][9:]}</w:t></w:r></w:ins></w:p>",
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>칸</w:t><w:tab/><w:t>둘</w:t><w:br/><w:t>줄</w:t></w:r></w:p></w:tc></w:tr>",
        "</w:tbl>",
        f"<w:p><w:r><w:t>앞</w:t>{choice}<w:t>뒤</w:t></w:r></w:p>",
    )
    body = f'<w:document xmlns:w="{word}" xmlns:c="c"><w:body>{"".join(parts)}</w:body></w:document>'
    documents, _ = read(write("보도자료.docx", zipped({"word/document.xml": body, "word/footer1.xml": body})))
    expected = f"{TEXTS[0]}\n칸\t둘\n줄\n앞뒤\n상자"
    assert [(document.title, document.text) for document in documents] == [("보도자료", expected)]


def test_office_documents_that_are_none_are_one_bad_record(write: Write) -> None:
    deep = "<p>" + "<r>" * 100_000 + "<t>깊다</t>" + "</r>" * 100_000 + "</p>"
    for suffix, part in ((".docx", "word/document.xml"), (".hwpx", "Contents/section0.xml")):
        for content, what in (
            (zipped({"a.xml": "<a/>"}), "it has no"),
            (zipped({part: "<p><t>열림"}), "not well-formed"),
            (zipped({part: '<!DOCTYPE a [<!ENTITY b "c">]><p>&b;</p>'}), "not well-formed"),
            (b"PK", "not a zip archive"),
        ):
            documents, rejected = read(write(f"a{suffix}", content))
            assert documents == []
            assert [what in bad.reason for bad in rejected] == [True], (suffix, what)
        documents, rejected = read(write(f"deep{suffix}", zipped({part: deep})))
        assert [document.text for document in documents] == ["깊다"]


def test_pages_of_warc_are_records_and_a_cut_file_ends_with_a_bad_one(write: Write) -> None:
    warcio = pytest.importorskip("warcio.warcwriter")
    headers = pytest.importorskip("warcio.statusandheaders").StatusAndHeaders
    stream = io.BytesIO()
    writer = warcio.WARCWriter(stream, gzip=True)
    for k, kind in enumerate(("text/html; charset=utf-8", "image/png", "text/html")):
        http = headers("200 OK", [("Content-Type", kind)], protocol="HTTP/1.0")
        page = io.BytesIO(f"<p>{TEXTS[k]}</p>".encode())
        writer.write_record(
            writer.create_warc_record(f"http://press.example/{k}", "response", payload=page, http_headers=http)
        )
    documents, rejected = read(write("a.warc.gz", stream.getvalue()))
    assert [(document.text, document.url) for document in documents] == [
        (TEXTS[0], "http://press.example/0"),
        (TEXTS[2], "http://press.example/2"),
    ]
    assert rejected == []
    documents, rejected = read(write("b.warc.gz", stream.getvalue()[:-60]))
    assert len(documents) + len(rejected) == 2


def test_a_saved_data_set_is_read_without_its_descriptions(tmp_path: Path) -> None:
    from datasets import Dataset

    Dataset.from_list([{"text": text, "title": f"{k}호"} for k, text in enumerate(TEXTS)]).save_to_disk(tmp_path / "in")
    build([tmp_path / "in"], tmp_path / "out", BuildConfig(held_out=0))
    assert [(document.title, document.text) for document in read_corpus(tmp_path / "out")] == [
        (f"{k}호", text) for k, text in enumerate(TEXTS)
    ]
