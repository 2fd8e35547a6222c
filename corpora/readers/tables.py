"""Rows of CSV and TSV files as spreadsheets read them, one bad row at a time.

A field that begins with a quotation mark runs to its closing mark, over line breaks if need be. Within a line, text
after the closing mark belongs to the field (`"새 다리" 열린다` → `새 다리 열린다`). If a mark is not closed properly,
or the row does not have as many fields as the header, the marks of that line are ordinary characters. Every row is
accepted or reported with its line (the last one of a record over several), and reading continues on the next line.
"""

import csv
import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from corpora.readers.decoding import BadLine

QUOTE = '"'
LONGEST_RECORD = 1 << 26
"""Characters of a record over several lines; a mark that is open for longer was never closed."""
MOST_AGAIN = 1_000_000
"""Lines that are read again because a mark was not closed; then marks are ordinary characters in the whole file."""
SAMPLE_LINES = 2_000
"""Lines of a tab-separated file that decide whether quotation marks enclose its fields."""
DELIMITERS = (",", "\t", ";", "|")
STATED_DELIMITER = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
"""The first line of a table that tells Excel its delimiter."""

# Some sources have a whole book in one field; the module's default of 128 KiB refuses it.
csv.field_size_limit(1 << 30)


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    number: int
    """Line on which it ends, from 1."""
    cells: list[str]
    reason: str = ""
    """Why it is no row of this table; empty for a good one."""
    raw: str = ""
    """The line of a bad row."""


def read_rows(lines: Iterable[str | BadLine], delimiter: str = ",") -> Iterator[Row]:
    """Yield the rows of a table, its header first.

    Args:
        lines: with their line ends.
        delimiter: between the fields; if it is a comma and the header has none, the delimiter of the header.

    Yields:
        Rows with as many cells as the header, and bad rows with the reason. Blank lines are skipped.
    """
    table = _Table(lines, delimiter)
    yield from table.rows()


class _Table:
    """A table while it is read."""

    def __init__(self, lines: Iterable[str | BadLine], delimiter: str) -> None:
        self._lines = enumerate(lines, start=1)
        self._again: deque[tuple[int, str | BadLine]] = deque()
        self._delimiter = delimiter
        self._is_quoted = True
        self._width = 0
        self._num_again = 0

    def rows(self) -> Iterator[Row]:
        """Yield the header, then the other rows."""
        sample = list(itertools.islice(self._lines, SAMPLE_LINES))
        self._again.extend(sample)
        if sample and (stated := STATED_DELIMITER.fullmatch(str(sample[0][1]).strip())):
            self._delimiter = stated[1]
            self._again.popleft()
        first = next((line for _, line in self._again if isinstance(line, str) and line.strip()), "")
        if self._delimiter == "," and "," not in first:
            self._delimiter = next((each for each in DELIMITERS if each in first), ",")
        if self._delimiter == "\t":
            self._is_quoted = not any(isinstance(line, str) and self._has_loose_mark(line) for _, line in sample)
        for number, line in iter(self._next, None):
            if isinstance(line, BadLine):
                yield Row(number, [], line.reason, line.text)
            elif line.strip():
                yield self._row(number, line)

    def _next(self) -> tuple[int, str | BadLine] | None:
        return self._again.popleft() if self._again else next(self._lines, None)

    def _row(self, number: int, line: str) -> Row:
        literal = line.rstrip("\r\n").split(self._delimiter)
        if not self._is_quoted or QUOTE not in line:
            return self._fitted(number, literal, line)
        span = self._span(number, line)
        if span:
            row = self._fitted(number + len(span) - 1, self._cells(span), line)
            if not row.reason:
                return row
            self._give_back(number, span)
        return self._fitted(number, literal, line)

    def _cells(self, span: list[str]) -> list[str]:
        """Split a record; over several lines its marks must be closed properly, or a stray one would swallow rows."""
        try:
            return next(csv.reader(span, delimiter=self._delimiter, strict=len(span) > 1))
        except csv.Error:
            return []

    def _span(self, number: int, line: str) -> list[str]:
        """Return the lines of a record, all of whose quoted fields are closed; none if one never is."""
        span, size = [line], len(line)
        is_open = _is_open(line, self._delimiter, is_open=False)
        while is_open:
            following = self._next()
            if following is None or isinstance(following[1], BadLine) or size > LONGEST_RECORD:
                self._give_back(number, span)
                if following is not None:
                    self._again.insert(len(span) - 1, following)
                return []
            span.append(following[1])
            size += len(following[1])
            is_open = _is_open(following[1], self._delimiter, is_open=True)
        return span

    def _give_back(self, number: int, span: list[str]) -> None:
        """Have all lines but the first read again."""
        self._again.extendleft(reversed([(number + k, line) for k, line in enumerate(span) if k]))
        self._num_again += len(span)
        if self._num_again > MOST_AGAIN:
            # Every mark is a stray one, and looking for the closing one of each takes the square of the lines.
            self._is_quoted = False

    def _fitted(self, number: int, cells: list[str], line: str) -> Row:
        if not self._width:
            self._width = len(cells)  # of the header
        extra = len(cells) - self._width
        if extra > 0 and not any(cell.strip() for cell in cells[self._width :]):
            cells, extra = cells[: self._width], 0
        if not extra:
            return Row(number, cells)
        return Row(number, cells, f"{len(cells)} columns where the header has {self._width}", line)

    def _has_loose_mark(self, line: str) -> bool:
        """Whether a field begins with a mark and has text behind its closing one: then marks are part of the text."""
        cells = line.rstrip("\r\n").split(self._delimiter)
        marked = [cell for cell in cells if cell.startswith(QUOTE)]
        return any(cell.count(QUOTE) % 2 == 0 and not cell.endswith(QUOTE) for cell in marked)


def _is_open(line: str, delimiter: str, *, is_open: bool) -> bool:
    """Whether a quoted field is open at the end of a line, if one was open (or not) at its beginning."""
    position = 0
    if not is_open:
        if not line.startswith(QUOTE):
            position = line.find(delimiter + QUOTE)
            if position < 0:
                return False
            position += len(delimiter)
        position += 1
    while True:
        close = line.find(QUOTE, position)
        if close < 0:
            return True
        if line.startswith(QUOTE, close + 1):
            position = close + 2
            continue
        opening = line.find(delimiter + QUOTE, close + 1)
        if opening < 0:
            return False
        position = opening + len(delimiter) + 1
