"""Documents, and the reader that makes them of any file; `corpora.readers.records` lists the formats.

Text is normalized to NFC: some CMS exports are decomposed (NFD), which tokenizers read as other characters. NFKC would
rewrite ㎡, full-width forms and quotation marks. HTML tags and entities are removed from texts and titles.
"""

import hashlib
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from corpora.characters import nfc
from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS
from corpora.foundation.errors import DataError, suggest
from corpora.readers.decoding import STANDARD_INPUT, Encoding, read_text
from corpora.readers.fields import FIELD_NAMES, candidates, column_named, is_scalar, seen
from corpora.readers.markup import strip_markup
from corpora.readers.records import Record, TextUnit, find_files, read_records

logger = logging.getLogger(__name__)

_Found = TypeVar("_Found")
SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Document:
    """A text and its metadata; every string is NFC."""

    text: str
    """Body, with its line breaks."""
    id: str
    """Unique within its source; `file:line`, or `file:record` in JSON and Parquet, where the source has none."""
    title: str = ""
    date: str = ""
    """As the source writes it."""
    section: str = ""
    byline: str = ""
    publisher: str = ""
    url: str = ""
    source: str = ""
    """Name of the file it came from."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the source, unchanged."""


@dataclass(frozen=True)
class RejectedRecord:
    """A record that a reader rejected, with the reason."""

    where: str
    """`file:line`, or `file:record` in JSON and Parquet."""
    reason: str
    record: str
    """First 200 characters of the record."""
    fix: str = "correct the record or remove it"


MOST_REJECTED = 20_000
"""Bad records that are kept in memory."""
LONGEST_REASON = 500
"""Characters of a reason."""


class Rejects(Protocol):
    """Takes rejected records: a list, or anything that writes them away."""

    def append(self, record: RejectedRecord, /) -> None:
        """Take a record."""


def read_documents(
    path: Path,
    *,
    fields: Mapping[str, str] | None = None,
    text_unit: TextUnit = "block",
    rejected: Rejects | None = None,
    encoding: Encoding = "auto",
    needed: Literal["text", "title"] = "text",
) -> Iterator[Document]:
    """Read the documents of a file one by one, in constant memory except for the ids of the source.

    Documents and rejected records add up to the records of the file. Records with the same id and the same content are
    duplicates and rejected; with other content they are other documents, and their ids get the line as a suffix, since
    spreadsheets cut long numbers.

    Args:
        path: `.jsonl`, `.json`, `.csv`, `.tsv`, `.txt`, each also with `.gz` or `.zst`; `.xlsx`, `.xls` (first
            sheet), `.parquet`, `.arrow`; `.html`, `.xml` (NITF, NewsML, NewsML-G2, RSS, Atom); `.hwp`, `.hwpx`,
            `.docx`; `.warc`; `.zip` of these; `-`: the standard input, in plain text. `.json` is an array of objects,
            an object around one, also nested as in 모두의 말뭉치 and the data sets of AI-Hub, or an object of
            articles, and is parsed as a whole.
        fields: column of each field, e.g. `{"text": "기사본문"}`; others are found by `FIELD_NAMES`. Numbers, such as
            `{"text": "2"}`, are columns of a CSV or TSV file without a header.
        text_unit: what a document is in plain text: a `block` between blank lines, a `line`, or the whole `file`.
        rejected: bad records are appended to it; without it the first one raises.
        encoding: of text files; `auto`: UTF-8, UTF-16 or CP949, recognized.
        needed: the field that no document may lack. A text without a title is taken as the title, if that is needed.

    Yields:
        Documents in file order.

    Raises:
        DataError: the file cannot be read at all (missing, zero bytes, unknown suffix, no JSON array), or, without
            `rejected`, contains a bad record (undecodable line, truncated JSON, missing column, empty document).
    """
    folder = f"{path.parent}/"
    known: dict[str, bytes] = {}
    is_empty, num_rejected = True, 0
    has_header = not any(column.isdecimal() for column in (fields or {}).values())
    for record in read_records(path, text_unit, encoding, has_header=has_header):
        is_empty = False
        own_id = record.where.removeprefix(folder)
        try:
            document = _to_document(record, fields or {}, needed, id_=own_id, source=path.name)
            # Ids made of line numbers are unique; keeping millions of them would fill the memory.
            if document.id != own_id:
                document = _with_unique_id(document, record.where, known)
        except DataError as error:
            if rejected is None:
                raise
            what = error.what[:LONGEST_REASON]
            rejected.append(RejectedRecord(record.where, what, record.raw[:200], error.fix))
            num_rejected += 1
            if num_rejected >= MOST_REJECTED and isinstance(getattr(rejected, "kept_in", rejected), list):
                fix = "check that it is a file of articles; python -m corpora.build lists all of them"
                raise DataError(path, f"{num_rejected:,} bad records", fix) from error
            continue
        yield document
    if is_empty and str(path) != STANDARD_INPUT:
        raise DataError(path, "no documents in it", "give a file with at least one record")


def read_files(
    paths: Iterable[str | Path],
    rejected: list[RejectedRecord],
    *,
    fields: Mapping[str, str] | None = None,
    text_unit: TextUnit = "block",
) -> Iterator[Document]:
    """Read the documents of files and folders one by one; a file that cannot be read costs itself alone.

    Args:
        paths: files of any format of `read_documents`, folders of them, or `-`.
        rejected: bad records are appended to it, and files that cannot be read.
        fields: column of each field, as in `read_documents`.
        text_unit: what a document is in plain text.

    Raises:
        UsageError: at once, if a path does not exist or a folder holds no article.
        DataError: the only file cannot be read.
    """
    files = find_files(paths)
    return _each(
        files, rejected, lambda path: read_documents(path, fields=fields, text_unit=text_unit, rejected=rejected)
    )


def read_texts(paths: Iterable[Path], rejected: list[RejectedRecord]) -> Iterator[tuple[str, str]]:
    """Read text files, folders of them, or `-`; yields name and text. Errors are those of `read_files`."""
    return _each(find_files(paths, (".txt",)), rejected, lambda path: iter([(str(path), read_text(path))]))


def _each(
    files: Sequence[str], rejected: list[RejectedRecord], read: Callable[[Path], Iterator[_Found]]
) -> Iterator[_Found]:
    for name in files:
        try:
            yield from read(Path(name))
        except DataError as error:
            if len(files) == 1:
                raise
            rejected.append(RejectedRecord(str(error.where), error.what[:LONGEST_REASON], "", error.fix))


def report_rejected(rejected: Sequence[RejectedRecord]) -> int:
    """Print a line for each bad record or file; returns the exit code of a command that has done everything else."""
    for bad in rejected:
        sys.stderr.write(f"{bad.where}: {bad.reason}; {bad.fix}\n")
    return EXIT_FAILED_CELLS if rejected else EXIT_DONE


def _with_unique_id(document: Document, where: str, known: dict[str, bytes]) -> Document:
    """Return the document, under another id if its own is that of another one."""
    content = hashlib.blake2b(f"{document.title}\n{document.text}".encode("utf-8", "surrogatepass"), digest_size=8)
    digest = content.digest()
    if document.id not in known:
        known[document.id] = digest
        return document
    if known[document.id] == digest:
        raise DataError(where, f"duplicate id '{document.id}'", "remove one of the two records")
    if "" not in known:
        known[""] = b""
        logger.warning("%s: id '%s' is that of another document; such ids get the line", where, document.id)
    return _with_unique_id(replace(document, id=f"{document.id}~{where.rpartition(':')[2]}"), where, known)


def _to_document(
    record: Record, fields: Mapping[str, str], needed: Literal["text", "title"], *, id_: str, source: str
) -> Document:
    if record.error is not None:
        raise record.error
    values, where = record.values, record.where
    found = candidates(tuple(values))
    columns = {name: _column(name, found[name], values, fields, where) for name in FIELD_NAMES}
    if needed == "title" and columns["title"] is None and "title" not in fields:
        columns["title"], columns["text"] = columns["text"], None
    if columns[needed] is None:
        if found[needed]:
            raise DataError(where, f"column '{found[needed][0]}' holds no text", "name another column or fill this one")
        raise DataError(where, f"no {needed} column ({seen(values)})", name_column(needed))
    texts = {name: nfc(str(_first(values[column]))) for name, column in columns.items() if column is not None}
    if SURROGATES.search("".join(texts.values())):
        raise DataError(where, "a lone surrogate, which is not a character", "export the record again as UTF-8")
    texts["text"] = strip_markup(texts.get("text", ""))
    texts["title"] = " ".join(strip_markup(texts.get("title", "")).split())
    if not texts[needed].strip():
        raise DataError(where, "empty document", f"remove the record or fill its {needed}")
    if not texts.get("id", "").strip():
        texts["id"] = id_
    extra = {name: value for name, value in values.items() if name not in columns.values()}
    return Document(**texts, source=source, extra=extra)


def name_column(field: str) -> str:
    """Return what to do about a record in which no column looks like FIELD."""
    return f"name it, e.g. {field}=…"


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) else value


def _column(
    name: str, found: tuple[str, ...], values: Mapping[str, Any], fields: Mapping[str, str], where: str
) -> str | None:
    if name not in fields:
        return next((column for column in found if _is_value(values[column], name)), None)
    column = column_named(fields[name], values)
    if column is None:
        raise DataError(where, f"missing column '{fields[name]}'", suggest(fields[name], values))
    if not _is_value(values[column], name):
        raise DataError(where, f"column '{column}' holds no text", "name another column or fill this one")
    return column


def _is_value(value: Any, name: str) -> bool:
    """Whether a field can have this value; of several sections or bylines the first counts."""
    if isinstance(value, list) and name != "text":
        return bool(value) and _is_value(value[0], name)
    return is_scalar(value)
