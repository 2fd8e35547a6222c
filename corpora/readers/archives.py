"""Containers of articles: zip archives of readable files, WARC, HWPX, with caps on what they unpack to."""

import copy
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from corpora.foundation.errors import DataError
from corpora.readers.decoding import LARGEST_RATIO, SMALL
from corpora.readers.pages import read_hwpx_section

LARGEST_MEMBER = 1 << 32
"""Bytes of a member of a zip archive that is unpacked to the disk."""
LARGEST_PAGE = 1 << 26
"""Bytes of a page or section that is held in memory."""
BLOCK = 1 << 20
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
"""What a damaged or encrypted archive raises."""


def members_of(path: Path) -> list[zipfile.ZipInfo]:
    """Return the files of a zip archive by name, without hidden ones.

    Raises:
        ValueError: the archive is damaged.
        DataError: it is missing.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [each for each in archive.infolist() if not each.is_dir()]
    except BROKEN as error:
        raise ValueError(f"not a zip archive, or damaged ({error})") from error
    except OSError as error:
        raise DataError(path, error.strerror or str(error), "check the path and its permissions") from error
    visible = [
        each for each in members if not any(part[:1] in {".", "_"} for part in PurePosixPath(each.filename).parts)
    ]
    return sorted(visible, key=lambda each: each.filename)


def unpack_member(path: Path, member: zipfile.ZipInfo, folder: Path) -> Path:
    """Unpack a member into FOLDER, under its own suffixes.

    Raises:
        ValueError: it is damaged, encrypted, or unpacks to too much.
    """
    name = PurePosixPath(member.filename).name
    try:
        with zipfile.ZipFile(path) as archive, (folder / name).open("wb") as out:
            for block in _blocks(archive, member, LARGEST_MEMBER):
                out.write(block)
    except BROKEN as error:
        raise ValueError(f"{member.filename}: {error}") from error
    return folder / name


def _blocks(archive: zipfile.ZipFile, member: zipfile.ZipInfo, largest: int) -> Iterator[bytes]:
    """Yield the bytes of a member, however many it really has.

    Raises:
        ValueError: there are too many.
    """
    # The declared size may be wrong, and zipfile would stop there.
    unlimited = copy.copy(member)
    unlimited.file_size = largest + 1
    size = 0
    with archive.open(unlimited) as file:
        while block := file.read(BLOCK):
            size += len(block)
            if size > largest or (size > SMALL and size > LARGEST_RATIO * member.compress_size):
                raise ValueError(f"unpacks to more than {size:,} bytes")
            yield block
    if size != member.file_size:
        raise ValueError(f"unpacks to {size:,} bytes, not {member.file_size:,}")


def read_hwpx(path: Path) -> str:
    """Return the text of a HWPX document, a paragraph a line.

    Raises:
        ValueError: it is damaged or too large.
    """
    sections = [each for each in members_of(path) if each.filename.startswith("Contents/section")]
    if not sections:
        raise ValueError("no HWPX document: it has no sections")
    lines: list[str] = []
    try:
        with zipfile.ZipFile(path) as archive:
            for section in sorted(sections, key=lambda each: (len(each.filename), each.filename)):
                lines += read_hwpx_section(b"".join(_blocks(archive, section, LARGEST_PAGE)))
    except BROKEN as error:
        raise ValueError(str(error)) from error
    return "\n".join(lines)


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
