"""Excel workbooks: what other programs write, and what no program should."""

import io
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from apps.stories.articles import read_articles
from apps.stories.xlsx import read_sheet
from corpora.documents import RejectedRecord
from corpora.foundation.errors import DataError

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
STRICT = "http://purl.oclc.org/ooxml/spreadsheetml/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
SHEET_2 = "worksheets/sheet2.xml"
TEXTS = (
    '<si><t>제목</t></si><si><r><t>굵은 </t></r><r><rPr><b/></rPr><t xml:space="preserve">첫눈</t></r>'
    '<rPh sb="0" eb="1"><t>읽기</t></rPh></si><si><t>둘째_x000A_줄 &amp; &lt;b&gt;</t></si>'
)
ROWS = (
    '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="C1" t="inlineStr"><is><t>일자</t></is></c></row>'
    '<row r="3"><c r="A3" t="s"><v>1</v></c><c r="C3"><v>2.0210601E7</v></c><c r="D3" t="b"><v>1</v></c></row>'
    '<row r="4"/><row><c t="s"><v>2</v></c><c/><c t="str"><f>A1</f><v>1e3</v></c><c t="e"><v>#N/A</v></c></row>'
)


def workbook(
    rows: str = ROWS, texts: str = TEXTS, *, main: str = MAIN, target: str = SHEET_2, prefix: str = ""
) -> bytes:
    """Return a workbook whose first sheet is in the second file."""
    parts = {
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{OFFICE}"><sheets><sheet name="뉴스" sheetId="1" '
        'r:id="rId2"/><sheet name="둘째" sheetId="2" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/'
        'relationships"><Relationship Id="rId1" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="rId2" Target="{target}"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData/></worksheet>',
        "xl/worksheets/sheet2.xml": f'{prefix}<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>',
        "xl/sharedStrings.xml": f'<sst xmlns="{main}">{texts}</sst>',
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as book:
        for name, content in parts.items():
            book.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize("main", [MAIN, STRICT])
@pytest.mark.parametrize("target", [SHEET_2, "/xl/worksheets/sheet2.xml"])
def test_rows_of_the_first_sheet_are_read_with_their_gaps(write: Write, main: str, target: str) -> None:
    path = write("a.xlsx", workbook(main=main, target=target))
    assert list(read_sheet(path)) == [
        (1, ["제목", "", "일자"]),
        (3, ["굵은 첫눈", "", "20210601", "TRUE"]),
        (5, ["둘째\n줄 & <b>", "", "1e3", ""]),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [("20210601.0", "20210601"), ("0.5", "0.5"), ("12345678901234567890", "12345678901234567890"), ("-3", "-3")],
)
def test_whole_numbers_have_no_point(write: Write, value: str, text: str) -> None:
    rows = f'<row r="1"><c r="A1"><v>{value}</v></c></row>'
    assert list(read_sheet(write("a.xlsx", workbook(rows)))) == [(1, [text])]


def test_articles_are_read_and_bad_rows_set_aside(write: Write) -> None:
    def row(number: int, *cells: str) -> str:
        inner = "".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in cells)
        return f'<row r="{number}">{inner}</row>'

    rows = row(1, "일자", "제목", "통합 분류1", "뉴스 식별자") + row(2, "20210601", "첫눈", "사회&gt;날씨", "n1")
    rows += row(3, "20210601", " ", "사회", "n2") + row(4, "20210602", "막차", "", "n1") + row(5, "20210602", "폐교")
    path, rejected = write("a.xlsx", workbook(rows)), list[RejectedRecord]()
    articles = read_articles(path, rejected=rejected)
    assert [(a.title, a.date, a.category, a.id) for a in articles] == [
        ("첫눈", "2021-06-01", "사회", "n1"),
        ("폐교", "2021-06-02", "", "a.xlsx:5"),
    ]
    assert [(record.where, record.reason) for record in rejected] == [
        ("a.xlsx:3", "empty document"),
        ("a.xlsx:4", "duplicate id 'n1'"),
    ]


def test_a_workbook_without_titles_or_with_a_bad_row_raises(write: Write, fails: Fails) -> None:
    rows = '<row r="1"><c t="inlineStr"><is><t>이름</t></is></c></row>'
    path = write("a.xlsx", workbook(rows))
    with fails(DataError, path, "no titles"):
        read_articles(path)
    path = write("b.xlsx", workbook('<row r="1"><c t="s"><v>0</v></c></row>'))
    with fails(DataError, path, "no articles"):
        read_articles(path)
    with fails(DataError, path, "no column '일자'"):
        read_articles(path, columns={"date": "일자"})
    path = write("c.xlsx", workbook(ROWS + '<row r="9"><c r="C9"><v>1</v></c></row>'))
    with fails(DataError, "c.xlsx:9", "empty document"):
        read_articles(path)


BOMB = '<!DOCTYPE x [<!ENTITY a "가가가가"><!ENTITY b "&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"not a zip", "not an Excel workbook"),
        (b"", "not an Excel workbook"),
        (workbook()[:-200], "not an Excel workbook"),
        (workbook(prefix=BOMB), "has a document type"),
        (workbook(rows="<row><c>"), "not an Excel workbook"),
        (workbook('<row r="1"><c r="A1" t="s"><v>99</v></c></row>'), "not an Excel workbook"),
        (workbook('<row r="1"><c r="ZZZZZ1"><v>1</v></c></row>'), "has no place"),
        (workbook(target="worksheets/none.xml"), "not an Excel workbook"),
    ],
)
def test_what_is_no_workbook_is_told_in_one_line(write: Write, fails: Fails, content: bytes, what: str) -> None:
    path = write("a.xlsx", content)
    with fails(DataError, path, what):
        list(read_sheet(path))


def test_a_part_that_would_fill_the_memory_is_refused(
    write: Write, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.stories.xlsx.LARGEST_PART", 100)
    path = write("a.xlsx", workbook())
    with fails(DataError, path, "unpacks to more"):
        list(read_sheet(path))


def test_a_missing_workbook_is_told_in_one_line(tmp_path: Path, fails: Fails) -> None:
    with fails(DataError, tmp_path / "a.xlsx", "No such file"):
        list(read_sheet(tmp_path / "a.xlsx"))
