"""Documents, and readers for JSONL, JSON arrays, CSV, TSV and plain text (each also as gzip).

Text is normalized to NFC: some CMS exports are decomposed (NFD), which tokenizers read as other characters. NFKC would
rewrite ㎡, full-width forms and quotation marks.
"""

import csv
import gzip
import io
import json
import re
import unicodedata
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, cast

from corpora.foundation.errors import DataError, suggest

TextUnit: TypeAlias = Literal["block", "line", "file"]

# Column names of newsrooms for the fields of an article, in the order in which they are tried.
FIELD_NAMES: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "content", "body", "article", "document", "comments", "본문", "내용", "기사", "청원내용"),
    "title": ("title", "headline", "제목"),
    "id": ("id", "news_id", "guid", "아이디"),
    "date": ("date", "published_at", "작성일", "날짜", "일자"),
    "section": ("section", "category", "분류", "카테고리", "섹션"),
    "byline": ("byline", "author", "reporter", "기자", "글쓴이"),
}
SCALARS = (str, int, float)
FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".txt")

# Some sources put a whole book in one CSV field; the module's default of 128 KiB refuses it.
csv.field_size_limit(1 << 30)


@dataclass(frozen=True)
class Document:
    """A text and its metadata; every string is NFC."""

    text: str
    """Body, with its line breaks."""
    id: str
    """Unique within its source; `file:line`, or `file:record` in a JSON array, where the source has none."""
    title: str = ""
    date: str = ""
    """As the source writes it."""
    section: str = ""
    byline: str = ""
    source: str = ""
    """Name of the file it came from."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the source, unchanged."""


@dataclass(frozen=True)
class RejectedRecord:
    """A record that a reader rejected, with the reason."""

    where: str
    """`file:line`, or `file:record` in a JSON array."""
    reason: str
    record: str
    """First 200 characters of the record."""


def nfc(text: str) -> str:
    """Return TEXT with composed Hangul (Unicode NFC)."""
    return unicodedata.normalize("NFC", text)


def read_documents(
    path: Path,
    *,
    fields: Mapping[str, str] | None = None,
    text_unit: TextUnit = "block",
    rejected: list[RejectedRecord] | None = None,
) -> Iterator[Document]:
    """Read the documents of a file one by one, in constant memory except for the ids of the source.

    Args:
        path: `.jsonl`, `.json`, `.csv`, `.tsv` or `.txt`, each also with `.gz`. `.json` is an array of
            objects and is parsed as a whole, which needs memory for the whole file.
        fields: column of each field, e.g. `{"text": "기사본문"}`; others are found by `FIELD_NAMES`.
        text_unit: what a document is in plain text: a `block` between blank lines, a `line`, or the whole `file`.
        rejected: bad records are appended to this list; without it the first one raises.

    Yields:
        Documents in file order.

    Raises:
        DataError: the file cannot be read at all (missing, zero bytes, not UTF-8, truncated gzip, unknown suffix, no
            text column, not a JSON array), or, without `rejected`, contains a bad record (truncated JSON, missing
            column, empty document, duplicate id).
    """
    suffix = format_of(path)
    if suffix not in FORMATS:
        raise DataError(path, f"unknown format '{suffix}'", f"use one of {', '.join(FORMATS)}, or .gz of these")
    seen: set[str] = set()
    folder = f"{path.parent}/"
    lines = read_lines(path)
    records = _read_text(lines, path, text_unit) if suffix == ".txt" else _read_records(lines, path, suffix)
    is_empty = True
    for where, raw, record in records:
        is_empty = False
        place = where.removeprefix(folder)
        try:
            document = _to_document(record, where, fields or {}, id_=place, source=path.name)
            if document.id in seen:
                raise DataError(where, f"duplicate id '{document.id}'", "give every record its own id")
        except DataError as error:
            if rejected is None:
                raise
            rejected.append(RejectedRecord(where, error.what, raw[:200]))
            continue
        # Ids made of line numbers are unique; keeping millions of them would fill the memory.
        if document.id != place:
            seen.add(document.id)
        yield document
    if is_empty:
        raise DataError(path, "no documents in it", "give a file with at least one record")


def format_of(path: Path) -> str:
    """Return the suffix of the format in lower case; `.gz` is ignored."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file, gzipped or not, with their line ends; without a byte order mark.

    Raises:
        DataError: the file is missing, unreadable, has zero bytes, is not UTF-8, or is a broken gzip.
    """
    try:
        if path.stat().st_size == 0:
            raise DataError(path, "the file has zero bytes", "download or export it again")
        with (
            gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as binary,
            # newline="": the CSV module wants to see the line ends inside quotes as they are.
            io.TextIOWrapper(cast(IO[bytes], binary), encoding="utf-8-sig", newline="") as text,
        ):
            yield from text
    except UnicodeDecodeError as error:
        what = f"not UTF-8 (byte 0x{error.object[error.start]:02x})"
        raise DataError(path, what, f"save the file as UTF-8{_guess_encoding(error.object)}") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(path, f"broken or truncated gzip ({error})", "download or export it again") from error
    except OSError as error:
        raise DataError(path, error.strerror or str(error), "check the path and its permissions") from error


def read_text(path: Path) -> str:
    """Return the whole text of a file; see `read_lines`."""
    return "".join(read_lines(path))


def _guess_encoding(block: bytes) -> str:
    """Guess the encoding. A block may end inside a character, so its last byte may be ignored."""
    for cut in range(2):
        try:
            block[: len(block) - cut].decode("cp949")
        except UnicodeDecodeError:
            continue
        return "; it looks like CP949: convert it with iconv -f cp949 -t utf-8"
    return ""


_Record: TypeAlias = tuple[str, str, dict[str, Any] | DataError]


def _read_records(lines: Iterator[str], path: Path, suffix: str) -> Iterator[_Record]:
    if suffix == ".jsonl":
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where = f"{path}:{number}"
                yield where, line, parse_json_object(line, where)
        return
    if suffix == ".json":
        for number, value in enumerate(_read_json_array(lines, path), start=1):
            yield f"{path}:{number}", str(value), _to_object(value, f"{path}:{number}")
        return
    # KorNLU and NSMC files are tab-separated without quoting: a quote character there is text.
    dialect: dict[str, Any] = {"strict": True} if suffix == ".csv" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    reader = csv.reader(lines, **dialect)
    header = [nfc(name) for name in next(reader, [])]
    while True:
        start = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            where = f"{path}:{start}"
            yield where, "", DataError(where, f"not valid CSV ({error})", "close the quotes that this record opens")
            return
        if row is None:
            return
        where = f"{path}:{reader.line_num}"
        if not row:
            continue
        if len(row) != len(header):
            what = f"{len(row)} columns where the header has {len(header)}"
            yield where, str(row), DataError(where, what, "correct the row's separators or quotes")
        else:
            yield where, str(row), dict(zip(header, row, strict=True))


def parse_json_object(line: str, where: str) -> dict[str, Any] | DataError:
    """Parse one JSON object; an error is returned, not raised, so that the caller can list it."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return DataError(where, f"not valid JSON ({error})", "correct the record; it may be truncated")
    return _to_object(value, where)


def _to_object(value: Any, where: str) -> dict[str, Any] | DataError:
    if not isinstance(value, dict):
        return DataError(where, f"a {type(value).__name__} where an object is expected", "write every record as {…}")
    return {nfc(name): content for name, content in value.items()}


def _read_json_array(lines: Iterator[str], path: Path) -> list[Any]:
    try:
        value = json.loads("".join(lines))
    except (ValueError, RecursionError) as error:
        raise DataError(
            path, f"not valid JSON ({error})", "export it again, or as .jsonl with one {…} a line"
        ) from error
    if not isinstance(value, list):
        raise DataError(path, f"a {type(value).__name__} where an array is expected", "write the records as [{…}, …]")
    return value


def _read_text(lines: Iterator[str], path: Path, unit: TextUnit) -> Iterator[_Record]:
    if unit == "file":
        yield f"{path}:1", "", {"text": "".join(lines)}
        return
    block: list[str] = []
    first = 1
    for number, line in enumerate(lines, start=1):
        if unit == "line":
            if line.strip():
                yield f"{path}:{number}", line, {"text": line.rstrip("\r\n")}
        elif line.strip():
            first = first if block else number
            block.append(line)
        elif block:
            yield f"{path}:{first}", block[0], {"text": "".join(block).rstrip()}
            block = []
    if block:
        yield f"{path}:{first}", block[0], {"text": "".join(block).rstrip()}


def _to_document(
    record: dict[str, Any] | DataError, where: str, fields: Mapping[str, str], *, id_: str, source: str
) -> Document:
    if isinstance(record, DataError):
        raise record
    columns = {name: _column(name, record, fields, where) for name in FIELD_NAMES}
    if columns["text"] is None:
        names = suggest("text", record) if record else "the record is empty"
        raise DataError(where, "no text column", f"name it with fields={{'text': …}} ({names})")
    values = {name: nfc(str(record[column])) for name, column in columns.items() if column is not None}
    if re.search("[\ud800-\udfff]", "".join(values.values())):
        raise DataError(where, "a lone surrogate, which is not a character", "export the record again as UTF-8")
    if not values["text"].strip():
        raise DataError(where, "empty document", "remove the record or fill its text")
    values.setdefault("id", id_)
    extra = {name: value for name, value in record.items() if name not in columns.values()}
    return Document(**values, source=source, extra=extra)


def _column(name: str, record: Mapping[str, Any], fields: Mapping[str, str], where: str) -> str | None:
    if name in fields:
        if fields[name] not in record:
            raise DataError(where, f"missing column '{fields[name]}'", suggest(fields[name], record))
        if not isinstance(record[fields[name]], SCALARS):
            raise DataError(where, f"column '{fields[name]}' holds no text", "name another column or fill this one")
        return fields[name]
    return next((c for c in FIELD_NAMES[name] if isinstance(record.get(c), SCALARS)), None)
