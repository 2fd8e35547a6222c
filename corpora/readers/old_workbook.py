"""Files named `.xls`: workbooks of Excel 97 to 2003, and what web systems send under that name.

Such systems write an HTML table, an XML workbook of Excel 2003, or tab-separated text; Excel opens all of them.
"""

import itertools
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal, TypeAlias

from python_calamine import CalamineError, CalamineWorkbook

from corpora.foundation.errors import DataError
from corpora.readers.decoding import WRITTEN_AGAIN
from corpora.readers.pages import closed, decode_page
from corpora.readers.workbook import rows_with_text

Kind: TypeAlias = Literal["workbook", "old workbook", "page", "text"]
COMPOUND_FILE = bytes.fromhex("d0cf11e0a1b11ae1")
LARGEST = 1 << 28
"""Bytes of a file: 65,536 rows of 4 KiB."""
LAST_COLUMN = 256
"""Columns of a sheet in Excel 2003."""
PAGE = re.compile(r"\s*<(?:\?xml|!doctype|html|head|meta|style|body|table|!--)", re.IGNORECASE)
ROWS = {"tr", "row", "ss:row"}
CELLS = {"td", "th", "cell", "ss:cell"}
BREAKS = {"br", "p", "div", "li"}
HIDDEN = {"style", "script", "title"}


def kind_of(path: Path) -> Kind:
    """Return what a file named `.xls` is.

    Raises:
        DataError: it is missing, has zero bytes or is too large.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(1 << 10)
    except OSError as error:
        raise DataError(path, error.strerror or str(error), "check the path and its permissions") from error
    if not head:
        raise DataError(path, "the file has zero bytes", WRITTEN_AGAIN)
    if size > LARGEST:
        raise DataError(path, f"more than {LARGEST:,} bytes", "export it in parts, or as .csv")
    if head.startswith(b"PK"):
        return "workbook"
    if head.startswith(COMPOUND_FILE):
        return "old workbook"
    codec = "utf-16" if head[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
    return "page" if PAGE.match(head.decode(codec, "ignore")) else "text"


def read_old_sheet(path: Path, index: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a sheet of a workbook of Excel 97 to 2003; see `read_sheet`.

    Raises:
        DataError: the file is no workbook, or is encrypted or damaged.
    """
    try:
        with path.open("rb") as file:
            rows = CalamineWorkbook.from_filelike(file).get_sheet_by_index(index).to_python(skip_empty_area=False)
    except (CalamineError, LookupError, ValueError, RuntimeError) as error:
        raise DataError(path, f"not an Excel workbook ({error})", "save it as .xlsx in Excel") from error
    yield from rows_with_text(rows, {})


def read_page_table(path: Path, encoding: str = "auto") -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of the tables of an HTML page, or of the first sheet of an XML workbook.

    Raises:
        DataError: the page has no encoding that is known, or no table.
    """
    reader = _Table()
    try:
        reader.feed(closed(decode_page(path.read_bytes(), encoding)))
        reader.close()
    except ValueError as error:
        raise DataError(path, str(error), WRITTEN_AGAIN) from error
    if not reader.rows:
        raise DataError(path, "a page without a table", "save it as .xlsx in Excel")
    for number, row in enumerate(reader.rows, start=1):
        if any(cell.strip() for cell in row):
            yield number, row


class _Table(HTMLParser):
    """Collects rows; a cell of a table within a cell is text of the outer one."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._cell: list[str] | None = None
        self._span = 1
        self._depth = 0
        self._num_sheets = 0
        self._hidden = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in HIDDEN:
            self._hidden = tag
        elif tag in {"worksheet", "ss:worksheet"}:
            self._num_sheets += 1
        elif tag == "table":
            self._depth += 1
        elif tag in BREAKS and self._cell:
            self._cell.append("\n")
        elif self._num_sheets > 1 or self._depth > 1:
            return
        elif tag in ROWS:
            self._end_cell()
            self.rows.append([])
        elif tag in CELLS and self.rows:
            self._end_cell()
            named = dict(attributes)
            row = self.rows[-1]
            # A cell of an XML workbook may skip columns.
            index = _number(named.get("ss:index")) - 1
            row += [""] * (min(index, LAST_COLUMN) - len(row))
            self._cell, self._span = [], min(max(1, _number(named.get("colspan"))), LAST_COLUMN)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in BREAKS:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == self._hidden:
            self._hidden = ""
        elif tag == "table":
            self._depth -= 1
        if self._depth <= 1 and tag in ROWS | CELLS | {"table"}:
            self._end_cell()

    def handle_data(self, data: str) -> None:
        if self._cell is not None and not self._hidden:
            self._cell.append(data)

    def _end_cell(self) -> None:
        if self._cell is not None:
            lines = (" ".join(line.split()) for line in "".join(self._cell).splitlines())
            self.rows[-1] += ["\n".join(filter(None, lines)), *itertools.repeat("", self._span - 1)]
        self._cell = None


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else 0
