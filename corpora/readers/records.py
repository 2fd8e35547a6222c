"""Files into records, one at a time: JSON, tables, plain text, pages, WARC, and zip archives of them.

Every record is yielded, good or bad, so that readers can count them: accepted + rejected = records.
"""

import functools
import itertools
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from corpora.characters import nfc
from corpora.foundation.errors import DataError, UsageError
from corpora.foundation.floors import needs
from corpora.foundation.plugins import plugins, refuse_taken
from corpora.foundation.unpacking import open_unpacked
from corpora.readers.archives import (
    LARGEST_PAGE,
    members_of,
    pages_of_warc,
    read_docx,
    read_hwp,
    read_hwpx,
    unpack_member,
)
from corpora.readers.decoding import (
    BROKEN,
    LONGEST_DOCUMENT,
    STANDARD_INPUT,
    WRITTEN_AGAIN,
    BadLine,
    Encoding,
    format_of,
    read_decoded,
)
from corpora.readers.fields import names_article
from corpora.readers.nested import flatten, is_article, records_of_object
from corpora.readers.old_workbook import kind_of, read_old_sheet, read_page_table
from corpora.readers.pages import decode_page, read_agency_xml, read_html
from corpora.readers.tables import read_rows
from corpora.readers.workbook import num_sheets, read_sheet

logger = logging.getLogger(__name__)

TextUnit: TypeAlias = Literal["block", "line", "file"]
TABLES = {".csv": ",", ".tsv": "\t"}
DOCUMENTS: Mapping[str, Callable[[Path], str]] = {".hwpx": read_hwpx, ".hwp": read_hwp, ".docx": read_docx}
PAGES = (".html", ".htm", ".xml", *DOCUMENTS)
CONVERTED = {
    ".doc": "save it as .docx in Word; ",
    ".pdf": "export its text as .txt; ",
    ".sql": "export the table as .csv; ",
    ".md": "rename it to .txt; ",
}
"""Advice on formats that are not read."""
CONTAINERS = (".warc", ".zip")
COLUMNS = (".xlsx", ".xls", ".parquet", ".arrow")
FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".txt", *COLUMNS, *PAGES, *CONTAINERS)
BATCH = 1_000
"""Rows of Parquet and Arrow that are in memory at a time."""
HEADER_WITHIN = 10
"""Rows of a workbook in which its header is looked for."""
DEEPEST_LIST = 3
"""Objects around the list of records in a JSON file, e.g. `{"response": {"body": {"items": […]}}}`."""


@dataclass(frozen=True)
class Record:
    """A record of a file."""

    where: str
    """`file:line`; `file:record` in JSON and Parquet."""
    raw: str
    """As it was read."""
    values: dict[str, Any]
    """By column; empty for a bad record."""
    error: DataError | None = None


@dataclass(frozen=True)
class FileReader:
    """A file format of a plug-in (`pressbert.readers`)."""

    suffix: str
    """In lower case, with its dot, e.g. `.hwp`."""
    read: Callable[[Path], Iterator[Record]]
    """Yields the records of a file in order, bad ones with their `error`; raises DataError if nothing can be read."""


@functools.cache
def formats() -> tuple[str, ...]:
    """Return the suffixes that are read, those of plug-ins last."""
    added = plugins("readers", FileReader, key="suffix")
    refuse_taken("readers", added, FORMATS)
    return (*FORMATS, *added)


def find_files(paths: Iterable[str | Path], suffixes: Sequence[str] = ()) -> list[str]:
    """Return the files to read without repetitions, those of a folder sorted by name.

    Args:
        paths: files, folders, or `-`.
        suffixes: of the files that are read in folders; none: those of `formats()`.

    Raises:
        UsageError: a path does not exist, or a folder holds no such file.
    """
    files: list[str] = []
    suffixes = suffixes or formats()
    for path in map(Path, paths):
        name = str(path)
        if name == STANDARD_INPUT or path.is_file():
            files.append(name)
            continue
        if not path.is_dir():
            raise UsageError(name, "no such file or folder", "check the path")
        inside = [str(file) for file in sorted(path.rglob("*")) if file.is_file() and format_of(file) in suffixes]
        if not inside:
            raise UsageError(name, f"no {', '.join(suffixes)} files in it", "give the folder that holds the articles")
        files += inside
    return list(dict.fromkeys(files))


def check_format(path: Path) -> str:
    """Return the format of a file.

    Raises:
        DataError: it is none that is read.
    """
    suffix = format_of(path)
    if suffix not in formats():
        advice = CONVERTED.get(suffix, "")
        fix = f"{advice}use one of {', '.join(formats())}, or .gz or .zst of these"
        raise DataError(path, f"unknown format '{suffix}'", fix)
    return suffix


def read_records(
    path: Path, text_unit: TextUnit = "block", encoding: Encoding = "auto", *, has_header: bool = True
) -> Iterator[Record]:
    """Yield the records of a file in order.

    Args:
        path: of a format in `formats()`, perhaps compressed. `.json` is parsed as a whole and needs memory for it.
        text_unit: what a record is in plain text.
        encoding: of text files.
        has_header: whether the first row of a CSV or TSV file names its columns; otherwise they are `1`, `2`, ….

    Raises:
        DataError: the file cannot be read at all.
    """
    suffix = check_format(path)
    if suffix not in FORMATS:
        yield from plugins("readers", FileReader, key="suffix")[suffix].read(path)
    elif suffix in {".parquet", ".arrow"}:
        yield from _read_columns(path, suffix)
    elif suffix == ".xlsx":
        yield from _read_workbook(path, read_sheet)
    elif suffix == ".xls":
        yield from _read_old_workbook(path, encoding)
    elif suffix in PAGES:
        yield from _read_page(path, suffix, encoding)
    elif suffix == ".warc":
        yield from _read_warc(path)
    elif suffix == ".zip":
        yield from _read_zip(path, text_unit, encoding)
    elif suffix == ".json":
        yield from _read_json(path, encoding)
    else:
        lines = read_decoded(path, encoding)
        if suffix == ".jsonl":
            yield from _read_json_lines(lines, path)
        elif suffix in TABLES:
            yield from _read_table(lines, path, TABLES[suffix], has_header=has_header)
        else:
            yield from _read_text(_named_if_table(lines, path), path, text_unit)


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
    return {nfc(name): content for name, content in flatten(value).items()}


def _record(where: str, raw: str, values: dict[str, Any] | DataError) -> Record:
    return Record(where, raw, {}, values) if isinstance(values, DataError) else Record(where, raw, values)


def _unreadable(where: str, line: BadLine) -> Record:
    return Record(where, line.text, {}, DataError(where, line.reason, WRITTEN_AGAIN))


def _read_json_lines(lines: Iterator[str | BadLine], path: Path) -> Iterator[Record]:
    """Read an object a line, or indented ones, which begin and end with a line of a brace alone."""
    block: list[str] = []
    first = size = 0

    def finished() -> Record:
        where, raw = f"{path}:{first}", "".join(block)
        block.clear()
        return _record(where, raw, parse_json_object(raw.rstrip().removesuffix(","), where))

    for number, line in enumerate(lines, start=1):
        if block:
            if isinstance(line, str) and not line.startswith("{") and size < LONGEST_DOCUMENT:
                block.append(line)
                size += len(line)
                if line.rstrip() in {"}", "},"}:
                    yield finished()
                continue
            yield finished()  # bad: it was never closed
        where = f"{path}:{number}"
        if isinstance(line, BadLine):
            yield _unreadable(where, line)
        elif line.rstrip() == "{":
            block, first, size = [line], number, 0
        elif line.strip():
            yield _record(where, line, parse_json_object(line, where))
    if block:
        yield finished()


def _read_table(lines: Iterator[str | BadLine], path: Path, delimiter: str, *, has_header: bool) -> Iterator[Record]:
    rows = read_rows(lines, delimiter)
    header = next(rows, None)
    names = [nfc(name).strip() for name in header.cells] if header else []
    if header and header.reason and has_header:
        yield Record(f"{path}:1", header.raw, {}, DataError(f"{path}:1", header.reason, WRITTEN_AGAIN))
    if header and not has_header:
        names = [str(number) for number in range(1, len(header.cells) + 1)]
        rows = itertools.chain([header], rows)
    for row in rows:
        where = f"{path}:{row.number}"
        if row.reason:
            fix = "correct the separators or quotes of the row"
            yield Record(where, row.raw, {}, DataError(where, row.reason, fix))
        else:
            yield Record(where, str(row.cells), dict(zip(names, row.cells, strict=True)))


def _read_json(path: Path, encoding: Encoding) -> Iterator[Record]:
    parts: list[str] = []
    for number, line in enumerate(read_decoded(path, encoding, longest=LONGEST_DOCUMENT), start=1):
        if isinstance(line, BadLine):
            raise DataError(f"{path}:{number}", line.reason, WRITTEN_AGAIN)
        parts.append(line)
    try:
        value = json.loads("".join(parts))
    except (ValueError, RecursionError) as error:
        # Exports of databases in JSON Lines are often called .json, and jq writes one indented object after another.
        is_first_whole = getattr(error, "msg", "") == "Extra data" and parts[0].startswith("{")
        if len(parts) > 1 and (is_first_whole or isinstance(parse_json_object(parts[0], ""), dict)):
            yield from _read_json_lines(iter(parts), path)
            return
        fix = "export it again, or as .jsonl with one {…} a line"
        raise DataError(path, f"not valid JSON ({error})", fix) from error
    items = records_of_object(value) if isinstance(value, dict) else []
    if not items:
        items = [value] if isinstance(value, dict) and is_article(value) else _list_in(value, path)
    for number, item in enumerate(items, start=1):
        where = f"{path}:{number}"
        yield _record(where, str(item), _to_object(item, where))


def _list_in(value: Any, path: Path) -> list[Any]:
    """Return the list of records: the value itself, or the only list of objects in objects around it."""
    level = [value]
    for _ in range(DEEPEST_LIST + 1):
        lists = [item for item in level if isinstance(item, list) and all(isinstance(each, dict) for each in item)]
        if isinstance(value, list):
            return value
        if len(lists) == 1:
            return lists[0]
        if lists:
            what = f"{len(lists)} lists of records in one object"
            raise DataError(path, what, "write the records as one array, [{…}, …]")
        level = [inner for item in level if isinstance(item, dict) for inner in item.values()]
    raise DataError(path, f"a {type(value).__name__} where an array is expected", "write the records as [{…}, …]")


def _named_if_table(lines: Iterator[str | BadLine], path: Path) -> Iterator[str | BadLine]:
    """Yield the lines of a text; a first line that reads like the header of a table is named."""
    for number, line in enumerate(lines):
        if not number and isinstance(line, str) and "\t" in line and names_article(line.strip().split("\t")):
            logger.warning("%s: read as text, but its first line names columns; rename it to .tsv to read them", path)
        yield line


def _read_text(lines: Iterator[str | BadLine], path: Path, unit: TextUnit) -> Iterator[Record]:
    if unit == "line":
        for number, line in enumerate(lines, start=1):
            where = f"{path}:{number}"
            if isinstance(line, BadLine):
                yield _unreadable(where, line)
            elif line.strip():
                yield Record(where, line, {"text": line.rstrip("\r\n")})
        return
    block: list[str] = []
    bad: BadLine | None = None
    first = 1

    def finished() -> Iterator[Record]:
        where = f"{path}:{first}"
        if bad is not None:
            yield _unreadable(where, bad)
        elif block:
            text = "".join(block)
            yield Record(where, "" if unit == "file" else block[0], {"text": text if unit == "file" else text.rstrip()})

    for number, line in enumerate(lines, start=1):
        is_blank = isinstance(line, str) and not line.strip()
        if is_blank and unit == "block":
            yield from finished()
            block, bad = [], None
            continue
        first = number if unit == "block" and not block and bad is None else first
        if isinstance(line, BadLine):
            bad = bad or line
        else:
            block.append(line)
    yield from finished()


def _read_old_workbook(path: Path, encoding: Encoding) -> Iterator[Record]:
    kind = kind_of(path)
    if kind == "text":
        yield from _read_table(read_decoded(path, encoding), path, TABLES[".csv"], has_header=True)
    elif kind == "page":
        yield from _read_sheet(read_page_table(path, encoding), path)
    else:
        yield from _read_workbook(path, read_sheet if kind == "workbook" else read_old_sheet)


def _read_workbook(path: Path, read: Callable[[Path, int], Iterator[tuple[int, list[str]]]]) -> Iterator[Record]:
    """Read the first sheet; if it is a cover, whose rows have one cell each, the first one that names an article."""
    rows = read(path, 0)
    first = list(itertools.islice(rows, HEADER_WITHIN))
    is_cover = all(len(list(filter(None, cells))) <= 1 for _, cells in first)
    for index in range(1, num_sheets(path)) if is_cover else ():
        others = read(path, index)
        head = list(itertools.islice(others, HEADER_WITHIN))
        if any(len(cells) > 1 and names_article(cells) for _, cells in head):
            logger.warning("%s: sheet %d is read, for the first one has no table", path, index + 1)
            first, rows = head, others
            break
    yield from _read_sheet(itertools.chain(first, rows), path)


def _read_sheet(read: Iterator[tuple[int, list[str]]], path: Path) -> Iterator[Record]:
    rows = list(itertools.islice(read, HEADER_WITHIN))
    # Exports have a heading above the table: rows of a single cell.
    most = next((index for index, (_, cells) in enumerate(rows) if len(list(filter(None, cells))) > 1), 0)
    header = most if rows and names_article(rows[most][1]) else 0
    names = [nfc(name).strip() for name in rows[header][1]] if rows else []
    for number, cells in itertools.chain(rows[header + 1 :], read):
        values = {name: cell for name, cell in itertools.zip_longest(names, cells[: len(names)], fillvalue="") if name}
        yield Record(f"{path}:{number}", str(values), dict(values))


def _read_columns(path: Path, suffix: str) -> Iterator[Record]:
    """Read Parquet, or the Arrow files of a data set that `datasets` saved."""
    needs("pyarrow")
    import pyarrow as pa

    try:
        if not path.is_file():
            raise FileNotFoundError(2, os.strerror(2))
        number = 0
        for batch in _parquet_batches(path) if suffix == ".parquet" else _arrow_batches(path):
            for row in batch.to_pylist():
                number += 1
                yield _record(f"{path}:{number}", str(row), _to_object(row, f"{path}:{number}"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        kind = "a Parquet" if suffix == ".parquet" else "an Arrow"
        raise DataError(path, f"not {kind} file ({str(error).splitlines()[0]})", WRITTEN_AGAIN) from error
    except OSError as error:
        raise DataError(path, error.strerror or str(error), "check the path and its permissions") from error


def _parquet_batches(path: Path) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=BATCH)


def _arrow_batches(path: Path) -> Iterator[Any]:
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        for batch in pa.ipc.open_stream(source):
            yield from (batch.slice(first, BATCH) for first in range(0, len(batch), BATCH))


def _read_page(path: Path, suffix: str, encoding: Encoding) -> Iterator[Record]:
    """Read a file of one article, or of one message with several; a damaged one is one bad record."""
    number, raw = 1, ""
    try:
        if suffix in DOCUMENTS:
            yield Record(f"{path}:1", "", {"title": path.stem, "text": DOCUMENTS[suffix](path)})
            return
        with open_unpacked(path) as file:
            content = file.read(LARGEST_PAGE + 1)
        if len(content) > LARGEST_PAGE:
            raise ValueError(f"a page of more than {LARGEST_PAGE:,} bytes")
        raw = decode_page(content, encoding)
        for number, values in enumerate([read_html(raw)] if suffix != ".xml" else read_agency_xml(raw), start=1):
            yield Record(f"{path}:{number}", raw, values)
    except (ValueError, *BROKEN) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(path, error.strerror or str(error), "check the path and its permissions") from error
        where = f"{path}:{number}"
        yield Record(where, raw, {}, DataError(where, str(error), WRITTEN_AGAIN))


def _read_warc(path: Path) -> Iterator[Record]:
    for number, address, content in pages_of_warc(path):
        where = f"{path}:{number}"
        try:
            if isinstance(content, str):
                raise ValueError(content)
            page = decode_page(content)
            yield Record(where, page, {"url": address} | read_html(page))
        except ValueError as error:
            yield Record(where, address, {}, DataError(where, str(error), WRITTEN_AGAIN))


def _read_zip(path: Path, unit: TextUnit, encoding: Encoding) -> Iterator[Record]:
    """Read the files of a zip archive one after the other; one that cannot be read is one bad record."""
    try:
        members = [each for each in members_of(path) if format_of(Path(each.filename)) in set(FORMATS) - {".zip"}]
    except ValueError as error:
        raise DataError(path, str(error), WRITTEN_AGAIN) from error
    if not members:
        raise DataError(path, "nothing to read in this archive", f"give files of {', '.join(FORMATS)}")
    for member in members:
        with tempfile.TemporaryDirectory(prefix="pressbert-") as folder:
            inside = f"{path}!{member.filename}"
            try:
                unpacked = unpack_member(path, member, Path(folder))
                for record in read_records(unpacked, unit, encoding):
                    where = record.where.replace(str(unpacked), inside, 1)
                    bad = record.error and DataError(where, record.error.what, record.error.fix)
                    yield Record(where, record.raw, record.values, bad)
            except (ValueError, DataError) as error:
                what = error.what if isinstance(error, DataError) else str(error)
                yield Record(f"{inside}:1", "", {}, DataError(f"{inside}:1", what, WRITTEN_AGAIN))
