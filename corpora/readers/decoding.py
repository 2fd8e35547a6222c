"""Files as lines of text: compression and encoding are recognized, and a bad line costs one line.

UTF-8, with or without a byte order mark; UTF-16 with one, as Excel and Notepad save "Unicode text"; CP949, the encoding
of Korean Windows, where the lines that are not UTF-8 are all CP949. `.gz` and `.zst` are unpacked. `-` is the standard
input, whose first line of other characters than ASCII decides.
"""

import io
import itertools
import logging
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, get_args

from corpora.foundation.errors import DataError
from corpora.foundation.unpacking import open_unpacked

logger = logging.getLogger(__name__)

Encoding: TypeAlias = Literal["auto", "utf-8", "utf-16", "cp949"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
COMPRESSIONS = (".gz", ".zst")
OTHER_SUFFIXES = {".ndjson": ".jsonl", ".rss": ".xml", ".atom": ".xml"}
"""Other names of a format."""
STANDARD_INPUT = "-"
"""Stands for it among files."""
MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
"""Byte order marks."""
SAMPLE_LINES = 200
"""Lines with other characters than ASCII that decide an encoding; later ones may still be bad."""
LONGEST_LINE = 1 << 23
"""Bytes of a line that is a record. A longer one is no article, and would fill the memory once it is parsed."""
LONGEST_DOCUMENT = 1 << 28
"""Bytes of a line of a file that is parsed as a whole, such as JSON without line breaks."""
BROKEN = (EOFError, OSError, zlib.error)
"""What gzip and zstd raise for a broken stream; see `_raise_unless_broken`."""
WRITTEN_AGAIN = "download or export it again"


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be decoded, or where the file breaks off."""

    reason: str
    text: str
    """What could be read, with U+FFFD for the rest."""


def format_of(path: Path) -> str:
    """Return the suffix of the format in lower case; that of a compression is ignored."""
    if str(path) == STANDARD_INPUT:
        return ".txt"
    suffix = (path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path).suffix.lower()
    return OTHER_SUFFIXES.get(suffix, suffix)


def read_decoded(path: Path, encoding: Encoding = "auto", *, longest: int = LONGEST_LINE) -> Iterator[str | BadLine]:
    """Yield the lines of a file with their line ends, without a byte order mark.

    Args:
        path: of a text file, perhaps compressed.
        encoding: how it is encoded; `auto`: recognized.
        longest: bytes of a line; a longer one is a bad line.

    Raises:
        DataError: the file is missing, unreadable, damaged, or has zero bytes.
    """
    if str(path) == STANDARD_INPUT:
        yield from _standard_input(encoding, longest)
        return
    try:
        if path.stat().st_size == 0:
            raise DataError(path, "the file has zero bytes", WRITTEN_AGAIN)
        codec, skip = _codec_of(path, encoding, longest)
        with _open(path) as file:
            file.read(skip)
            lines = _wide_lines(file, codec, longest) if codec.startswith("utf-16") else _lines(file, codec, longest)
            yield from _until_cut(lines, path)
    except OSError as error:
        raise DataError(path, error.strerror or str(error), "check the path and its permissions") from error


def read_lines(path: Path, encoding: Encoding = "auto") -> Iterator[str]:
    """Yield the lines of a file; as `read_decoded`, but the first bad line raises.

    Raises:
        DataError: the file cannot be read, or a line cannot be decoded.
    """
    for number, line in enumerate(read_decoded(path, encoding, longest=LONGEST_DOCUMENT), start=1):
        if isinstance(line, BadLine):
            raise DataError(f"{path}:{number}", line.reason, WRITTEN_AGAIN)
        yield line


def _standard_input(encoding: Encoding, longest: int) -> Iterator[str | BadLine]:
    """Yield lines as they come."""
    # A notebook replaces it by an object without bytes.
    raw = getattr(sys.stdin, "buffer", None) or io.BufferedReader(io.BytesIO(sys.stdin.read().encode()))
    file = _with_line_feeds(raw)
    head = file.peek(4)
    found = ((mark, codec) for mark, codec in MARKS if head.startswith(mark) and _is_of(codec, encoding))
    mark, codec = next(found, (b"", "utf-16-le" if encoding == "utf-16" else encoding))
    file.read(len(mark))
    yield from _wide_lines(file, codec, longest) if codec.startswith("utf-16") else _lines(file, codec, longest)


@contextmanager
def _open(path: Path) -> Iterator[io.BufferedReader]:
    with open_unpacked(path) as file:
        yield _with_line_feeds(file)


def _with_line_feeds(file: io.BufferedReader) -> io.BufferedReader:
    """Return FILE; if its lines end in a carriage return alone, as those of old Macs, with line feeds instead."""
    try:
        head = file.peek()
    except BROKEN:
        return file  # reported when the file is read
    # A zero byte is one of UTF-16, whose lines are ended elsewhere; the last byte may be half of a line end.
    is_old = b"\r" in head[:-1] and b"\n" not in head and b"\0" not in head
    return io.BufferedReader(_LineFeeds(file)) if is_old else file


class _LineFeeds(io.RawIOBase):
    """The bytes of a file, with line feeds for its carriage returns."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._file.read1(len(buffer)).replace(b"\r", b"\n")
        buffer[: len(found)] = found
        return len(found)


def _codec_of(path: Path, encoding: Encoding, longest: int) -> tuple[str, int]:
    """Return the name of the codec, and the bytes of the byte order mark."""
    with _open(path) as file:
        try:
            head = file.read(4)
        except BROKEN as error:
            _raise_unless_broken(error)
            what = f"not a {path.suffix.lower()} file, or broken ({str(error).splitlines()[0]})"
            raise DataError(path, what, WRITTEN_AGAIN) from error
        for mark, codec in MARKS:
            if head.startswith(mark) and _is_of(codec, encoding):
                return codec, len(mark)
        if encoding != "auto":
            return {"utf-16": "utf-16-le"}.get(encoding, encoding), 0
        if len(head) == 4 and head[1] == head[3] == 0 and head[0] and head[2]:
            return "utf-16-le", 0
        if len(head) == 4 and head[0] == head[2] == 0 and head[1] and head[3]:
            return "utf-16-be", 0
        return _codec_of_lines(path, _foreign_lines(head, file, longest)), 0


def _is_of(codec: str, encoding: Encoding) -> bool:
    return encoding in {"auto", codec.removesuffix("-le").removesuffix("-be")}


def _foreign_lines(head: bytes, file: io.BufferedReader, longest: int) -> Iterator[bytes]:
    """Yield the lines with other than ASCII characters of a file of which HEAD is read.

    A file that is cut off ends with an error of its compression.
    """
    line: bytes | None = head + file.readline(longest)
    lines = _raw_lines(file, longest)
    while True:
        if line and not line.isascii():
            yield line
        # Of what is in the buffer, lines of ASCII are skipped together.
        while (ahead := file.peek()) and (end := ahead.rfind(b"\n") + 1) and ahead[:end].isascii():
            file.read(end)
        if not ahead:
            return
        line = next(lines, None)


def _codec_of_lines(path: Path, lines: Iterator[bytes]) -> str:
    """Decide between UTF-8 and CP949 by the lines that are not ASCII."""
    num_utf8 = num_bad = num_cp949 = 0
    try:
        for line in itertools.islice(lines, SAMPLE_LINES):
            if _is_encoded(line, "utf-8"):
                num_utf8 += 1
            else:
                num_bad += 1
                num_cp949 += _is_encoded(line, "cp949")
    except BROKEN as error:
        _raise_unless_broken(error)  # reported when the lines are read
    if num_bad > num_utf8 and num_cp949 >= 0.9 * num_bad:
        logger.warning("%s: not UTF-8, read as CP949", path)
        return "cp949"
    return "utf-8"


def _is_encoded(line: bytes, codec: str) -> bool:
    try:
        line.decode(codec)
    except UnicodeDecodeError:
        return False
    return True


def _raw_lines(file: IO[bytes], longest: int) -> Iterator[bytes | None]:
    """Yield lines; None for one that is too long, which is skipped."""
    while line := file.readline(longest):
        if len(line) < longest or line.endswith(b"\n"):
            yield line
            continue
        while (rest := file.readline(longest)) and not rest.endswith(b"\n"):
            pass
        yield None


def _lines(file: IO[bytes], codec: str, longest: int) -> Iterator[str | BadLine]:
    # No byte of a character of UTF-8 or CP949 is a line feed.
    for line in _raw_lines(file, longest):
        if line is None:
            yield _too_long(longest)
            continue
        if codec == "auto" and not line.isascii():
            codec = "cp949" if _is_encoded(line, "cp949") and not _is_encoded(line, "utf-8") else "utf-8"
        try:
            yield line.decode("utf-8" if codec == "auto" else codec)
        except UnicodeDecodeError as error:
            name = codec.upper()
            yield BadLine(f"not {name} (byte 0x{line[error.start]:02x})", line.decode(codec, errors="replace"))


def _too_long(longest: int) -> BadLine:
    return BadLine(f"a line of more than {longest:,} bytes", "")


def _wide_lines(file: IO[bytes], codec: str, longest: int) -> Iterator[str | BadLine]:
    # Lone surrogates pass: the record that has one is rejected by its reader.
    text = io.TextIOWrapper(file, encoding=codec, errors="surrogatepass", newline="")
    most = longest // 2
    try:
        while line := text.readline(most):
            if len(line) < most or line.endswith(("\n", "\r")):
                yield line
                continue
            while (rest := text.readline(most)) and not rest.endswith(("\n", "\r")):
                pass
            yield _too_long(longest)
    except UnicodeDecodeError:
        yield BadLine("ends inside a character of UTF-16", "")


def _until_cut(lines: Iterator[str | BadLine], path: Path) -> Iterator[str | BadLine]:
    """Yield lines as far as a compressed file goes; one that was cut off ends with a bad line.

    Raises:
        DataError: the file is damaged, so that what was read of it cannot be trusted.
    """
    try:
        yield from lines
    except BROKEN as error:
        _raise_unless_broken(error)
        reason = str(error).splitlines()[0]
        if not isinstance(error, EOFError) and "runcated" not in reason:
            raise DataError(path, f"the compressed file is damaged ({reason})", WRITTEN_AGAIN) from error
        yield BadLine(f"the compressed file is cut off here ({reason})", "")


def _raise_unless_broken(error: Exception) -> None:
    """Raise errors of the file system again; those of a compressed stream have no error number."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error


def read_text(path: Path, encoding: Encoding = "auto") -> str:
    """Return the whole text of a file; see `read_lines`."""
    return "".join(read_lines(path, encoding))
