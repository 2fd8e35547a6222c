"""Containers of articles: zip archives of readable files, WARC, HWPX, DOCX, with caps on what they unpack to."""

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from corpora.foundation.errors import DataError
from corpora.foundation.unpacking import open_zip, plain_name
from corpora.readers.pages import read_docx_body, read_hwpx_section

LARGEST_PAGE = 1 << 26
"""Bytes of a page or section that is held in memory."""


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
