"""Containers of articles: zip archives of readable files, WARC, HWP, HWPX, DOCX, with caps on what they unpack to."""

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from corpora.foundation.errors import DataError
from corpora.foundation.unpacking import inflate, open_zip, plain_name
from corpora.readers.pages import read_docx_body, read_hwpx_section

LARGEST_PAGE = 1 << 26
"""Bytes of a page or section that is held in memory."""

# HWP 5.0, as Hancom publishes it: records of a section, and characters of a paragraph.
HWP_SIGNATURE = b"HWP Document File"
COMPOUND_SECTORS = {(9, 6), (12, 6)}
"""Binary logarithms of the sizes of sectors and small sectors ([MS-CFB])."""
HWP_COMPRESSED, HWP_PASSWORD, HWP_ENCRYPTED = 1, 2, 4
PARAGRAPH_TEXT, CONTROL = 67, 71
BESIDE_THE_TEXT = (b"daeh", b"toof", b"tmct")
"""Controls whose paragraphs are no part of the text: header, footer, hidden comment; identifiers stand backwards."""
WIDE_CONTROL = re.compile("([\x01-\x09\x0b\x0c\x0e-\x17]).{7}", re.DOTALL)
"""A control of eight characters, of which the first says what it is."""
NARROW_CONTROLS = dict.fromkeys(range(32)) | {9: "\t", 10: "\n", 24: "-", 30: " ", 31: " "}


def members_of(path: Path) -> list[zipfile.ZipInfo]:
    """Return the files of a zip archive by name, without hidden ones.

    Raises:
        ValueError: the archive is damaged.
        DataError: it is missing.
    """
    with open_zip(path) as archive:
        members = archive.members
    visible = [
        each for each in members if not any(part[:1] in {".", "_"} for part in PurePosixPath(each.filename).parts)
    ]
    return sorted(visible, key=lambda each: each.filename)


def unpack_member(path: Path, member: zipfile.ZipInfo, folder: Path) -> Path:
    """Unpack a member into FOLDER, under its own suffixes.

    Raises:
        ValueError: it is damaged, encrypted, or unpacks to too much.
    """
    unpacked = folder / plain_name(member)
    with open_zip(path) as archive, unpacked.open("wb") as out:
        for block in archive.blocks(member):
            out.write(block)
    return unpacked


def read_hwpx(path: Path) -> str:
    """Return the text of a HWPX document, a paragraph a line.

    Raises:
        ValueError: it is damaged or too large.
    """
    sections = [each for each in members_of(path) if each.filename.startswith("Contents/section")]
    if not sections:
        raise ValueError("no HWPX document: it has no sections")
    lines: list[str] = []
    with open_zip(path) as archive:
        for section in sorted(sections, key=lambda each: (len(each.filename), each.filename)):
            lines += read_hwpx_section(archive.read(section, LARGEST_PAGE))
    return "\n".join(lines)


def read_docx(path: Path) -> str:
    """Return the text of a DOCX document, a paragraph a line.

    Raises:
        ValueError: it is damaged or too large.
    """
    bodies = [each for each in members_of(path) if each.filename == "word/document.xml"]
    if not bodies:
        raise ValueError("no DOCX document: it has no main part")
    with open_zip(path) as archive:
        return "\n".join(read_docx_body(archive.read(bodies[0], LARGEST_PAGE)))


def read_hwp(path: Path) -> str:
    """Return the text of a document of HWP 5, a paragraph a line, without headers, footers and hidden comments.

    Raises:
        ValueError: it is damaged, encrypted or too large, or of an older version.
    """
    import olefile

    with path.open("rb") as file:
        head = file.read(34)
    if head.startswith(HWP_SIGNATURE):
        raise ValueError("a document of HWP 3; save it as .hwpx")
    if struct.unpack("<HH", head[30:].ljust(4, b"\0")) not in COMPOUND_SECTORS:
        raise ValueError("no HWP document: it is no compound file")
    lines: list[str] = []
    try:
        with olefile.OleFileIO(path) as document:
            header = document.openstream("FileHeader").read(40)
            if not header.startswith(HWP_SIGNATURE) or len(header) < 40:
                raise ValueError("no HWP document: its header is another one")
            flags = int.from_bytes(header[36:40], "little")
            if flags & (HWP_PASSWORD | HWP_ENCRYPTED):
                kind = "protected by a password" if flags & HWP_PASSWORD else "for distribution only"
                raise ValueError(f"its text is encrypted: a document {kind}; save it as .hwpx without protection")
            names = [name for name in document.listdir() if len(name) == 2 and name[0] == "BodyText"]
            if not names:
                raise ValueError("no HWP document: it has no sections")
            for name in sorted(names, key=lambda name: (len(name[1]), name[1])):
                content = document.openstream(name).read()
                lines += _hwp_paragraphs(inflate(content, LARGEST_PAGE) if flags & HWP_COMPRESSED else content)
    except OSError as error:
        if error.errno is not None:
            raise
        raise ValueError(f"no HWP document ({error})") from error
    return "\n".join(lines)


def _hwp_paragraphs(section: bytes) -> Iterator[str]:
    """Yield the texts of the paragraphs of a section, those of tables among them."""
    position, hidden = 0, -1  # the level of a control whose paragraphs are left out
    while position + 4 <= len(section):
        (head,) = struct.unpack_from("<I", section, position)
        tag, level, size, position = head & 0x3FF, head >> 10 & 0x3FF, head >> 20, position + 4
        if size == 0xFFF and position + 4 <= len(section):
            (size,) = struct.unpack_from("<I", section, position)
            position += 4
        content, position = section[position : position + size], position + size
        if position > len(section):
            raise ValueError("a section is cut off")
        if 0 <= hidden < level:
            continue
        hidden = level if tag == CONTROL and content[:4] in BESIDE_THE_TEXT else -1
        if tag == PARAGRAPH_TEXT:
            yield _hwp_text(content)


def _hwp_text(content: bytes) -> str:
    # A character for each unit, as UTF-32, since what stands in a control may look like half of a pair.
    wide = bytearray(len(content) // 2 * 4)
    wide[::4], wide[1::4] = content[: len(content) // 2 * 2 : 2], content[1::2]
    units = wide.decode("utf-32-le", "surrogatepass")
    text = WIDE_CONTROL.sub(lambda control: "\t" if control[1] == "\t" else "", units).translate(NARROW_CONTROLS)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def pages_of_warc(path: Path) -> Iterator[tuple[int, str, bytes | str]]:
    """Yield the HTML pages of a WARC file: number, address, and content, or the reason why there is none.

    Raises:
        DataError: warcio is not installed, or the file cannot be opened.
    """
    try:
        from warcio.archiveiterator import ArchiveIterator
        from warcio.exceptions import ArchiveLoadFailed
    except ImportError as error:
        raise DataError(path, "warcio is not installed", "pip install 'pressbert[scale]'") from error
    number = 0
    try:
        with path.open("rb") as file:
            try:
                for record in ArchiveIterator(file):
                    headers = record.http_headers
                    kind = headers.get_header("Content-Type", "html") if headers else "html"
                    if record.rec_type != "response" or "html" not in kind.lower():
                        continue
                    number += 1
                    content = record.content_stream().read(LARGEST_PAGE + 1)
                    address = record.rec_headers.get_header("WARC-Target-URI") or ""
                    if len(content) > LARGEST_PAGE:
                        yield number, address, f"a page of more than {LARGEST_PAGE:,} bytes"
                    elif headers is None or record.raw_stream.limit:
                        yield number, address, "the file is cut off here"
                    else:
                        yield number, address, content
            # An AttributeError is how warcio meets headers that break off.
            except (ArchiveLoadFailed, zlib.error, EOFError, ValueError, AttributeError) as error:
                yield number + 1, "", f"the file is damaged or cut off here ({error})"
    except OSError as error:
        raise DataError(path, error.strerror or str(error), "check the path and its permissions") from error
