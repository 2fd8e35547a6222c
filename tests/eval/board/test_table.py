"""Rows into tables: what stands where, that nothing is lost, cut off or taken for markup, that sources stay apart."""

import csv
import io
import itertools
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console

from corpora.foundation.texts import Language, Texts
from downstream.task import all_tasks, get_task
from eval.board import table
from eval.board.comparison import Comparison
from eval.board.markdown import to_markdown
from eval.board.page import to_html, write_leaderboard
from eval.board.report import Report, score_of
from eval.board.rows import CleanFigure, LeaderboardFile, NoiseFigure, Row, read_reported
from eval.board.table import (
    Block,
    Board,
    build_board,
    examples_text,
    figure,
    print_comparisons,
    print_terminal,
    to_csv,
)
from eval.cells.files import NOT_MEASURED

GOLDEN = Path(__file__).parents[2] / "golden" / "leaderboard.md"
ORDER = ("nsmc", "klue-nli", "klue-sts", "korquad", "klue-mrc")

# What must come out as text, wherever it goes in.
HOSTILE_MODEL, HOSTILE_REASON = "<script>alert(1)</script>", "it said \"<b> | no & 'yes'\""


def row(model: str, task: str, metric: str, value: float | None = 0.5, **more: Any) -> Row:
    return Row(model=model, task=task, metric=metric, value=value, **more)


def failed(model: str, task: str, metric: str, reason: str, status: str = "failed") -> Row:
    return row(model, task, metric, None, status=status, reason=reason)


FEW = [
    row(
        "tfidf",
        "nsmc",
        "accuracy",
        0.87116,
        ci95=(0.8682, 0.8741),
        seeds=1,
        rank=(1, 1),
        num_examples=50_000,
        split="test",
    ),
    row("pressbert-scratch", "nsmc", "accuracy", 0.85, ci95=(0.8470, 0.8531), seeds=3, std=0.00123, rank=(2, 3)),
    failed("tfidf", "korquad", "exact_match", "korquad/KorQuAD_v1.0_train.json: not there; run: curl", "unavailable"),
    failed("tfidf", "korquad", "f1", "korquad/KorQuAD_v1.0_train.json: not there; run: curl", "unavailable"),
    row("majority", "klue-sts-sample", "pearson", None, reason="the same for all", seeds=1, split="dev"),
    row("majority", "klue-sts-sample", "f1", 0.0, ci95=(0.0, 0.0), seeds=1, split="dev"),
    row("tfidf", "klue-sts-sample", "pearson", 0.2301, ci95=(-0.0019, 0.4396), seeds=1, split="dev", note="a | b"),
    failed("pressbert|odd", "nsmc-sample", "accuracy", "RuntimeError: a | b"),
    row("kpfbert", "nsmc", "accuracy", 0.9129, source="reported", seeds=1, split="test", reference="README"),
    row("mbert", "korquad", "exact_match", 0.681, source="reported", seeds=1, split="dev", note="another prints 69.10"),
]
CLEAN = row(
    "clean",
    "news-swag",
    "accuracy",
    0.9,
    ci95=(0.8, 0.95),
    rank=(1, 2),
    num_examples=712,
    num_clusters=124,
    is_clean_subset=True,
    clean_value=0.7,
    clean_ci95=(0.6, 0.8),
    num_clean_examples=172,
    commit="a" * 40 + "+ / " + "b" * 40,
    settings={"epochs": 3, "peak_lr": 1e-4, "dropout": None},
    num_grid_points=18,
)
"""A row that is ranked without the examples in training text, tuned, and run from two states of the source."""
HOSTILE = [
    row(HOSTILE_MODEL, "nsmc", "accuracy", 0.9, ci95=(0.89, 0.91), note=HOSTILE_REASON),
    failed(HOSTILE_MODEL, "korquad", "f1", HOSTILE_REASON),
]


def file_of(rows: Sequence[Row]) -> LeaderboardFile:
    manifest = {"versions": {"python": "3.11.9", "torch": "2.10.0"}, "git": "abc", "device": "cpu", "cpu": "Test CPU"}
    return LeaderboardFile(schema=1, created="2026-01-02T03:04:05+00:00", manifest=manifest, rows=list(rows))


def markdown(rows: Sequence[Row]) -> str:
    return to_markdown(Report(file_of(rows), ORDER), "ko")


def html(rows: Sequence[Row]) -> str:
    return to_html(Report(file_of(rows), ORDER))


def terminal(rows: Sequence[Row], width: int = 120, language: Language = "ko") -> str:
    console = Console(width=width, file=io.StringIO())
    print_terminal(build_board(rows, ORDER), console, language)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


# --- what stands where ----------------------------------------------------------------------------------------------


def blocks_of(board: Board) -> dict[Block, list[str]]:
    return {title: [line.model for line in lines] for title, lines in board.blocks}


def test_columns_stand_in_the_order_asked_for_then_the_registrys() -> None:
    rows = [row("tfidf", task.name, metric.key) for task in all_tasks().values() for metric in task.metrics]
    columns = [(column.task, column.metric) for column in build_board(rows, ORDER).columns]
    names = list(dict.fromkeys(task for task, _ in columns))
    assert set(names) == set(all_tasks())
    bases = [get_task(name).base if get_task(name).base in all_tasks() else name for name in names]
    official = list(dict.fromkeys(bases))
    registry = [name for name, task in all_tasks().items() if task.base not in all_tasks()]
    assert official == [*ORDER, *(name for name in registry if name not in ORDER)]
    # What is on other data of a task follows its own column.
    assert [base for base, _ in itertools.groupby(bases)] == official
    assert columns == [(name, metric.key) for name in names for metric in get_task(name).metrics]


def test_only_columns_that_hold_something_are_shown() -> None:
    assert [(c.task, c.metric) for c in build_board(FEW, ORDER).columns] == [
        ("nsmc", "accuracy"),
        ("nsmc-sample", "accuracy"),
        ("klue-sts-sample", "pearson"),
        ("klue-sts-sample", "f1"),
        ("korquad", "exact_match"),
        ("korquad", "f1"),
    ]


def test_blocks_stand_from_official_to_reported_and_models_as_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    substitute = replace(get_task("korquad"), name="korquad-devsplit", base="korquad")
    monkeypatch.setattr(table, "all_tasks", lambda: all_tasks() | {substitute.name: substitute})
    rows = [*reversed(FEW), row("tfidf", "korquad-devsplit", "f1")]
    assert blocks_of(build_board(rows, ORDER)) == {
        "measured": ["tfidf", "pressbert-scratch"],
        "reported": ["mbert", "kpfbert"],
        "on_other": ["tfidf"],
        "on_sample": ["pressbert|odd", "tfidf", "majority"],
    }
    assert list(blocks_of(build_board(rows, ORDER))) == ["measured", "reported", "on_other", "on_sample"]


def test_a_figure_on_other_data_is_never_in_the_block_of_official_ones() -> None:
    for task in all_tasks().values():
        if task.base not in all_tasks() or not get_task(task.base).is_official:
            continue
        metric = task.metrics[0].key
        rows = [row("tfidf", task.name, metric, 0.1), row("tfidf", task.base, metric, 0.2)]
        block = "on_sample" if task.is_sample else "on_other"
        found = {title: lines[0].rows for title, lines in build_board(rows, ORDER).blocks}
        assert {title: [r.value for r in cells if r] for title, cells in found.items()} == {
            "measured": [0.2],
            block: [0.1],
        }, task.name
        report = Report(file_of(rows), ORDER)
        assert [blocks_of(board) for board in (report.official, report.substitutes)] == [
            {"measured": ["tfidf"]},
            {block: ["tfidf"]},
        ], task.name
        # In a table of its own it has the column of its own name.
        assert [column.task for column in report.substitutes.columns] == [task.name]
    assert "비교할 수 없음" in Texts("ko", "report")("substitutes")
    assert "not comparable" in Texts("en", "report")("substitutes")


def test_a_sample_is_in_the_block_of_samples_also_where_there_is_no_official_task() -> None:
    for task in all_tasks().values():
        if task.is_sample:
            ((block, (line,)),) = build_board([row("tfidf", task.name, task.metrics[0].key)], ORDER).blocks
            assert (block, [r.task for r in line.rows if r]) == ("on_sample", [task.name])


def test_two_substitutes_of_a_task_have_columns_of_their_own() -> None:
    rows = [row("tfidf", f"klue-nli-{kind}", "accuracy", value) for kind, value in (("devsplit", 0.5), ("sample", 0.6))]
    board = Report(file_of(rows), ORDER).substitutes
    assert {column.task for column in board.columns} == {"klue-nli-devsplit", "klue-nli-sample"}
    assert [[r and r.value for r in line.rows] for _, lines in board.blocks for line in lines].count([None, None]) == 0
    assert board.footnotes == ()
    assert [column.task for column in build_board(rows, ORDER).columns] == [column.task for column in board.columns]


def test_own_splits_and_tasks_never_stand_under_the_heading_of_published_figures() -> None:
    own = [task for task in all_tasks().values() if not task.is_official]
    assert {"klue-nli-devsplit", "klue-tc-pool", "news-swag", "korquad-qnli", "nsmc-sample"} <= {t.name for t in own}
    rows = [row("tfidf", task.name, task.metrics[0].key) for task in own] + read_reported()
    for board in (build_board(rows, ORDER), *Report(file_of(rows), ORDER).boards.values()):
        for k in range(len(board.columns)):
            column = [found for _, lines in board.blocks for line in lines if (found := line.rows[k]) is not None]
            assert {found.task for found in column} == {board.columns[k].task}
            assert len({found.source for found in column}) == 1, board.columns[k]
    official, substitutes = Report(file_of(rows), ORDER).boards.values()
    assert {block for block, _ in official.blocks} == {"reported"}
    assert "reported" not in {block for block, _ in substitutes.blocks}


def test_a_figure_stands_under_its_own_column_and_nothing_else_is_filled() -> None:
    board = build_board(FEW, ORDER)
    for title, lines in board.blocks:
        for line in lines:
            for column, found in zip(board.columns, line.rows, strict=True):
                if found is not None:
                    assert found.task == column.task
                    assert (found.model, found.metric) == (line.model, column.metric)
                    assert (found.source == "reported") == (title == "reported")
    assert sum(found is not None for _, lines in board.blocks for line in lines for found in line.rows) == len(FEW)


def test_a_text_is_one_footnote_however_many_figures_it_belongs_to() -> None:
    board = build_board(FEW, ORDER)
    assert len(board.footnotes) == len(set(board.footnotes)) == 5
    marks = {(r.model, r.task, r.metric): board.mark(r) for r in FEW}
    assert marks["tfidf", "korquad", "exact_match"] == marks["tfidf", "korquad", "f1"] != ""
    assert marks["tfidf", "nsmc", "accuracy"] == marks["kpfbert", "nsmc", "accuracy"] == ""
    for r in FEW:
        if board.mark(r):
            assert (r.reason or r.note) in board.footnotes[int(board.mark(r).strip("()")) - 1].ko
    assert sorted(set(marks.values()) - {""}) == [f"({number})" for number in range(1, 6)]


def test_a_figure_is_hundredths_with_interval_deviation_and_mark() -> None:
    cases: list[tuple[Row | None, str]] = [
        (row("m", "nsmc", "accuracy", 0.87116), "87.12"),
        (row("m", "nsmc", "accuracy", 1.0, ci95=(1.0, 1.0)), "100.00 [100.00, 100.00]"),
        (row("m", "nsmc", "accuracy", -0.05, ci95=(-0.1, 0.0), std=0.012), "-5.00 [-10.00, 0.00] ±1.20"),
        (row("m", "nsmc", "accuracy", 0.5, rank=(2, 4)), "50.00 2–4위"),
        (row("m", "nsmc", "accuracy", 0.5, ci95=(0.4, 0.6), std=0.01, rank=(1, 1)), "50.00 [40.00, 60.00] ±1.00 1위"),
        (row("m", "nsmc", "accuracy", 0.5, note="so"), "50.00 (1)"),
        (row("m", "nsmc", "accuracy", None, reason="so"), "— (1)"),
        (failed("m", "nsmc", "accuracy", "so"), "— (1)"),
        (None, ""),
    ]
    for one, text in cases:
        assert figure(one, build_board([one] if one else [])) == text


def test_a_leaderboard_without_figures_can_be_written(tmp_path: Path) -> None:
    for k, rows in enumerate(([], [row("m", "a-task-of-tomorrow", "accuracy")])):
        write_leaderboard(tmp_path / str(k), file_of(rows), ORDER)
        assert {path.name for path in (tmp_path / str(k)).iterdir()} >= {
            f"leaderboard.{kind}" for kind in ("json", "csv", "md", "en.md", "html")
        }


# --- Markdown -------------------------------------------------------------------------------------------------------


def tables_in(text: str) -> list[list[list[str]]]:
    """Return the tables that a Markdown reader sees: rows of cells, in source form."""
    tables: list[list[list[str]]] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for token, content in itertools.pairwise(tokens):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type in {"th_open", "td_open"}:
            tables[-1][-1].append(content.content)
    return tables


def test_markdown_opens_with_a_table_of_ranking_metrics_and_folds_one_of_all_figures() -> None:
    for rows in (FEW, HOSTILE, read_reported(), [*HOSTILE, *read_reported()]):
        boards = list(Report(file_of(rows), ORDER).boards.values())
        text = markdown(rows)
        brief = (
            tables_in(text[: text.index("<details>\n<summary><b>어느")])
            if "<b>어느" in text
            else tables_in(text[: text.index("<b>95%")])
        )
        full = tables_in(text[text.index("<b>95%") :])[: len(boards)]
        assert len(brief) == len(full) == len(boards)
        for board, shown, whole in zip(boards, brief, full, strict=True):
            ranking = [k for k, column in enumerate(board.columns) if column.is_ranking]
            assert shown[0][2:] == [board.columns[k].title for k in ranking]
            assert whole[0][2:] == [column.title for column in board.columns]
            lines = [line for _, lines in board.blocks for line in lines]
            assert [cells[2:] for cells in whole[1:]] == [[figure(r, board) for r in line.rows] for line in lines]
            kept = [line for line in lines if any(line.rows[k] for k in ranking)]
            counts = [examples_text(board.by_column[k]) for k in ranking]
            assert len(shown) == 1 + any(counts) + len(kept)
            if any(counts):
                assert shown[1][2:] == counts
            for cells, line in zip(shown[1 + any(counts) :], kept, strict=True):
                for cell, k in zip(cells[2:], ranking, strict=True):
                    found = line.rows[k]
                    assert cell.startswith(
                        "" if found is None else "—" if found.value is None else f"{100 * found.value:.2f}"
                    )
                    assert "[" not in cell


def test_markdown_has_as_many_cells_in_every_line_pipes_in_names_escaped() -> None:
    rows = [*FEW, row("pressbert|odd", "klue-sts-sample", "f1")]
    lines = [line for line in markdown(rows).splitlines() if line.startswith("|")]
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in lines]
    boards = Report(file_of(rows), ORDER).boards.values()
    assert set(widths) == {
        3 + n for board in boards for n in (len(board.columns), sum(column.is_ranking for column in board.columns))
    }
    assert sum("pressbert\\|odd" in line for line in lines) == 2


def test_markdown_lists_every_footnote_under_its_number() -> None:
    lines = markdown(FEW).splitlines()
    for board in Report(file_of(FEW), ORDER).boards.values():
        for number, note in enumerate(board.footnotes, start=1):
            assert f"{number}. {note.ko}" in lines


def test_a_report_says_how_a_row_was_tuned_and_from_which_source_and_marks_a_mix() -> None:
    report = Report(file_of([*FEW, CLEAN]), ORDER)
    assert report.states == ["a" * 40 + "+", "b" * 40]
    for language, words in (
        (
            "ko",
            (
                "격자 탐색 18점",
                "소스 상태 2가지",
                "712 · 묶음 124개 · 순위는 172개로",
                "90.00 · 겹침 제외 70.00 · 1–2위",
            ),
        ),
        ("en", ("grid search, 18 points", "2 different states", "124 clusters", "without overlap 70.00 · #1–2")),
    ):
        text = to_markdown(report, language)  # type: ignore[arg-type]
        for word in (*words, "epochs=3, peak_lr=0.0001", "aaaaaaaaa+ / bbbbbbbbb"):
            assert word in text, word
    page = to_html(report)
    assert "소스 상태 2가지" in page
    assert "epochs=3, peak_lr=0.0001" in page
    alone = Report(file_of([CLEAN.model_copy(update={"commit": "c" * 40 + "+"})]), ORDER)
    assert "커밋하지 않은 변경" in alone.state_notice("ko")
    assert "ccccccccc+" in alone.state_notice("ko")
    assert Report(file_of(FEW), ORDER).state_notice("ko") == ""
    (record,) = csv.DictReader(io.StringIO(to_csv([CLEAN])))
    assert (record["clean_value"], record["num_clusters"], record["clean_ci95_high"]) == ("0.7", "124", "0.8")
    assert record["settings"] == "epochs=3, peak_lr=0.0001"


def test_figures_of_an_older_state_have_a_footnote_with_its_commit() -> None:
    rows = [row("tfidf", "nsmc", "accuracy", 0.9, commit="a" * 40, is_older_state=True)]
    assert "90.00 (1)" in markdown(rows)
    assert "1. 이전 소스(aaaaaaaaa)에서 측정한 값" in markdown(rows)
    assert "이전 소스(aaaaaaaaa)에서 측정한 값" in html(rows)
    assert "이전 소스" not in markdown([row("tfidf", "nsmc", "accuracy", 0.9, commit="a" * 40)])


def test_a_task_that_nobody_has_measured_is_named_and_not_hidden() -> None:
    (pick,) = Report(file_of([failed("tfidf", "kobest-wic", "macro_f1", NOT_MEASURED, "unavailable")]), ORDER).picks
    assert (pick.task, pick.best, pick.reported) == ("kobest-wic", (), None)
    assert "| KoBEST WiC | 측정 없음 |  |  |" in markdown(
        [failed("tfidf", "kobest-wic", "macro_f1", NOT_MEASURED, "unavailable")]
    )


def test_a_task_of_which_training_text_has_every_example_is_named_and_not_ranked() -> None:
    seen = {"is_clean_subset": True, "num_clean_examples": 0}
    rows = [row(model, "kobest-wic", "macro_f1", 0.5, **seen) for model in ("tfidf", "pressbert-mini")]
    (pick,) = Report(file_of(rows), ORDER).picks
    assert (pick.task, pick.best, pick.is_all_seen) == ("kobest-wic", (), True)
    assert "| KoBEST WiC | 모든 예제가 학습 글에 있어 순위 없음 |  |  |" in markdown(rows)
    assert "every example occurs in training text: no ranking" in html(rows)


def test_a_report_names_the_models_to_choose_for_each_task() -> None:
    ranked = [
        row("slow", "nsmc", "accuracy", 0.9, rank=(1, 2), latency_ms=9.0),
        row("fast", "nsmc", "accuracy", 0.89, rank=(1, 2), latency_ms=0.5),
        row("bad", "nsmc", "accuracy", 0.5, rank=(3, 3), latency_ms=0.1),
        *(row(m, "klue-sts-sample", "pearson", v, rank=(1, 2)) for m, v in (("one", 0.3), ("two", 0.4))),
    ]
    published = [found for found in read_reported() if found.model in {"kpfbert", "mbert"}]
    report = Report(file_of([*ranked, CLEAN, *published]), ORDER)
    picks = {pick.task: pick for pick in report.picks}
    assert [r.model for r in picks["nsmc"].best] == ["slow", "fast"]
    assert picks["nsmc"].fastest is not None
    assert picks["nsmc"].fastest.model == "fast"
    assert picks["nsmc"].reported is not None
    assert picks["nsmc"].reported.model == "kpfbert"
    assert picks["klue-nli"].best == ()
    assert not picks["klue-sts-sample"].is_distinguished
    assert score_of(CLEAN) == 0.7
    assert [pick.is_official for pick in report.picks] == sorted((p.is_official for p in report.picks), reverse=True)
    text = to_markdown(report, "ko")
    assert "| NSMC | slow 90.00, fast 89.00 | fast | kpfBERT 91.29 |" in text
    assert "| KLUE-STS (sample) | 모델 사이에 유의한 차이가 없음 |  |  |" in text


def test_markdown_is_the_golden_text() -> None:
    if os.environ.get("PRESSBERT_REGENERATE") == "1":
        GOLDEN.write_text(markdown(FEW), encoding="utf-8")
    assert markdown(FEW) == GOLDEN.read_text(encoding="utf-8"), "if this is meant: PRESSBERT_REGENERATE=1 pytest"


# --- CSV ------------------------------------------------------------------------------------------------------------


def test_csv_holds_every_row_with_figures_as_fractions() -> None:
    records = list(csv.DictReader(io.StringIO(to_csv([*FEW, *HOSTILE]))))
    for record, expected in zip(records, [*FEW, *HOSTILE], strict=True):
        assert None not in record
        assert None not in record.values()
        assert (float(record["value"]) if record["value"] else None) == expected.value
        interval = tuple(float(record[key]) for key in ("ci95_low", "ci95_high")) if record["ci95_low"] else None
        assert interval == expected.ci95
        places = tuple(int(record[key]) for key in ("rank_best", "rank_worst")) if record["rank_best"] else None
        assert places == expected.rank
        texts = ("model", "task", "metric", "source", "status", "reason", "split", "note", "reference")
        assert [record[key] for key in texts] == [getattr(expected, key) for key in texts]


def test_csv_keeps_commas_quotes_and_line_breaks_in_a_reason() -> None:
    reason = 'one, "two"\nthree'
    assert next(csv.DictReader(io.StringIO(to_csv([failed("m", "nsmc", "accuracy", reason)]))))["reason"] == reason


def test_csv_has_no_formula() -> None:
    (record,) = csv.DictReader(io.StringIO(to_csv([failed("=HYPERLINK(1)", "nsmc", "accuracy", "\n\uff1d1+1")])))
    assert (record["model"], record["reason"]) == ("'=HYPERLINK(1)", "'\n\uff1d1+1")


def test_csv_has_a_column_for_each_noise_and_training_text() -> None:
    noise = [
        NoiseFigure(noise=name, rate=rate, num_examples=9, altered=1.0, value=value, drop=0.1)
        for name, rate, value in (("nfd", 1.0, 0.4), ("jamo-typos", 0.03, None))
    ]
    clean = [CleanFigure(corpus="train", source="split", num_touched=3, value=0.45, ci95=None, touched_value=0.9)]
    text = to_csv([row("m", "nsmc", "accuracy", noise=noise, clean=clean), row("n", "nsmc", "accuracy")])
    first, second = csv.DictReader(io.StringIO(text))
    assert (first["noise:nfd@1"], first["noise:jamo-typos@0.03"], first["clean:train"]) == ("0.4", "", "0.45")
    assert (second["noise:nfd@1"], second["clean:train"]) == ("", "")


# --- HTML -----------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The tags, attributes and visible text of a page; every tag must be closed by its own."""

    VOID = frozenset({"meta", "line", "rect", "circle", "path", "input"})

    def __init__(self, text: str) -> None:
        """Read TEXT."""
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        """Check that it closes the last one opened."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text.append(data)


ALL = [*FEW, *HOSTILE, *read_reported()]
BOARDS = list(Report(file_of(ALL), ORDER).boards.values())


def test_html_shows_hostile_text_as_text() -> None:
    text = html(ALL)
    page = Page(text)
    assert page.tags.count("script") == 1
    assert "<b> | no" not in text
    assert text.count(HOSTILE_MODEL) == 0
    assert HOSTILE_MODEL in page.text
    assert any(HOSTILE_REASON in words for words in page.text)


def test_html_shows_every_figure_of_the_table() -> None:
    text = " ".join(" ".join(Page(html(ALL)).text).split())
    for r in ALL:
        if r.value is not None:
            assert f"{100 * r.value:.2f}" in text
        if r.ci95 is not None:
            assert f"[{100 * r.ci95[0]:.2f}, {100 * r.ci95[1]:.2f}]" in text
        if r.std is not None:
            assert f"±{100 * r.std:.2f}" in text
    assert all(words in text for board in BOARDS for note in board.footnotes for words in note)
    assert "2026-01-02T03:04:05+00:00" in text
    assert "Test CPU" in text


def charts_in(text: str) -> dict[str, ET.Element]:
    """Return the charts of a page by their titles, each parsed as strict XML."""
    elements = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)]  # noqa: S314 - ours
    return {element.attrib["aria-label"]: element for element in elements}


def test_html_draws_a_chart_for_each_column_with_a_mark_for_each_value() -> None:
    drawn = {
        column.title: [r for _, lines in board.blocks for line in lines if (r := line.rows[k]) and r.value is not None]
        for board in BOARDS
        for k, column in enumerate(board.columns)
    }
    charts = charts_in(html(ALL))
    assert set(charts) == {title for title, rows in drawn.items() if rows}
    for title, chart in charts.items():
        groups = chart.findall("g")
        assert len(groups) == len(drawn[title])
        for group, r in zip(groups, drawn[title], strict=True):
            shapes = [e.attrib["class"] for e in group if e.tag in {"circle", "rect", "path"}]
            sample = r.task.endswith("-sample")
            assert shapes == ["diamond" if r.source == "reported" else "square" if sample else "circle"]
            assert f"{100 * (r.value or 0):.2f}" in [e.text for e in group.findall("text")]


def test_a_chart_keeps_its_marks_and_intervals_inside_and_in_order() -> None:
    values = [-1.0, -0.3, 0.0, 0.42, 1.0]
    rows = [
        row(f"m{k}", "klue-sts", "pearson", v, ci95=(max(-1, v - 0.1), min(1, v + 0.1))) for k, v in enumerate(values)
    ]
    (chart,) = charts_in(html(rows)).values()
    _, _, width, height = map(float, chart.attrib["viewBox"].split())
    places = [float(e.attrib["cx"]) for e in chart.iter("circle")]
    assert places == sorted(places)
    assert len(set(places)) == len(values)
    for group, place in zip(chart.findall("g"), places, strict=True):
        (interval,) = group.findall("line")
        assert 0 < float(interval.attrib["x1"]) <= place <= float(interval.attrib["x2"]) < width
    assert all(0 < float(e.attrib["cy"]) < height for e in chart.iter("circle"))


def test_a_chart_of_a_single_value_can_be_drawn() -> None:
    for value in (-1.0, 0.0, 0.5, 1.0):
        (chart,) = charts_in(html([row("m", "klue-sts", "pearson", value)])).values()
        assert len(list(chart.iter("circle"))) == 1, value
        assert not chart.findall("g/line"), value


# --- terminal -------------------------------------------------------------------------------------------------------

COMPARED = ("majority", "tfidf", "pressbert-scratch", "kpfbert", "klue-bert", "korbert", "kobert", "mbert")


def full(models: Sequence[str], suffix: str = "") -> list[Row]:
    """Return every figure of the comparison, as wide as figures get."""
    return [
        row(model, name + suffix, metric.key, 0.8 + k / 100, ci95=(0.7 + k / 100, 0.9), std=0.0123 + k / 1000, seeds=3)
        for k, model in enumerate(models)
        for name in ORDER
        for metric in get_task(name).metrics
    ]


def test_a_terminal_of_120_columns_shows_every_figure_whole() -> None:
    cases = {
        "bundled models on the sample": full(COMPARED[:3], "-sample") + read_reported(),
        "the published comparison measured": full(COMPARED) + read_reported(),
        "both and gaps": full(COMPARED) + full(COMPARED[:3], "-sample") + FEW,
    }
    for name, rows in cases.items():
        text = terminal(rows)
        tables = [line for line in text.splitlines() if line and not line.startswith("(")]
        assert max(cell_len(line) for line in tables) <= 120, name
        for r in rows:
            if r.value is not None:
                assert f"{100 * r.value:.2f}" in text, name
            if r.ci95 is not None:
                assert f"[{100 * r.ci95[0]:.2f}, {100 * r.ci95[1]:.2f}]" in text, name
        assert not any("…" in line for line in tables), name


def test_the_terminal_gives_every_footnote_in_full() -> None:
    reason = "/a/very/long/path" * 20 + ": not there; run: curl -fL --create-dirs -o '[x]' 'https://example.org/[y]'"
    assert f"(1) 실행 불가: {reason}" in terminal([failed("m", "nsmc", "accuracy", reason, "unavailable")]).splitlines()


def test_every_printed_table_is_in_the_language_asked_for() -> None:
    rows = [*FEW, CLEAN]
    english = terminal(rows, language="en") + compared(
        comparison(num_clusters=140, is_clean_subset=True), language="en"
    )
    left = set(re.findall(r"[가-힣]+", english))
    assert left <= {"a", "b"}, left
    for words in ("Published", "Task", "without overlap 70.00", "140 clusters", "kpfBERT better", "#1–2"):
        assert words in english, words
    assert "겹침 제외 70.00" in terminal(rows)
    assert "묶음 140개" in compared(comparison(num_clusters=140))


def test_the_terminal_takes_no_name_for_markup() -> None:
    for model in ("kpfbert[v2]", "run[/old]", "[bold]", "a:smile:b"):
        assert model in terminal([row(model, "nsmc", "accuracy")])


# --- two models against each other ------------------------------------------------------------------------------------


def comparison(**more: Any) -> Comparison:
    facts: dict[str, Any] = {
        "task": "nsmc",
        "metric": "accuracy",
        "a": "kpfbert",
        "b": "tfidf",
        "seeds_a": 3,
        "seeds_b": 1,
    }
    facts |= {"value_a": 0.9129, "value_b": 0.8712, "difference": 0.0417, "ci95": (0.0391, 0.0443), "verdict": "better"}
    return Comparison(**(facts | {"p_examples": 0.0001, "p": 0.0123, "p_adjusted": 0.0246} | more))


def compared(*found: Comparison, a: str = "kpfbert", b: str = "tfidf", language: Language = "ko") -> str:
    console = Console(width=120, file=io.StringIO())
    print_comparisons(found, a, b, console, language)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_comparison_shows_both_figures_the_difference_and_every_p() -> None:
    text = compared(comparison())
    for part in (
        "NSMC Acc",
        "91.29",
        "(3시드)",
        "87.12",
        "(1시드)",
        "+4.17",
        "[+3.91, +4.43]",
        "<0.001",
        "0.012",
        "0.025",
    ):
        assert part in text
    assert "kpfBERT 우세" in text
    assert text.index("91.29") < text.index("87.12")


def test_a_comparison_asked_for_the_other_way_round_turns_its_signs() -> None:
    text = compared(comparison(), a="tfidf", b="kpfbert")
    assert "-4.17" in text
    assert "[-4.43, -3.91]" in text
    assert text.index("87.12") < text.index("91.29")
    assert "kpfBERT 우세" in text


def test_a_comparison_that_shows_nothing_says_so() -> None:
    tie = compared(comparison(verdict="tie", p=0.2, p_adjusted=0.4))
    assert "유의한" in tie
    untestable = compared(comparison(verdict="not_testable", p=None, p_adjusted=None, ci95=None, reason="one_seed"))
    assert "검정 불가" in untestable
    assert "—" in untestable
    for shown in (tie, untestable):
        assert max(cell_len(line) for line in shown.splitlines()) <= 120
