"""Attacks by zip archives and workbooks whose members lie: about their names, their sizes, and where they point."""

import io
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterable

from tests.attacks.attack import Attack
from tests.attacks.files import (
    ARTICLE,
    HEADER,
    MAIN,
    corpus,
    line,
    summaries,
    titles,
    upload,
    workbook,
    write,
    zipped,
)

LINK = 0o120777 << 16
RELATIONSHIPS = "http://schemas.openxmlformats.org/package/2006/relationships"


def members(*files: tuple[str, bytes, int]) -> bytes:
    """Return a zip of files by name, content and attributes; names may occur twice."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content, attributes in files:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = attributes, zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return stream.getvalue()


def renamed(content: bytes, old: str, new: str) -> bytes:
    """Return a zip with a name replaced in both places, as zipfile would not write it."""
    assert len(old) == len(new.encode())
    return content.replace(old.encode(), new.encode())


def lying_size() -> bytes:
    """Return a zip whose member declares to be ten bytes long."""
    content = bytearray(zipped({"a.jsonl": line(ARTICLE) * 50}))
    size = struct.pack("<I", 50 * len(line(ARTICLE)))
    return bytes(content).replace(size, struct.pack("<I", 10))


def overlapping() -> bytes:
    """Return a zip of five hundred entries for the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", b"a" * (1 << 20))
        [first] = archive.infolist()
        for number in range(500):
            other = zipfile.ZipInfo(f"{number}.txt")
            for key in ("header_offset", "CRC", "compress_size", "file_size", "compress_type"):
                setattr(other, key, getattr(first, key))
            archive.filelist.append(other)
    return stream.getvalue()


def nested(depth: int) -> bytes:
    """Return zips in zips around an article."""
    content = zipped({"a.jsonl": line(ARTICLE)})
    for _ in range(depth):
        content = zipped({"a.zip": content})
    return content


def pointing(target: str, mode: str = ' TargetMode="External"') -> bytes:
    """Return a workbook whose sheet lies elsewhere."""
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    book = (
        f'<workbook xmlns="{MAIN}" xmlns:r="{kind}"><sheets><sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>'
    )
    relation = f'<Relationship Id="r1" Type="{kind}/worksheet" Target="{target}"{mode}/>'
    start = f'<Relationship Id="r1" Type="{kind}/officeDocument" Target="xl/workbook.xml"/>'
    parts = {
        "_rels/.rels": f'<Relationships xmlns="{RELATIONSHIPS}">{start}</Relationships>',
        "xl/workbook.xml": book,
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{RELATIONSHIPS}">{relation}</Relationships>',
    }
    return zipped({name: content.encode() for name, content in parts.items()})


EXTERNAL = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
LAUGHS = "<!DOCTYPE x [" + "".join(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10 if k else "ha"}">' for k in range(12)) + "]>"


def archive_attacks() -> list[Attack]:
    """Return attacks by archives."""
    article = line(ARTICLE)
    harmless = (0, 1, 2)
    zips: Iterable[tuple[str, Callable[[], bytes]]] = (
        ("a zip with a way up in backslashes", lambda: renamed(zipped({"x/x/x/up.jsonl": article}), "x/x/x", "..\\..")),
        ("a zip with a drive for a name", lambda: zipped({"C:\\up.jsonl": article})),
        ("a zip with a name that ends in a way up", lambda: zipped({"a\\..": article})),
        ("a zip with a name of three thousand letters", lambda: zipped({"가" * 1_000 + ".jsonl": article})),
        ("a zip with a zero byte in a name", lambda: renamed(zipped({"a_b.jsonl": article}), "a_b", "a\0b")),
        ("a zip with a name that steers a terminal", lambda: zipped({"\x1b]0;x\x07\u202e.jsonl": article})),
        ("a zip with a link", lambda: members(("a.jsonl", b"/etc/passwd", LINK))),
        ("a zip with a name twice", lambda: members(("a.jsonl", article, 0), ("a.jsonl", article * 2, 0))),
        ("a zip whose member is longer than it says", lying_size),
        ("a zip of five hundred members in the same bytes", overlapping),
        ("zips in zips", lambda: nested(30)),
    )
    books: Iterable[tuple[str, Callable[[], bytes], str]] = (
        ("a workbook with a file for an entity", lambda: workbook(HEADER, doctype=EXTERNAL), "document type"),
        ("a workbook of a billion laughs", lambda: workbook(HEADER, doctype=LAUGHS), "document type"),
        ("a workbook whose sheet is a way up", lambda: pointing("../../../etc/passwd", ""), ""),
        ("a workbook whose sheet is a file elsewhere", lambda: pointing("file:///etc/passwd"), ""),
        ("a workbook whose sheet is on another machine", lambda: pointing("http://192.0.2.1/a.xml"), ""),
    )
    attacks = [Attack(name, write("a.zip", make), (summaries, corpus), codes=harmless, max_s=3) for name, make in zips]
    return attacks + [
        Attack(name, write("a.xlsx", make), (summaries, titles, upload), says, codes=(1, 2))
        for name, make, says in books
    ]
