"""Excel workbooks: those of other programs, and hostile ones."""

import io
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from apps.stories.articles import read_articles
from corpora.documents import RejectedRecord, read_documents
from corpora.foundation.errors import DataError
from corpora.readers.dates import parse_date
from corpora.readers.old_workbook import kind_of
from corpora.readers.workbook import read_sheet

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
STRICT = "http://purl.oclc.org/ooxml/spreadsheetml/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
SHEET_2 = "worksheets/sheet2.xml"
TEXTS = (
    '<si><t>제목</t></si><si><r><t xml:space="preserve">굵은 </t></r><r><rPr><b/></rPr><t>첫눈</t></r>'
    '<rPh sb="0" eb="1"><t>읽기</t></rPh></si><si><t>둘째_x000A_줄 &amp; &lt;b&gt;</t></si>'
)
ROWS = (
    '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="C1" t="inlineStr"><is><t>일자</t></is></c></row>'
    '<row r="3"><c r="A3" t="s"><v>1</v></c><c r="C3"><v>2.0210601E7</v></c><c r="D3" t="b"><v>1</v></c></row>'
    '<row r="4"/><row><c t="s"><v>2</v></c><c/><c t="str"><f>A1</f><v>1e3</v></c><c t="e"><v>#N/A</v></c></row>'
)


def workbook(
    rows: str = ROWS, *, main: str = MAIN, target: str = SHEET_2, prefix: str = "", styles: str = "", other: str = ""
) -> bytes:
    """Return a workbook whose first sheet is in the second file."""
    parts = {
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}"><Relationship Id="rId1" Type="{OFFICE}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{OFFICE}"><sheets><sheet name="뉴스" sheetId="1" '
        'r:id="rId2"/><sheet name="둘째" sheetId="2" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}"><Relationship Id="rId1" '
        f'Type="{OFFICE}/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="rId2" '
        f'Type="{OFFICE}/worksheet" Target="{target}"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{other}</sheetData></worksheet>',
        "xl/worksheets/sheet2.xml": f'{prefix}<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>',
        "xl/sharedStrings.xml": f'<sst xmlns="{main}">{TEXTS}</sst>',
    }
    if styles:
        parts["xl/styles.xml"] = styles
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as book:
        for name, content in parts.items():
            book.writestr(name, content)
    return buffer.getvalue()


def test_rows_of_the_first_sheet_are_read_with_their_gaps(write: Write) -> None:
    for target in [SHEET_2, "/xl/worksheets/sheet2.xml"]:
        for main in [MAIN, STRICT]:
            path = write("a.xlsx", workbook(main=main, target=target))
            assert list(read_sheet(path)) == [
                (1, ["제목", "", "일자"]),
                (3, ["굵은 첫눈", "", "20210601", "TRUE"]),
                (5, ["둘째\n줄 & <b>", "", "1e3"]),
            ], (target, main)


def test_whole_numbers_have_no_point(write: Write) -> None:
    for value, text in [
        ("20210601.0", "20210601"),
        ("0.5", "0.5"),
        ("12345678901234567890", "12345678901234567890"),
        ("1100101.2021060099", "1100101.2021060099"),
        ("20210601.000000000000", "20210601"),
        ("-3", "-3"),
    ]:
        rows = f'<row r="1"><c r="A1"><v>{value}</v></c></row>'
        assert list(read_sheet(write("a.xlsx", workbook(rows)))) == [(1, [text])], value


def test_dates_are_days_whatever_their_format(write: Write) -> None:
    styles = f'<styleSheet xmlns="{MAIN}"><cellXfs count="3"><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="22"/>'
    cells = [(1, "44348"), (2, "44348.5"), (0, "44348"), (2, "44348.395833333336"), (2, "0.25")]
    rows = "".join(f'<c r="{"ABCDE"[k]}1" s="{style}"><v>{v}</v></c>' for k, (style, v) in enumerate(cells))
    book = workbook(f'<row r="1">{rows}</row>', styles=f"{styles}</cellXfs></styleSheet>")
    assert list(read_sheet(write("a.xlsx", book))) == [(1, [value for _, value in cells])]
    assert [parse_date(value) for _, value in cells] == [
        *("2021-06-01", "2021-06-01T12:00", "2021-06-01", "2021-06-01T09:30", "")
    ]


def row(number: int, *cells: str) -> str:
    inner = "".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in cells)
    return f'<row r="{number}">{inner}</row>'


def test_a_heading_above_the_table_is_no_header(write: Write) -> None:
    rows = (
        row(1, "뉴스 검색 결과") + row(2, "", "2021년 6월 1일") + row(4, "제목", "본문") + row(5, "첫눈", "눈이 왔다.")
    )
    rejected: list[RejectedRecord] = []
    path = write("a.xlsx", workbook(rows + row(6, "막차")))
    assert [(each.title, each.text) for each in read_documents(path, rejected=rejected)] == [("첫눈", "눈이 왔다.")]
    assert [record.where for record in rejected] == [f"{path}:6"]
    names = write("b.xlsx", workbook(row(1, "이름") + row(2, "첫눈", "제목 없음") + row(3, "막차", "")))
    assert [each.text for each in read_documents(names)] == ["첫눈", "막차"]


def test_a_cover_is_not_the_table(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    table = row(1, "제목", "본문") + row(2, "첫눈", "눈이 왔다.")
    cover = row(1, "뉴스 검색 결과") + row(3, "2021년 6월 1일")
    [found] = read_documents(write("a.xlsx", workbook(cover, other=table)))
    assert (found.title, found.text) == ("첫눈", "눈이 왔다.")
    assert "sheet 2 is read" in caplog.text
    with pytest.raises(DataError, match="no documents"):
        list(read_documents(write("b.xlsx", workbook(row(1, "이름", "값"), other=table))))


def test_articles_are_read_and_bad_rows_set_aside(write: Write) -> None:
    rows = row(1, "일자", "제목", "통합 분류1", "뉴스 식별자") + row(2, "20210601", "첫눈", "사회&gt;날씨", "n1")
    rows += row(3, "20210601", " ", "사회", "n2") + row(4, "20210602", "막차", "", "n1") + row(5, "20210602", "폐교")
    path, rejected = write("a.xlsx", workbook(rows)), list[RejectedRecord]()
    articles = read_articles(path, rejected=rejected)
    assert [(a.title, a.date, a.category, a.id) for a in articles] == [
        ("첫눈", "2021-06-01", "사회", "n1"),
        ("막차", "2021-06-02", "", "n1~4"),
        ("폐교", "2021-06-02", "", "a.xlsx:5"),
    ]
    assert [(record.where, record.reason) for record in rejected] == [(f"{path}:3", "empty document")]


def test_a_workbook_without_titles_or_with_a_bad_row_raises(write: Write, fails: Fails) -> None:
    rows = '<row r="1"><c t="inlineStr"><is><t>이름</t></is></c></row>'
    path = write("a.xlsx", workbook(rows))
    with fails(DataError, path, "no documents in it"):
        read_articles(path)
    path = write("b.xlsx", workbook('<row r="1"><c t="s"><v>0</v></c></row>'))
    with fails(DataError, path, "no documents in it"):
        read_articles(path)
    path = write("c.xlsx", workbook(ROWS + '<row r="9"><c r="C9"><v>1</v></c></row>'))
    with fails(DataError, f"{path}:", "missing column '날자'"):
        read_articles(path, columns={"date": "날자"})
    with fails(DataError, f"{path}:9", "empty document"):
        read_articles(path)


ONE = '<c r="{}"><v>1</v></c>'
BOMB = '<!DOCTYPE x [<!ENTITY a "가가가가"><!ENTITY b "&a;&a;&a;&a;">]>'


def test_files_that_are_no_workbooks_are_one_line_errors(write: Write, fails: Fails) -> None:
    for content, what in [
        (b"not a zip", "not an Excel workbook"),
        (b"", "not an Excel workbook"),
        (workbook()[:-200], "not an Excel workbook"),
        (workbook(prefix=BOMB), "has a document type"),
        (workbook(rows="<row><c>"), "not an Excel workbook"),
        (workbook('<row r="1"><c r="A1" t="s"><v>99</v></c></row>'), "not an Excel workbook"),
        (workbook('<row r="1"><c r="ZZZZZ1"><v>1</v></c></row>'), "column 12,356,630"),
        (workbook(target="worksheets/none.xml"), "not an Excel workbook"),
        # Every cell between the first and the last takes memory, however few have a value.
        (
            workbook('<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'),
            "row",
        ),
        (
            workbook('<row r="1048576"><c r="A1048576"><v>1</v></c></row><row r="1"><c r="AH1"><v>1</v></c></row>'),
            "row",
        ),
        (workbook('<row r="1"><c x=">" r="XFD1048576"><v>1</v></c></row>'), "has a tag in an attribute"),
    ]:
        path = write("a.xlsx", content)
        with fails(DataError, path, what):
            list(read_sheet(path))


def test_a_part_that_would_fill_the_memory_is_refused(
    write: Write, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corpora.readers.workbook.LARGEST_PART", 100)
    path = write("a.xlsx", workbook())
    with fails(DataError, path, "unpacks to more"):
        list(read_sheet(path))


def test_a_part_that_understates_its_size_is_refused(write: Write, fails: Fails) -> None:
    """A reader that trusts the declared size would stop early, and one that does not would unpack a bomb."""
    content = bytearray(workbook())
    directory = content.index(b"PK\x01\x02", content.rindex(b"xl/worksheets/sheet2.xml") - 46)
    content[directory + 24 : directory + 28] = (100).to_bytes(4, "little")
    path = write("a.xlsx", bytes(content))
    with fails(DataError, path, "unpacks to more than the 100 bytes it declares"):
        list(read_sheet(path))


def test_damaged_data_is_a_one_line_error(write: Write, fails: Fails) -> None:
    content = workbook()
    start = content.index(b"xl/worksheets/sheet2.xml") + len(b"xl/worksheets/sheet2.xml")
    for offset in (0, 5, 30):
        path = write("a.xlsx", content[: start + offset] + b"\xff\xff\xff" + content[start + offset + 3 :])
        with fails(DataError, path, "not an Excel workbook"):
            list(read_sheet(path))


def test_a_new_workbook_may_have_the_old_name(write: Write) -> None:
    path = write("a.xls", workbook())
    assert kind_of(path) == "workbook"
    assert [one.text for one in read_documents(path, fields={"text": "제목"})][:1] == ["굵은 첫눈"]


def test_a_missing_workbook_is_a_one_line_error(tmp_path: Path, fails: Fails) -> None:
    with fails(DataError, tmp_path / "a.xlsx", "No such file"):
        list(read_sheet(tmp_path / "a.xlsx"))
