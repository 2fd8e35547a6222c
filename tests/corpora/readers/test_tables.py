"""Every row of a table is accepted or reported: quotes as spreadsheets read them, one bad row at a time."""

import csv
import io
import random

import pytest

from corpora.readers.decoding import BadLine
from corpora.readers.tables import Row, read_rows

HEADER = "id,제목,본문\n"


def read(text: str, delimiter: str = ",") -> list[Row]:
    return list(read_rows(io.StringIO(text, newline="").readlines(), delimiter))


def good(text: str, delimiter: str = ",") -> list[list[str]]:
    return [row.cells for row in read(text, delimiter)[1:] if not row.reason]


def bad(text: str, delimiter: str = ",") -> list[int]:
    return [row.number for row in read(text, delimiter) if row.reason]


def test_well_formed_tables_are_read_as_by_the_csv_module(subtests: pytest.Subtests) -> None:
    for text in (
        HEADER + '1,"a, b","c ""d"" e"\n',
        HEADER + '1,"첫 줄\n둘째 줄",본문\n2,가,나\n',
        HEADER.replace("\n", "\r\n") + '1,"첫 줄\r\n둘째 줄","끝"\r\n',
        HEADER + '1,,""\n',
    ):
        with subtests.test(text=text):
            assert [row.cells for row in read(text)] == list(csv.reader(io.StringIO(text, newline="")))


def test_a_headline_that_opens_with_a_quotation_costs_nothing() -> None:
    text = HEADER + '1,가,나\n2,"새 다리" 열린다…환영,본문\n3,"새 다리 열린다,본문\n4,다리,"본문"\n'
    assert good(text) == [
        ["1", "가", "나"],
        ["2", "새 다리 열린다…환영", "본문"],
        ["3", '"새 다리 열린다', "본문"],
        ["4", "다리", "본문"],
    ]
    assert bad(text) == []


def test_a_stray_mark_swallows_no_rows_wherever_it_is(subtests: pytest.Subtests) -> None:
    for column in range(3):
        for after in ('57,"제목",본문\n', '"57",제목,본문\n', '57,제목,"본문"\n', '57,"",본문\n', "57,제목,본문\n"):
            with subtests.test(column=column, after=after):
                cells = ["3", "제목", "본문"]
                cells[column] = '"' + cells[column]
                rows = [f"{k},가,나\n" for k in range(1000)]
                text = HEADER + ",".join(cells) + "\n" + "".join(rows) + after
                assert len(good(text)) == 1002
                assert good(text)[0] == cells


def test_rows_with_other_widths_are_reported_with_their_lines() -> None:
    text = HEADER + '1,가,나\n2,가\n3,"가\n나",다\n4,가,나,다\n5,가,나,,\n\n6,가,나\n'
    assert bad(text) == [3, 6]
    assert [cells[0] for cells in good(text)] == ["1", "3", "5", "6"]


def test_a_bad_line_is_one_bad_row_also_inside_quotes() -> None:
    lines = [HEADER, '1,"가\n', BadLine("not UTF-8", "?"), "2,나,다\n"]
    rows = list(read_rows(lines))
    assert [(row.number, bool(row.reason)) for row in rows] == [(1, False), (2, True), (3, True), (4, False)]


def test_the_delimiter_that_excel_is_told_is_no_row(subtests: pytest.Subtests) -> None:
    for line in ("sep=;\n", '"sep=;"\r\n', "SEP=;\n"):
        with subtests.test(line=line):
            text = line + HEADER.replace(",", ";") + "1;가,나;다\n2;가\n"
            assert (good(text), bad(text)) == ([["1", "가,나", "다"]], [4])


def test_delimiters_of_the_header_are_recognized(subtests: pytest.Subtests) -> None:
    for delimiter in ("\t", ";", "|"):
        with subtests.test(delimiter=delimiter):
            assert good(f"id{delimiter}제목\n1{delimiter}가, 나\n") == [["1", "가, 나"]]


def test_marks_of_tab_separated_files_enclose_fields_only_if_all_do() -> None:
    quoted = 'id\t제목\n1\t"가 ""나""\n다"\n2\t"라\t마"\n'
    assert good(quoted, "\t") == [["1", '가 "나"\n다'], ["2", "라\t마"]]
    loose = 'id\t제목\n1\t"가" 나\n2\t"다"\n3\t"라\n'
    assert good(loose, "\t") == [["1", '"가" 나'], ["2", '"다"'], ["3", '"라']]


def test_backslashes_of_database_exports_protect_marks_delimiters_and_line_ends(subtests: pytest.Subtests) -> None:
    exports = {
        "MySQL, Spark: marks": (r'1,"그는 \"안 된다, 정말\" 했다","본문"', ["1", '그는 "안 된다, 정말" 했다', "본문"]),
        "a mark opens the field": (r'1,"\"인용, 하나\" 뒤",본문', ["1", '"인용, 하나" 뒤', "본문"]),
        "a protected backslash closes": (r'1,"\"가\" C:\\","본문"', ["1", '"가" C:\\', "본문"]),
        "MySQL: a line end": ('1,"\\"가\\" 첫 줄\\\n둘째 줄","본문"', ["1", '"가" 첫 줄\n둘째 줄', "본문"]),
        "Spark: a line end": ('1,"\\"가\\" 첫 줄\n둘째 줄","본문"', ["1", '"가" 첫 줄\n둘째 줄', "본문"]),
        "a missing value": (r'1,\N,"\"가\" 본문"', ["1", "", '"가" 본문']),
        "without marks around": (r"1,가\, 나,\N", ["1", "가, 나", ""]),
        "a protected delimiter at the end": (r"\N,가,나\,", ["", "가", "나,"]),
        "other backslashes stay": (r'1,"\"가\" C:\new",본문', ["1", '"가" C:\\new', "본문"]),
        "doubled marks as well": (r'1,"\"가\" ""나""",본문', ["1", '"가" "나"', "본문"]),
    }
    for name, (text, cells) in exports.items():
        with subtests.test(name):
            rows = list(read_rows(f"id,title,text\n{text}\n2,다음,줄\n".splitlines(keepends=True)))
            assert [row.cells for row in rows] == [["id", "title", "text"], cells, ["2", "다음", "줄"]]
            assert not any(row.reason for row in rows)


def test_a_long_line_of_protected_marks_takes_the_time_of_its_length() -> None:
    field = '\\"가' * 200_000
    [_, row] = read_rows(["id,text\n", f'1,"{field}"\n'])
    assert row.cells == ["1", '"가' * 200_000]


def test_backslashes_of_tab_separated_exports_write_control_characters() -> None:
    lines = [
        "id\ttitle\ttext\n",
        "1\t\\N\t첫 줄\\n둘째\\t줄\\\\\n",
        '2\t"인용" 제목\t첫 줄\\\n',
        "둘째 줄\n",
        "3\t가\t나\n",
    ]
    rows = list(read_rows(lines, "\t"))
    assert [row.cells for row in rows[1:]] == [
        ["1", "", "첫 줄\n둘째\t줄\\"],
        ["2", '"인용" 제목', "첫 줄\n둘째 줄"],
        ["3", "가", "나"],
    ]


def test_backslashes_are_text_where_no_export_protects_anything(subtests: pytest.Subtests) -> None:
    for row in (r'1,"C:\news\","본문"', r'1,"끝에 \""인용\""","본문"', "1,ㅋㅋ\\^^/,본문\\", r"1,\"가,본문"):
        with subtests.test(row):
            expected = next(csv.reader([row]))
            assert [r.cells for r in read_rows(["id,title,text\n", f"{row}\n", "2,가,나\n"])][1:] == [
                expected,
                ["2", "가", "나"],
            ]


def test_random_tables_come_back_and_every_row_is_accounted_for() -> None:
    generator = random.Random(0)  # noqa: S311
    letters = '가",\n\r "'
    for _ in range(300):
        rows = [["".join(generator.choices(letters, k=generator.randrange(6))) for _ in range(3)] for _ in range(9)]
        file = io.StringIO(newline="")
        csv.writer(file).writerows([["id", "제목", "본문"], *rows])
        kept = [row for row in rows if any(cell.strip() for cell in row)]
        found = good(file.getvalue())
        assert [row for row in found if any(cell.strip() for cell in row)] == kept
