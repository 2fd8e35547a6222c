"""Rows of an Excel workbook (.xlsx) as text, by python-calamine, after a check that the file does not fill the memory.

Numbers are written as in the file, with all their digits. A date is Excel's number of days, whatever its format.
"""

import datetime
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from python_calamine import CalamineError, CalamineWorkbook

from corpora.foundation.errors import DataError
from corpora.foundation.unpacking import ZipArchive, open_zip

LARGEST_PART = 1 << 30
"""Bytes of the largest part that is unpacked: a workbook of a million articles has less, a zip bomb has more."""
PARTS = ("workbook.xml", "_rels/workbook.xml.rels")
"""Names of the sheets and of their files."""
LAST_COLUMN = 16_384
"""Columns of a sheet in Excel."""
MAX_CELLS = 1 << 25
"""Rows × columns of a sheet, all of which are held in memory, however few have a value."""
FREE_CELLS = 1 << 20
"""Cells that a sheet may have whatever its size; beyond, it has at most two for each byte of the packed file."""
TAG = re.compile(rb"<(?:\w+:)?(row|c)\b([^<>]*)>(?:[^<]*<(?:\w+:)?v>([^<]{16,})<)?")
"""A row or cell, its attributes, and its value if that has more digits than a floating-point number may hold."""
REFERENCE = re.compile(rb"\br\s*=\s*[\"']([A-Z]*)(\d+)[\"']")
DAY_0 = datetime.datetime(1899, 12, 30)  # noqa: DTZ001 - a cell has no time zone
ONE_DAY = datetime.timedelta(days=1)
LongNumbers = Mapping[tuple[int, int], str]


def num_sheets(path: Path) -> int:
    """Return the number of sheets of a workbook, of which `read_sheet` has read one."""
    with path.open("rb") as file:
        return len(CalamineWorkbook.from_filelike(file).sheet_names)


def read_sheet(path: Path, index: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a workbook's sheet that have a value: number, from 1, and the texts of the cells.

    Raises:
        DataError: the file is missing, is no workbook, or is too large.
    """
    try:
        long_numbers = _check(path, index)
        with path.open("rb") as file:  # by its content: a new workbook may have the old suffix
            sheet = CalamineWorkbook.from_filelike(file).get_sheet_by_index(index)
            rows = sheet.to_python(skip_empty_area=False)
    except (
        ElementTree.ParseError,
        CalamineError,
        LookupError,
        ValueError,
        RuntimeError,
        StopIteration,
    ) as error:
        # A legacy .xls, a file that Excel encrypted, and a truncated download all end here.
        raise DataError(path, f"not an Excel workbook ({error})", "export it again as .xlsx or .csv") from error
    except OSError as error:
        raise DataError(path, error.strerror or str(error), "check the path and its permissions") from error
    yield from rows_with_text(rows, long_numbers)


def rows_with_text(rows: Iterable[Sequence[object]], long_numbers: LongNumbers) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that have a value; LONG_NUMBERS has the digits that floating-point numbers do not hold."""
    for number, row in enumerate(rows, start=1):
        cells = [_text(value, long_numbers.get((number, column))) for column, value in enumerate(row, start=1)]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            yield number, cells


def _text(value: object, long_number: str | None) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return value
        case datetime.datetime():
            value = (value - DAY_0) / ONE_DAY
        case datetime.date():
            value = float((value - DAY_0.date()).days)
        case datetime.time():
            value = (datetime.datetime.combine(DAY_0, value) - DAY_0) / ONE_DAY
        case datetime.timedelta():
            value = value / ONE_DAY
    number = float(str(value))
    if number.is_integer() and abs(number) < 1 << 53:
        return str(int(number))
    return long_number or repr(number)


# ---- what a file would unpack to ----


def _check(path: Path, index: int) -> LongNumbers:
    """Return the long numbers of a sheet by row and column.

    Raises:
        ValueError: a part or sheet is too large, or has what no program writes.
    """
    long_numbers = {}
    most = min(MAX_CELLS, max(FREE_CELLS, 2 * path.stat().st_size))
    with open_zip(path) as book:
        for info in book.members:
            long_numbers[info.filename] = _check_part(info.filename, book.read(info, LARGEST_PART), most)
        return long_numbers[_name_of_sheet(book, index)]


def _check_part(name: str, content: bytes, most: int) -> LongNumbers:
    """Refuse sheets that are too large in memory; return their long numbers."""
    if b"<!DOCTYPE" in content:
        # No part of a workbook may have one (ECMA-376, part 2, §8.1), and entities are how XML bombs are made.
        raise ValueError(f"{name} has a document type")
    long_numbers: dict[tuple[int, int], str] = {}
    row = column = last_row = last_column = 0
    for tag in TAG.finditer(content):
        kind, attributes, number = tag.groups()
        if attributes.count(b'"') % 2 or attributes.count(b"'") % 2:
            raise ValueError(f"{name} has a tag in an attribute")
        reference = REFERENCE.search(attributes)
        if kind == b"row":
            row, column = int(reference[2]) if reference else row + 1, 0
        elif reference:
            row, column = int(reference[2]), _column(reference[1])
        else:
            column += 1
        last_row, last_column = max(last_row, row), max(last_column, column)
        if last_column > LAST_COLUMN or last_row * last_column > most:
            raise ValueError(f"{name} has a cell in row {row:,}, column {column:,}")
        if number:
            long_numbers[row, column] = number.decode("ascii", "replace")
    return long_numbers


def _column(letters: bytes) -> int:
    """Return the number of a column from 1: `AB` is 28."""
    number = 0
    for letter in letters[:8]:
        number = 26 * number + letter - ord("A") + 1
    return number


def _name_of_sheet(book: ZipArchive, index: int) -> str:
    # Safe to parse: no part has a document type.
    named = {info.filename: info for info in book.members}
    parts = (book.read(named[f"xl/{part}"], LARGEST_PART) for part in PARTS)
    workbook, relations = map(ElementTree.fromstring, parts)
    sheets = (element for element in workbook.iter() if element.tag.endswith("}sheet"))
    sheet = next(itertools.islice(sheets, index, None))
    relation = next(value for name, value in sheet.attrib.items() if name.endswith("}id"))
    target = next(element.attrib["Target"] for element in relations if element.attrib["Id"] == relation)
    return target.lstrip("/") if target.startswith("/") else str(PurePosixPath("xl", target))
