r"""Rows of CSV and TSV files as spreadsheets read them, one bad row at a time.

A field that begins with a quotation mark runs to its closing mark, over line breaks if need be. Within a line, text
after the closing mark belongs to the field (`"새 다리" 열린다` → `새 다리 열린다`). If a mark is not closed properly,
or the row does not have as many fields as the header, the marks of that line are ordinary characters. Every row is
accepted or reported with its line (the last one of a record over several), and reading continues on the next line.

Exports of MySQL, PostgreSQL and Spark write a mark inside of a field as `\"`, and MySQL and PostgreSQL a missing value
as `\N`. Where the first lines have either, a backslash also protects a delimiter, a line end and another backslash; in
tab-separated text it writes control characters too (`\n`, `\t`).
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
MISSING = r"\N"
CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "0": "", "b": "", "f": "", "v": "", "Z": ""}
"""Letters behind a backslash in tab-separated exports."""
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
        self._is_escaped = False
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
        self._is_escaped = any(isinstance(line, str) and self._has_escape(line) for _, line in sample)
        for number, line in iter(self._next, None):
            if isinstance(line, BadLine):
                yield Row(number, [], line.reason, line.text)
            elif line.strip():
                yield self._row(number, line)

    def _next(self) -> tuple[int, str | BadLine] | None:
        return self._again.popleft() if self._again else next(self._lines, None)

    def _row(self, number: int, line: str) -> Row:
        literal = line.rstrip("\r\n").split(self._delimiter)
        if not (self._is_quoted and QUOTE in line) and not (self._is_escaped and "\\" in line):
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
        if self._is_escaped:
            return _split_escaped("".join(span).rstrip("\r\n"), self._delimiter, is_quoted=self._is_quoted)
        try:
            return next(csv.reader(span, delimiter=self._delimiter, strict=len(span) > 1))
        except csv.Error:
            return []

    def _span(self, number: int, line: str) -> list[str]:
        """Return the lines of a record, all of whose quoted fields are closed; none if one never is."""
        span, size = [line], len(line)
        is_open = self._is_open(line)
        while is_open or (self._is_escaped and _ends_escaped(span[-1])):
            following = self._next()
            if following is None or isinstance(following[1], BadLine) or size > LONGEST_RECORD:
                self._give_back(number, span)
                if following is not None:
                    self._again.insert(len(span) - 1, following)
                return []
            span.append(following[1])
            size += len(following[1])
            is_open = self._is_open(following[1], is_open=is_open)
        return span

    def _is_open(self, line: str, *, is_open: bool = False) -> bool:
        """Whether a quoted field is open at the end of a line, if one was open (or not) at its beginning."""
        return self._is_quoted and _is_open(line, self._delimiter, is_open=is_open, is_escaped=self._is_escaped)

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

    def _has_escape(self, line: str) -> bool:
        """Whether a mark inside of a quoted field, or a missing value, is written with a backslash."""
        cells = line.rstrip("\r\n").split(self._delimiter)
        if MISSING in cells:
            return True
        is_quoted = self._is_quoted and any(cell.startswith(QUOTE) for cell in cells)
        # Before a delimiter or another mark, the mark may close a field that ends in a backslash.
        protected = re.compile(rf'(?<!\\)(?:\\\\)*\\"[^"\r\n{re.escape(self._delimiter)}]')
        return is_quoted and bool(protected.search(line))


def _split_escaped(record: str, delimiter: str, *, is_quoted: bool) -> list[str]:
    """Split a record in which backslashes protect characters; no cells if a mark is not closed properly."""
    between = re.escape(delimiter)
    quoted = r'"(?P<quoted>(?:[^"\\]|\\.|"")*+)"|(?!")' if is_quoted else ""
    field = re.compile(rf"(?:{quoted}(?P<plain>(?:[^\\{between}]|\\.)*+))(?P<end>{between}|\Z)", re.DOTALL)
    protected = re.compile(rf'\\(["\\\r\n{between}])|""')
    cells, position = [], 0
    while found := field.match(record, position):
        parts = found.groupdict()
        if parts.get("quoted") is not None:
            cells.append(protected.sub(lambda one: one[1] or QUOTE, parts["quoted"]))
        elif parts["plain"] == MISSING:
            cells.append("")
        elif delimiter == "\t":
            cells.append(re.sub(r"\\(.)", lambda one: CONTROLS.get(one[1], one[1]), parts["plain"], flags=re.DOTALL))
        else:
            cells.append(protected.sub(lambda one: one[1] or one[0], parts["plain"]))
        position = found.end()
        if not parts["end"]:
            return cells
    return []


def _ends_escaped(line: str) -> bool:
    """Whether the line end is part of the field."""
    content = line.removesuffix("\n").removesuffix("\r")
    return (len(content) - len(content.rstrip("\\"))) % 2 == 1


def _closing_mark(line: str, position: int, *, is_escaped: bool) -> int:
    """Return where the next mark is that no backslash protects; -1 if there is none."""
    close = line.find(QUOTE, position)
    while is_escaped and close >= 0:
        first = close
        while first > position and line[first - 1] == "\\":
            first -= 1
        if (close - first) % 2 == 0:
            break
        close = line.find(QUOTE, close + 1)
    return close


def _is_open(line: str, delimiter: str, *, is_open: bool, is_escaped: bool) -> bool:
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
        close = _closing_mark(line, position, is_escaped=is_escaped)
        if close < 0:
            return True
        if line.startswith(QUOTE, close + 1):
            position = close + 2
            continue
        opening = line.find(delimiter + QUOTE, close + 1)
        if opening < 0:
            return False
        position = opening + len(delimiter) + 1
