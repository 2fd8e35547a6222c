"""Encodings and compressions are recognized; a bad line costs one line."""

import gzip
import io
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest

from corpora.documents import RejectedRecord, read_documents
from corpora.foundation.errors import DataError
from corpora.readers.decoding import ENCODINGS, BadLine, format_of, read_decoded, read_lines

Fails = Callable[..., AbstractContextManager[None]]
Write = Callable[[str, str | bytes], Path]
LINES = ["첫 줄이다.\n", "둘째 줄이다.\r\n", "\n", "끝 줄"]
TEXT = "".join(LINES)


def compressed(path: Path, content: bytes) -> None:
    with pa.output_stream(str(path), compression="zstd") as file:
        file.write(content)


def test_every_encoding_gives_the_same_lines(write: Write, subtests: pytest.Subtests) -> None:
    for name, content in {
        "utf-8": TEXT.encode(),
        "utf-8 with mark": TEXT.encode("utf-8-sig"),
        "utf-16 with mark": TEXT.encode("utf-16"),
        "utf-16 big endian": b"\xfe\xff" + TEXT.encode("utf-16-be"),
        "utf-16 of ASCII without mark": "a,b\n가".encode("utf-16-le"),
        "cp949": TEXT.encode("cp949"),
    }.items():
        with subtests.test(name=name):
            expected = ["a,b\n", "가"] if name.endswith("without mark") else LINES
            assert list(read_decoded(write("a.txt", content))) == expected


def test_the_standard_input_has_the_encodings_of_files(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    streams = {
        "utf-8": TEXT.encode(),
        "utf-8 with mark": TEXT.encode("utf-8-sig"),
        "utf-16 with mark": TEXT.encode("utf-16"),
        "cp949": TEXT.encode("cp949"),
    }
    for name, content in streams.items():
        with subtests.test(name=name):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)), "ascii"))
            assert list(read_decoded(Path("-"))) == LINES
    for encoding in ENCODINGS[1:]:
        content = TEXT.encode("utf-16-le" if encoding == "utf-16" else encoding)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)), "ascii"))
        assert list(read_decoded(Path("-"), encoding)) == LINES
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO("가\n".encode())), "ascii"))
    assert list(read_decoded(Path("-"), "cp949")) != ["가\n"]
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    assert list(read_decoded(Path("-"))) == LINES
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert list(read_documents(Path("-"))) == []


def test_a_bad_line_of_the_standard_input_costs_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"ASCII\n" + "가\n".encode() + b"\xff\n" + "나\n".encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)), "ascii"))
    rejected: list[RejectedRecord] = []
    documents = read_documents(Path("-"), text_unit="line", rejected=rejected)
    assert [(document.id, document.text) for document in documents] == [("-:1", "ASCII"), ("-:2", "가"), ("-:4", "나")]
    assert [(bad.where, bad.reason) for bad in rejected] == [("-:3", "not UTF-8 (byte 0xff)")]


def test_lines_of_the_standard_input_are_read_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="ascii") as stdin, os.fdopen(writing, "wb", buffering=0) as out:
        monkeypatch.setattr("sys.stdin", stdin)
        lines = read_decoded(Path("-"))
        for line in ("first\n", "둘째\n", "셋째\n"):
            out.write(line.encode("cp949"))
            assert next(lines) == line


def test_carriage_returns_alone_end_lines(write: Write, subtests: pytest.Subtests) -> None:
    for codec in ("utf-8", "utf-8-sig", "cp949", "utf-16"):
        with subtests.test(codec):
            found = list(read_decoded(write("a.csv", "제목,본문\r가,나\r다,라".encode(codec))))
            assert [str(line).rstrip("\r\n") for line in found] == ["제목,본문", "가,나", "다,라"]
    kept = list(read_decoded(write("b.csv", "제목,본문\n가\r나,다\n".encode())))
    assert kept == ["제목,본문\n", "가\r나,다\n"]
    packed = write("c.csv.gz", gzip.compress("제목\r가\r".encode()))
    assert list(read_decoded(packed)) == ["제목\n", "가\n"]


def test_every_compression_gives_the_same_lines(write: Write, tmp_path: Path) -> None:
    gz = write("a.txt.gz", gzip.compress(TEXT.encode()[:20]) + gzip.compress(TEXT.encode()[20:]))
    compressed(tmp_path / "a.txt.zst", TEXT.encode("cp949"))
    assert list(read_decoded(gz)) == list(read_decoded(tmp_path / "a.txt.zst")) == LINES
    assert format_of(gz) == format_of(tmp_path / "a.txt.zst") == ".txt"


def test_cp949_is_read_with_a_note(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        list(read_decoded(path := write("a.txt", TEXT.encode("cp949"))))
    assert caplog.messages == [f"{path}: not UTF-8, read as CP949"]


def test_one_line_of_cp949_behind_megabytes_of_ascii_decides(write: Write, subtests: pytest.Subtests) -> None:
    ascii_lines = b"{}\n" * 700_001
    for name, content in {"last": b"", "with more behind it": ascii_lines}.items():
        for suffix, pack in ((".txt", bytes), (".txt.gz", gzip.compress)):
            with subtests.test(name=name + suffix):
                path = write(f"a{suffix}", pack(ascii_lines + "첫 줄이다.\n".encode("cp949") + content))
                assert [line for line in read_decoded(path) if line != "{}\n"] == ["첫 줄이다.\n"]


def test_a_bad_byte_costs_its_line(write: Write, subtests: pytest.Subtests) -> None:
    good = "가나다라 마바사\n".encode()
    for name, broken in {
        "stray": b"\xff\n",
        "cut": "가".encode()[:2] + b"\n",
        "latin": b"\xe9t\xe9 \xe0 \xe9t\xe9\n",
    }.items():
        for position in (0, 1, 500, 999):
            with subtests.test(name=name, position=position):
                lines = [good] * 1000
                lines[position] = broken
                read = list(read_decoded(write("a.txt", b"".join(lines))))
                assert [k for k, line in enumerate(read) if isinstance(line, BadLine)] == [position]
                assert len(read) == 1000


def test_a_file_cut_inside_a_character_is_utf8_with_one_bad_line(write: Write) -> None:
    read = list(read_decoded(write("a.txt", ("가나다\n" * 50).encode()[:-2])))
    assert [isinstance(line, BadLine) for line in read] == [False] * 49 + [True]


def test_a_cut_archive_gives_what_is_there_and_one_bad_line(write: Write, tmp_path: Path) -> None:
    content = "".join(f"{number} 줄\n" for number in range(400_000)).encode()
    packed = gzip.compress(content)
    compressed(tmp_path / "a.txt.zst", content)
    whole = (tmp_path / "a.txt.zst").read_bytes()
    for path in (write("a.txt.gz", packed[: len(packed) // 2]), write("b.txt.zst", whole[: len(whole) // 2])):
        *read, last = read_decoded(path)
        assert isinstance(last, BadLine), path
        assert "cut off" in last.reason, path
        complete = [line for line in read if isinstance(line, str) and line.endswith("\n")]
        assert complete == [f"{number} 줄\n" for number in range(len(complete))], path


def test_an_encoding_can_be_named(write: Write) -> None:
    path = write("a.txt", "가".encode("cp949") + b"\n")
    assert list(read_decoded(path, "cp949")) == ["가\n"]
    assert isinstance(next(read_decoded(path, "utf-8")), BadLine)
    assert list(read_decoded(write("b.txt", "가\n".encode("utf-16-le")), "utf-16")) == ["가\n"]


def test_strict_reading_names_the_line(write: Write, fails: Fails) -> None:
    path = write("a.txt", b"good\n\xff\n")
    with fails(DataError, f"{path}:2", "not UTF-8 (byte 0xff)"):
        list(read_lines(path))
    with fails(DataError, empty := write("empty.txt", b""), "zero bytes"):
        list(read_lines(empty))
    with fails(DataError, missing := path.with_name("missing.txt"), "No such file"):
        list(read_lines(missing))
