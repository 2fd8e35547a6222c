"""Files named `.xls`: workbooks of Excel 97 to 2003, HTML tables, XML workbooks and text."""

import struct
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from corpora.documents import read_documents
from corpora.foundation.errors import DataError
from corpora.readers.old_workbook import LARGEST, kind_of

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]
Compound = Callable[[Mapping[str, bytes]], bytes]

HEADER = ("번호", "제목", "본문", "등록일")
ROWS = (
    ("7", "예산안 의결", "국회가 예산안을 의결했다.\n정부는 공포한다.", "2024-12-17"),
    ("8", "첫눈", "서울에 눈이 온다.", ""),
)


def old_workbook(rows: tuple[tuple[str, ...], ...]) -> bytes:
    """Return the stream of a workbook of Excel 97, in BIFF8 ([MS-XLS])."""

    def record(kind: int, content: bytes) -> bytes:
        return struct.pack("<HH", kind, len(content)) + content

    def beginning(kind: int) -> bytes:
        return record(0x0809, struct.pack("<HHHHII", 0x0600, kind, 0x0DBB, 0x07CC, 0, 6))

    end = record(0x000A, b"")
    before = beginning(5) + record(0x0042, struct.pack("<H", 1200))
    start = len(before) + 4 + 8 + len("sheet") + len(end)
    book = before + record(0x0085, struct.pack("<IBBBB", start, 0, 0, len("sheet"), 0) + b"sheet") + end
    book += beginning(0x10)
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            if cell.isdigit():
                book += record(0x0203, struct.pack("<HHHd", row, column, 0, float(cell)))
            elif cell:
                text = struct.pack("<HHHHB", row, column, 0, len(cell), 1) + cell.encode("utf-16-le")
                book += record(0x0204, text)
    return book + end


def as_html(head: str) -> str:
    def line(kind: str, cells: tuple[str, ...]) -> str:
        return "<tr>" + "".join(f"<{kind}>{cell.replace(chr(10), '<br>')}" for cell in cells) + "</tr>"

    style = '<style>td {mso-number-format:"\\@"}</style>'
    title = "<table><tr><td colspan=4>기사 목록</td></tr></table>"
    table = f"<TABLE border=1>{line('th', HEADER)}{''.join(line('td', row) for row in ROWS)}</TABLE>"
    return f"<html><head>{head}{style}</head><body>{title}{table}</body></html>"


def as_xml() -> str:
    def line(cells: tuple[str, ...]) -> str:
        parts = (
            f'<Cell ss:Index="{k}"><Data ss:Type="String">{cell.replace(chr(10), "&#10;")}</Data></Cell>'
            for k, cell in enumerate(cells, start=1)
            if cell
        )
        return f"<Row>{''.join(parts)}</Row>"

    space = "urn:schemas-microsoft-com:office:spreadsheet"
    begin = (
        f'<?xml version="1.0"?><?mso-application progid="Excel.Sheet"?><Workbook xmlns="{space}" xmlns:ss="{space}">'
    )
    properties = "<DocumentProperties><Title>목록</Title></DocumentProperties>"
    sheets = ("".join(map(line, rows)) for rows in ((HEADER, *ROWS), (HEADER,)))
    tables = "".join(f"<Worksheet><Table>{sheet}</Table></Worksheet>" for sheet in sheets)
    return f"{begin}{properties}{tables}</Workbook>"


def as_tsv() -> str:
    return "\r\n".join("\t".join(cell.replace("\n", " ") for cell in row) for row in (HEADER, *ROWS))


FILES: dict[str, tuple[str, bytes]] = {
    "Excel 97": ("old workbook", b""),
    "HTML in UTF-8": ("page", as_html('<meta charset="utf-8">').encode()),
    "HTML in CP949": (
        "page",
        as_html('<meta http-equiv="Content-Type" content="text/html; charset=euc-kr">').encode("cp949"),
    ),
    "HTML in UTF-16": ("page", as_html("").encode("utf-16")),
    "XML of Excel 2003": ("page", as_xml().encode()),
    "text in UTF-16": ("text", as_tsv().encode("utf-16")),
    "text in CP949": ("text", as_tsv().encode("cp949")),
}


@pytest.mark.parametrize("name", FILES)
def test_whatever_is_named_xls_gives_the_same_articles(write: Write, name: str, compound_file: Compound) -> None:
    kind, content = FILES[name]
    path = write("a.xls", content or compound_file({"Workbook": old_workbook((HEADER, *ROWS))}))
    assert kind_of(path) == kind
    found = list(read_documents(path))
    assert [(one.title, " ".join(one.text.split()), one.date) for one in found] == [
        (title, " ".join(text.split()), date) for _, title, text, date in ROWS
    ]
    assert kind == "text" or "\n" in found[0].text


def test_what_is_no_workbook_is_a_one_line_error(
    write: Write, fails: Fails, tmp_path: Path, compound_file: Compound
) -> None:
    cases = {
        "empty.xls": (b"", "zero bytes"),
        "cut.xls": (compound_file({"Workbook": old_workbook(ROWS)})[:700], "not an Excel workbook"),
        "page.xls": ("<html><body>로그인하십시오.</body></html>".encode(), "a page without a table"),
        "open.xls": (b"<table>" + b"<a " * 100_000, "a page without a table"),
        "letter.xls": (b"<table><tr><td>\xff\xff\xff</td></tr></table>", "not UTF-8"),
    }
    for name, (content, what) in cases.items():
        path = write(name, content)
        with fails(DataError, path, what):
            list(read_documents(path))
    with fails(DataError, tmp_path / "none.xls", "No such file"):
        list(read_documents(tmp_path / "none.xls"))
    large = tmp_path / "large.xls"
    with large.open("wb") as file:
        file.write(b"<table>")
        file.truncate(LARGEST + 1)
    with fails(DataError, large, "more than"):
        list(read_documents(large))


def test_tables_within_cells_and_wide_cells_fill_no_memory(write: Write) -> None:
    nested = "<td>본문이다.<table><tr><td>표</td><td>안</td></tr></table></td>"
    rows = f"<tr><th>제목</th><th>본문</th></tr><tr><td>가</td>{nested}</tr>"
    wide = '<tr><td colspan="999999999">넓다</td></tr><tr><td ss:Index="999999">멀다</td></tr>'
    [found, *_] = read_documents(write("a.xls", f"<table>{rows}{wide}</table>"), rejected=[])
    assert (found.title, found.text) == ("가", "본문이다.표안")
