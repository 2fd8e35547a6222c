"""Documents, and the readers that bring them in from JSONL, CSV, TSV and plain text (gzip of each).

Text enters as NFC here and nowhere else: macOS file names and some CMS exports arrive decomposed (NFD), and a
tokenizer sees other characters then. NFKC is not used, it rewrites ㎡, full-width forms and quotation marks.
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
from typing import IO, Any, Literal, TypeAlias

from corpora.runtime import DataError, nearest

TextUnit: TypeAlias = Literal["block", "line", "file"]

# What newsrooms call the fields of an article, in the order they are tried.
FIELD_NAMES: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "content", "body", "article", "document", "comments", "본문", "내용", "기사", "청원내용"),
    "title": ("title", "headline", "제목"),
    "id": ("id", "news_id", "guid", "아이디"),
    "date": ("date", "published_at", "작성일", "날짜", "일자"),
    "section": ("section", "category", "분류", "카테고리", "섹션"),
    "byline": ("byline", "author", "reporter", "기자", "글쓴이"),
}
FORMATS = (".jsonl", ".csv", ".tsv", ".txt")

# Some sources put a whole book in one CSV field; the module's default of 128 KiB refuses it.
csv.field_size_limit(1 << 30)


@dataclass(frozen=True)
class Document:
    """One text with what is known about it; every string is NFC."""

    text: str
    """Body, with its line breaks."""
    id: str
    """Unique within its source; `file:number` where the source has none."""
    title: str = ""
    date: str = ""
    """As the source writes it."""
    section: str = ""
    byline: str = ""
    source: str = ""
    """Name of the file it came from."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The source's further fields, untouched."""


@dataclass(frozen=True)
class RejectedRecord:
    """A record set aside by a reader, with the reason."""

    where: str
    """`file:line`"""
    reason: str
    record: str
    """The first 200 characters of the record as it stands in the file."""


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
    """Read a file's documents one by one, in constant memory but for the ids.

    Args:
        path: `.jsonl`, `.csv`, `.tsv` or `.txt`, or any of them with `.gz` behind.
        fields: which column holds what, e.g. `{"text": "기사본문"}`; unnamed ones are found by `FIELD_NAMES`.
        text_unit: what a document is in plain text: a `block` between blank lines, a `line`, or the whole `file`.
        rejected: bad records are appended here and reading goes on; without it the first one raises.

    Yields:
        Documents in file order.

    Raises:
        DataError: the file cannot be read at all (missing, zero bytes, not UTF-8, truncated gzip, unknown suffix, no
            text column), or, without `rejected`, holds a bad record (truncated JSON, missing column, empty document,
            duplicate id).
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffix = (suffixes[-2:-1] if suffixes[-1:] == [".gz"] else suffixes[-1:]) or [""]
    if suffix[0] not in FORMATS:
        raise DataError(path, f"unknown format '{suffix[0]}'", f"use one of {', '.join(FORMATS)}, or .gz of these")
    seen: set[str] = set()
    with open_text(path) as file:
        records = _read_text(file, path, text_unit) if suffix[0] == ".txt" else _read_records(file, path, suffix[0])
        for where, raw, record in records:
            try:
                document = _to_document(record, where, path, fields or {})
                if document.id in seen:
                    raise DataError(where, f"duplicate id '{document.id}'", "give every record its own id")
            except DataError as error:
                if rejected is None:
                    raise
                rejected.append(RejectedRecord(where, error.what, raw[:200]))
                continue
            seen.add(document.id)
            yield document


def open_text(path: Path) -> IO[str]:
    """Open PATH, gzipped or not, as UTF-8 text whose decoding errors name the byte and a likely encoding.

    Raises:
        DataError: the file is missing, is not readable, or has zero bytes.
    """
    try:
        if path.stat().st_size == 0:
            raise DataError(path, "the file has zero bytes", "download or export it again")
        binary: IO[bytes] = gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")
    except OSError as error:
        raise DataError(path, error.strerror or str(error), "check the path and its permissions") from error
    return _StrictText(binary, path)


class _StrictText(io.TextIOWrapper):
    """UTF-8 text whose read errors are `DataError`s; an optional byte order mark is dropped."""

    def __init__(self, binary: IO[bytes], path: Path) -> None:
        super().__init__(binary, encoding="utf-8-sig", newline="")
        self._path = path

    def __next__(self) -> str:
        try:
            return super().__next__()
        except (UnicodeDecodeError, EOFError, OSError, zlib.error) as error:
            raise self._explain(error) from error

    def read(self, size: int | None = -1, /) -> str:
        try:
            return super().read(size)
        except (UnicodeDecodeError, EOFError, OSError, zlib.error) as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> DataError:
        if not isinstance(error, UnicodeDecodeError):
            return DataError(self._path, f"broken or truncated gzip ({error})", "download or export it again")
        try:
            error.object.decode("cp949")
            guess = "; it looks like CP949: convert it with iconv -f cp949 -t utf-8"
        except UnicodeDecodeError:
            guess = ""
        byte = error.object[error.start]
        return DataError(self._path, f"not UTF-8 (byte 0x{byte:02x})", f"save the file as UTF-8{guess}")


_Record: TypeAlias = tuple[str, str, dict[str, Any] | DataError]


def _read_records(file: IO[str], path: Path, suffix: str) -> Iterator[_Record]:
    if suffix == ".jsonl":
        for number, line in enumerate(file, start=1):
            if line.strip():
                where = f"{path}:{number}"
                yield where, line, parse_json_object(line, where)
        return
    # KorNLU and NSMC files are tab-separated without quoting: a quote character there is text.
    dialect: dict[str, Any] = {"delimiter": ","} if suffix == ".csv" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    reader = csv.reader(file, **dialect)
    header = [nfc(name) for name in next(reader, [])]
    for row in reader:
        where = f"{path}:{reader.line_num}"
        if not row:
            continue
        if len(row) != len(header):
            what = f"{len(row)} columns where the header has {len(header)}"
            yield where, str(row), DataError(where, what, "correct the row's separators or quotes")
        else:
            yield where, str(row), dict(zip(header, row, strict=True))


def parse_json_object(line: str, where: str) -> dict[str, Any] | DataError:
    """Parse one JSON object; what is wrong with it is returned, for the caller to raise or to list."""
    try:
        value = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        return DataError(where, f"not valid JSON ({error})", "correct the record; it may be truncated")
    if not isinstance(value, dict):
        return DataError(where, f"a {type(value).__name__} where an object is expected", "write one {…} a line")
    return value


def _read_text(file: IO[str], path: Path, unit: TextUnit) -> Iterator[_Record]:
    if unit == "file":
        yield f"{path}:1", "", {"text": file.read()}
        return
    block: list[str] = []
    first = 1
    for number, line in enumerate(file, start=1):
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
    record: dict[str, Any] | DataError, where: str, path: Path, fields: Mapping[str, str]
) -> Document:
    if isinstance(record, DataError):
        raise record
    columns = {name: _column(name, record, fields, where) for name in FIELD_NAMES}
    if columns["text"] is None:
        names = nearest("text", record) if record else "the record is empty"
        raise DataError(where, "no text column", f"name it with fields={{'text': …}} ({names})")
    values = {name: nfc(str(record[column])) for name, column in columns.items() if column is not None}
    if re.search("[\ud800-\udfff]", "".join(values.values())):
        raise DataError(where, "a lone surrogate, which is not a character", "export the record again as UTF-8")
    if not values["text"].strip():
        raise DataError(where, "empty document", "remove the record or fill its text")
    values.setdefault("id", where.removeprefix(f"{path.parent}/"))
    extra = {name: value for name, value in record.items() if name not in columns.values()}
    return Document(**values, source=path.name, extra=extra)


def _column(name: str, record: Mapping[str, Any], fields: Mapping[str, str], where: str) -> str | None:
    if name in fields:
        if fields[name] not in record:
            raise DataError(where, f"missing column '{fields[name]}'", nearest(fields[name], record))
        return fields[name]
    return next((c for c in FIELD_NAMES[name] if isinstance(record.get(c), str | int | float)), None)
