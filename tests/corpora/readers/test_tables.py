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
