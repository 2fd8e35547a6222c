"""Documents of HWP 5: records of compressed sections in a compound file."""

import random
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from corpora.documents import RejectedRecord, read_documents
from corpora.foundation.unpacking import SMALL

Write = Callable[[str, str | bytes], Path]
Compound = Callable[[Mapping[str, bytes]], bytes]
SIGNATURE = b"HWP Document File".ljust(32, b"\0")
TAB = struct.pack("<8H", 9, 1, 2, 3, 4, 5, 6, 9)
TABLE = struct.pack("<8H", 11, 0x7462, 0x206C, 0xD800, 0xDC00, 0, 0, 11)


def record(tag: int, level: int, content: bytes) -> bytes:
    size = min(len(content), 0xFFF)
    long = struct.pack("<I", len(content)) if size == 0xFFF else b""
    return struct.pack("<I", tag | level << 10 | size << 20) + long + content


def text(*parts: str | bytes, level: int = 1) -> bytes:
    units = (part if isinstance(part, bytes) else part.encode("utf-16-le") for part in parts)
    return record(66, level - 1, b"") + record(67, level, b"".join(units) + struct.pack("<H", 13))


def control(name: str, level: int = 1) -> bytes:
    return record(71, level, name.encode()[::-1] + bytes(8))


SECTIONS = (
    text("예산안 의결 ", TABLE, "😀")
    + control("head")
    + text("머리말", level=3)
    + control("tbl ")
    + text("칸", TAB, "둘", level=3)
    + control("foot")
    + text("꼬리말", level=3)
    + control("tcmt")
    + text("숨은 설명", level=3)
    + text("국회가 ", "\x1f예산안을\n의결했다.", "\x18"),
    text("가" * 3000),
)
LINES = ["예산안 의결 😀", "칸\t둘", "국회가  예산안을\n의결했다.-", "가" * 3000]


def document(compound_file: Compound, sections: tuple[bytes, ...] = SECTIONS, flags: int = 1) -> bytes:
    streams = {"FileHeader": SIGNATURE + struct.pack("<II", 0x05010000, flags) + bytes(216), "DocInfo": b"info"}
    for number, section in enumerate(sections):
        packer = zlib.compressobj(wbits=-15)
        packed = packer.compress(section) + packer.flush()
        streams[f"BodyText/Section{number}"] = packed if flags & 1 else section
    return compound_file(streams)


@pytest.mark.parametrize("flags", [0, 1])
def test_paragraphs_of_all_sections_are_lines(write: Write, compound_file: Compound, flags: int) -> None:
    [found] = read_documents(write("보도자료.hwp", document(compound_file, flags=flags)))
    assert (found.title, found.text) == ("보도자료", "\n".join(LINES))


def test_sections_are_in_the_order_of_their_numbers(write: Write, compound_file: Compound) -> None:
    sections = tuple(text(f"{number}절") for number in range(12))
    [found] = read_documents(write("a.hwp", document(compound_file, sections)))
    assert found.text.split() == [f"{number}절" for number in range(12)]


def test_what_cannot_be_read_is_one_bad_record_that_says_why(write: Write, compound_file: Compound) -> None:
    whole = document(compound_file)
    cases = {
        "password": (document(compound_file, flags=3), "protected by a password"),
        "distribution": (document(compound_file, flags=5), "for distribution only"),
        "HWP 3": (b"HWP Document File V3.00 \x1a\1\2\3\4\5", "HWP 3"),
        "a workbook": (compound_file({"Workbook": bytes(5000), "BodyText/Section0": b"a"}), "no HWP document"),
        "no sections": (document(compound_file, ()), "no sections"),
        "another header": (compound_file({"FileHeader": b"other" * 50}), "no HWP document"),
        "a text": ("국회가 예산안을 의결했다.".encode(), "no HWP document"),
        "cut": (whole[:900], "no HWP document"),
        "a cut record": (document(compound_file, (SECTIONS[0][:-5],)), "cut off"),
        "not compressed": (
            document(compound_file, flags=0).replace(
                struct.pack("<II", 0x05010000, 0), struct.pack("<II", 0x05010000, 1)
            ),
            "invalid",
        ),
    }
    for name, (content, why) in cases.items():
        rejected: list[RejectedRecord] = []
        path = write("a.hwp", content)
        assert list(read_documents(path, rejected=rejected)) == [], name
        assert [bad.where for bad in rejected] == [f"{path}:1"], name
        assert why in rejected[0].reason, (name, rejected[0].reason)


def test_a_section_that_would_fill_the_memory_is_refused(write: Write, compound_file: Compound) -> None:
    rejected: list[RejectedRecord] = []
    path = write("a.hwp", document(compound_file, (record(67, 0, bytes(SMALL)),)))
    assert list(read_documents(path, rejected=rejected)) == []
    assert f"more than {SMALL:,} bytes" in rejected[0].reason


def test_damaged_documents_are_bad_records_and_never_more(write: Write, compound_file: Compound) -> None:
    draw = random.Random(0)  # noqa: S311 - no secret
    for flags in (0, 1):
        whole = document(compound_file, flags=flags)
        for _ in range(150):
            damaged = bytearray(whole)
            for _ in range(draw.randint(1, 20)):
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
            rejected: list[RejectedRecord] = []
            found = list(read_documents(write("a.hwp", bytes(damaged)), rejected=rejected))
            assert len(found) + len(rejected) == 1
