"""Page 모델 비교: the leaderboard with filters, its report as a file, and the mistakes of a model."""

import base64
import os
from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from apps.demo_pages.frame import PageContext, download, heading, show_error
from apps.demo_pages.marking import escaped, one_line
from corpora.foundation.errors import ResultError, SuiteError
from corpora.foundation.files import package_path
from corpora.foundation.texts import Texts
from corpora.official import data_root
from downstream.finetuning.result import Result
from downstream.task import all_tasks
from eval.board.mistakes import Mistake, find_mistakes
from eval.board.page import to_html
from eval.board.report import Report
from eval.board.rows import LeaderboardFile, Row, read_reported
from eval.board.table import Board, Line, build_board, figure, model_title, to_csv
from eval.cells.files import find_cells
from eval.contestants.contestant import load_leaderboard

REPORTS = "PRESSBERT_REPORTS"
"""Environment variable: the output folder of `eval/run_all.py`; default `reports`, else that of the project."""
FILE = "leaderboard.json"
PROJECT_REPORTS = package_path("apps").parent / "docs" / "reports"
"""Of a checkout; an installed package has none."""
PER_PAGE = 10


def show(context: PageContext) -> None:
    """Draw the page."""
    texts = context.texts
    heading(texts, "leaderboard")
    folder = reports_folder()
    board_file = None
    if (folder / FILE).is_file():
        try:
            board_file = read_board(folder / FILE, (folder / FILE).stat().st_mtime_ns)
        except ResultError as error:
            show_error(error, texts)
    if board_file is None:
        st.info(texts("leaderboard.only_reported"), icon=":material/info:")
        st.code("make leaderboard", language="bash")
    rows = board_file.rows if board_file is not None else read_reported()
    _table(texts, rows)
    if board_file is not None:
        if folder == PROJECT_REPORTS:
            st.caption(texts("leaderboard.project"))
        _report(texts, folder, board_file)
        _mistakes(texts, folder)


def reports_folder() -> Path:
    """Return the folder of the leaderboard: that of the environment, `reports`, or the report of the project."""
    if named := os.environ.get(REPORTS):
        return Path(named)
    return next((folder for folder in (Path("reports"), PROJECT_REPORTS) if (folder / FILE).is_file()), Path("reports"))


@st.cache_data(show_spinner=False, max_entries=4)
def read_board(path: Path, _written: int) -> LeaderboardFile:
    """Read a leaderboard.

    Raises:
        ResultError: it is damaged.
    """
    try:
        return LeaderboardFile.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultError(path, "not a leaderboard of schema 1", "run make leaderboard again") from error


# ---- table ----


@st.cache_data(show_spinner=False)
def published_order() -> list[str]:
    """Return the tasks of the published comparison, which are the first columns."""
    return load_leaderboard().tasks


def _table(texts: Texts, rows: Sequence[Row]) -> None:
    tasks, known = list(dict.fromkeys(row.task for row in rows)), all_tasks()
    models = list(dict.fromkeys(row.model for row in rows))
    first, second, third = st.columns(3)
    with first:
        chosen_tasks = st.multiselect(
            texts("leaderboard.tasks"),
            tasks,
            key="tasks",
            bind="query-params",
            placeholder=texts("leaderboard.all"),
            format_func=lambda name: known[name].title if name in known else name,
        )
    with second:
        chosen_models = st.multiselect(
            texts("leaderboard.models"),
            models,
            key="models",
            bind="query-params",
            placeholder=texts("leaderboard.all"),
            format_func=model_title,
        )
    with third:
        sources = st.multiselect(
            texts("leaderboard.sources"),
            ("measured", "reported"),
            key="sources",
            bind="query-params",
            placeholder=texts("leaderboard.all"),
            format_func=lambda name: texts(f"leaderboard.{name}"),
        )
    kept = [
        row
        for row in rows
        if row.task in (chosen_tasks or tasks)
        and row.model in (chosen_models or models)
        and row.source in (sources or ("measured", "reported"))
    ]
    if not kept:
        st.info(texts("leaderboard.nothing"), icon=":material/filter_alt_off:")
        return
    report = Texts(texts.language, "report")
    for key, board in boards_of(kept).items():
        st.subheader(report(key), anchor=False)
        st.caption(report(f"{key}_text"))
        st.html(board_html(texts, board))
        if board.footnotes:
            with st.expander(texts("leaderboard.notes", count=len(board.footnotes)), icon=":material/notes:"):
                lines = "".join(f"<li>{escaped(note.text(texts.language))}</li>" for note in board.footnotes)
                st.html(f'<ol class="pb-notes" lang="ko">{lines}</ol>')
    with st.expander(texts("leaderboard.how"), icon=":material/help:"):
        st.html(f'<p lang="ko">{escaped(report("how_to_read"))}</p>')
    _chart(texts, build_board(kept, published_order()))


def boards_of(rows: Sequence[Row]) -> dict[str, Board]:
    """Return the tables with their keys: measured beside published scores of official tasks, and then substitutes."""
    file = LeaderboardFile(schema=1, created="", manifest={}, rows=list(rows))
    return Report(file, published_order()).boards


def board_html(texts: Texts, board: Board) -> str:
    """Return the table as HTML; the best score of a column in its block is bold and has a star."""
    head = "".join(f'<th scope="col">{escaped(column.title)}</th>' for column in board.columns)
    titles, body = Texts(texts.language, "report.block"), []
    for block, lines in board.blocks:
        body.append(f'<tr><th scope="rowgroup" colspan="{len(board.columns) + 1}">{escaped(titles(block))}</th></tr>')
        best = [_best(lines, position) for position in range(len(board.columns))]
        for line in lines:
            cells = "".join(_cell(texts, row, board, is_best=row is best[k]) for k, row in enumerate(line.rows))
            body.append(f'<tr><th scope="row">{escaped(model_title(line.model))}</th>{cells}</tr>')
    return (
        f'<div class="pb-scroll" tabindex="0" role="region" aria-label="{texts("leaderboard.title")}">'
        f'<table class="pb-board"><thead><tr><th scope="col">{texts("leaderboard.model")}</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _best(lines: Sequence[Line], position: int) -> Row | None:
    rows = [row for line in lines if (row := line.rows[position]) is not None and row.value is not None]
    return max(rows, key=lambda row: row.value or 0.0) if len(rows) > 1 else None


def _cell(texts: Texts, row: Row | None, board: Board, *, is_best: bool) -> str:
    if row is None:
        return "<td></td>"
    # Line by line: the score with its marks, then interval, spread and ranks.
    value, *rest = figure(row, board, "\n", texts.language).split("\n")
    shown = f"<b>★ {escaped(value)}</b>" if is_best else escaped(value)
    return f"<td>{shown}{''.join(f'<small>{escaped(line)}</small>' for line in rest)}</td>"


def _chart(texts: Texts, board: Board) -> None:
    """Show one column as dots with intervals; measured and published scores differ in shape."""
    titles = [column.title for column in board.columns]
    chosen = st.selectbox(texts("leaderboard.chart"), titles, key="column", bind="query-params")
    position = titles.index(chosen)
    rows = [
        {
            "model": model_title(line.model),
            "block": Texts(texts.language, "report.block")(block),
            "value": 100 * row.value,
            "low": 100 * (row.ci95 or (row.value, row.value))[0],
            "high": 100 * (row.ci95 or (row.value, row.value))[1],
        }
        for block, lines in board.blocks
        for line in lines
        if (row := line.rows[position]) is not None and row.value is not None
    ]
    model = {"field": "model", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 200}}
    legend = {"orient": "bottom", "columns": 1, "labelLimit": 400}
    block = {"field": "block", "type": "nominal", "title": None, "legend": legend}
    scale, axis = {"zero": False, "padding": 12}, {"tickCount": 6}
    layers = [
        {
            "mark": {"type": "rule", "strokeWidth": 2},
            "encoding": {
                "y": model,
                "color": block,
                "x2": {"field": "high"},
                "x": {"field": "low", "type": "quantitative", "scale": scale, "axis": axis, "title": f"{chosen} ×100"},
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 90},
            "encoding": {
                "y": model,
                "color": block,
                "shape": block,
                "x": {"field": "value", "type": "quantitative"},
                "tooltip": [{"field": name} for name in ("model", "value", "low", "high")],
            },
        },
    ]
    num_models, num_blocks = (len({row[name] for row in rows}) for name in ("model", "block"))
    # A line for every model, the axis with its title, and the legend.
    height = 26 * num_models + 130 + 26 * num_blocks
    chart = {"data": {"values": rows}, "layer": layers, "height": height}
    st.vega_lite_chart(chart, key="board-chart", alt=texts("leaderboard.chart_alt", column=chosen))


def _report(texts: Texts, folder: Path, board_file: LeaderboardFile) -> None:
    """Offer the written report for download."""
    written = folder / "leaderboard.html"
    page = written.read_bytes() if written.is_file() else to_html(Report(board_file, published_order())).encode()
    with st.container(horizontal=True):
        download(texts("leaderboard.report"), page, "leaderboard.html")
        download(texts("download.csv"), to_csv(board_file.rows).encode(), "leaderboard.csv")
    st.caption(texts("leaderboard.created", when=board_file.created[:16].replace("T", " ")))
    if st.toggle(texts("leaderboard.show_report"), key="report", bind="query-params"):
        # A data URL has no origin, so the script of the report cannot access this page.
        source = f"data:text/html;charset=utf-8;base64,{base64.b64encode(page).decode()}"
        st.iframe(source, height=800, alt=texts("leaderboard.report"))


# ---- errors ----


@st.cache_data(show_spinner=False, max_entries=2)
def _cells(folder: Path, _written: float) -> list[Result]:
    return find_cells(folder)[0]


def _mistakes(texts: Texts, folder: Path) -> None:
    """Show the mistakes of a model."""
    st.header(texts("mistakes.title"), anchor=False)
    results = folder / "results"
    cells = _cells(folder, max((path.stat().st_mtime for path in results.glob("*/*/*.json")), default=0.0))
    if not cells:
        st.info(texts("mistakes.none"), icon=":material/info:")
        return
    by_task: dict[str, dict[str, Result]] = {}
    for cell in cells:
        by_task.setdefault(cell.task, {})[f"{model_title(cell.model)} · seed {cell.seed}"] = cell
    known = all_tasks()
    first, second, third = st.columns(3)
    with first:
        task = st.selectbox(
            texts("mistakes.task"),
            list(by_task),
            key="task",
            bind="query-params",
            format_func=lambda name: known[name].title if name in known else name,
        )
    with second:
        name = st.selectbox(texts("mistakes.model"), list(by_task[task]), key="cell", bind="query-params")
    with third:
        others = [other for other in by_task[task] if other != name]
        other = st.selectbox(
            texts("mistakes.other"), others, index=None, placeholder=texts("mistakes.nobody"), key="other"
        )
    try:
        against = by_task[task][other] if other else None
        found = find_mistakes(by_task[task][name], data_root(None), against=against)
    except SuiteError as error:
        show_error(error, texts)
        return
    _filtered(texts, found, by_task[task][name], has_other=other is not None)


def _filtered(texts: Texts, found: Sequence[Mistake], cell: Result, *, has_other: bool) -> None:
    first, second = st.columns([3, 2], vertical_alignment="bottom")
    with first:
        words = st.text_input(texts("mistakes.find"), key="mistake", bind="query-params", max_chars=60).split()
    with second:
        only = has_other and st.toggle(texts("mistakes.only"), key="otherright", bind="query-params")
    kept = [
        mistake
        for mistake in found
        if (not only or mistake.is_other_right)
        and all(any(word in text for text in mistake.texts) or word == mistake.gold for word in words)
    ]
    st.caption(texts("mistakes.count", shown=len(kept), wrong=len(found), total=cell.num_examples))
    if not kept:
        return
    num_pages = -(-len(kept) // PER_PAGE)
    page = st.pagination(num_pages, key="mistakes-page") if num_pages > 1 else 1
    st.html("".join(mistake_html(texts, mistake) for mistake in kept[(page - 1) * PER_PAGE : page * PER_PAGE]))


def mistake_html(texts: Texts, mistake: Mistake) -> str:
    """Return a mistake as HTML: texts, gold label, prediction."""
    passages = "".join(
        f"<p>{escaped(one_line(text, 400))}</p>"
        if len(text) <= 400
        else f"<details><summary>{escaped(one_line(text, 160))}</summary><p>{escaped(text)}</p></details>"
        for text in mistake.texts
    )
    said = [
        f"<span>✓ {texts('mistakes.gold')} <b>{escaped(mistake.gold) or texts('answers.none')}</b></span>",
        f"<span>✗ {texts('mistakes.said')} <b>{escaped(mistake.prediction) or texts('answers.none')}</b></span>",
    ]
    if mistake.is_other_right is not None:
        sign = "✓" if mistake.is_other_right else "✗"
        said.append(f"<span>{sign} {texts('mistakes.other_said')} <b>{escaped(mistake.other) or '—'}</b></span>")
    return f'<article class="pb-mistake" lang="ko">{passages}<p class="pb-said">{"".join(said)}</p></article>'
