"""Rows into tables: terminal, Markdown, CSV, JSON and one self-contained HTML page. Reads rows, loads no model.

Only here are fractions multiplied by 100.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpora.runtime import write_json, write_text
from downstream.encoders import ENCODERS
from downstream.task import SAMPLE_SUFFIX, all_tasks
from eval.comparison import Comparison
from eval.results import LeaderboardFile, Row

TITLE = "PressBERT 리더보드"
MEASURED = "측정: 공식 평가 자료"
ON_SAMPLE = "측정: 내장 표본 (공식 점수와 비교할 수 없음)"
ON_OTHER = "측정: 대체 분할"
REPORTED = "공표된 수치: 공식 평가 자료, 1회 실행"
HOW_TO_READ = (
    "값은 ×100. 대괄호는 평가 예제에 대한 95% 부트스트랩 구간, ±는 시드 사이의 표준편차(시드가 둘 이상일 때). "
    "‘위’는 과제의 대표 지표에서 그 모델이 있을 수 있는 순위의 범위입니다. 예제와 시드를 함께 본 쌍대 검정(과제 안에서 "
    "Holm 보정)에서 우열이 가려진 모델만 셉니다: 2–4위는 한 모델에 뒤지고 두 모델과는 우열을 가릴 수 없다는 뜻입니다. "
    "빈칸의 이유는 번호를 따라 아래 주석에 적었습니다."
)


MODELS_PER_TABLE = 5


@dataclass(frozen=True)
class Column:
    """A task's metric; the sample's figure stands in the column of the official task."""

    task: str
    metric: str
    title: str


@dataclass(frozen=True)
class Line:
    """A model's row within a block: its figure per column, None where nothing was asked for."""

    model: str
    rows: tuple[Row | None, ...]


@dataclass(frozen=True)
class Board:
    """The table all formats draw: blocks of lines under shared columns, with numbered footnotes."""

    columns: tuple[Column, ...]
    blocks: tuple[tuple[str, tuple[Line, ...]], ...]
    footnotes: tuple[str, ...]

    def mark(self, row: Row) -> str:
        """Return the footnote mark of a row, or an empty string."""
        text = _footnote(row)
        return f"({self.footnotes.index(text) + 1})" if text else ""


def build_board(rows: Sequence[Row], order: Sequence[str] = ()) -> Board:
    """Arrange rows: tasks of ORDER first, then the registry's; blocks by what was measured on; models as they came."""
    tasks = all_tasks()
    names = [*order, *(name for name, task in tasks.items() if not task.base and name not in order)]
    official = {name: tasks[name].official_name if name in tasks else name for name in {r.task for r in rows}}
    columns = tuple(
        Column(name, metric.key, f"{tasks[name].title} {metric.title}")
        for name in names
        for metric in tasks[name].metrics
        if any(official[r.task] == name and r.metric == metric.key for r in rows)
    )

    def block_of(row: Row) -> str:
        if row.source == "reported":
            return REPORTED
        if row.task == official[row.task]:
            return MEASURED
        return ON_SAMPLE if row.task.endswith(SAMPLE_SUFFIX) else ON_OTHER

    blocks: list[tuple[str, tuple[Line, ...]]] = []
    for title in (MEASURED, ON_OTHER, ON_SAMPLE, REPORTED):
        members = [row for row in rows if block_of(row) == title]
        cells = {(r.model, official[r.task], r.metric): r for r in members}
        lines = tuple(
            Line(model, tuple(cells.get((model, c.task, c.metric)) for c in columns))
            for model in dict.fromkeys(r.model for r in members)
        )
        if lines:
            blocks.append((title, lines))
    footnotes = tuple(dict.fromkeys(text for row in rows if (text := _footnote(row))))
    return Board(columns, tuple(blocks), footnotes)


def _footnote(row: Row) -> str:
    if row.status != "ok":
        return f"{ {'failed': '실패', 'unavailable': '실행 불가'}[row.status] }: {row.reason}"
    return row.reason or row.note


def model_title(key: str) -> str:
    """Return the name of a model in tables."""
    return ENCODERS[key].title if key in ENCODERS else key


def percent(value: float) -> str:
    """Return a fraction as hundredths with two decimals."""
    return f"{100 * value:.2f}"


def places(rank: tuple[int, int]) -> str:
    """Return the places a model may hold, e.g. `1위` or `2–4위`."""
    best, worst = rank
    return f"{best}위" if best == worst else f"{best}–{worst}위"


def figure(row: Row | None, board: Board, join: str = " ") -> str:
    """Return a row as table text: value, footnote mark, interval, spread, places."""
    if row is None:
        return ""
    mark = board.mark(row)
    if row.value is None:
        return f"— {mark}".strip()
    parts = [percent(row.value) + (f" {mark}" if mark else "")]
    if row.ci95 is not None:
        parts.append(f"[{percent(row.ci95[0])}, {percent(row.ci95[1])}]")
    if row.std is not None:
        parts.append(f"±{percent(row.std)}")
    if row.rank is not None:
        parts.append(places(row.rank))
    return join.join(parts)


def write_leaderboard(out: Path, board_file: LeaderboardFile, order: Sequence[str] = ()) -> None:
    """Write `leaderboard.json`, `.csv`, `.md` and `.html` to OUT, each atomically.

    Raises:
        ResultError: a file cannot be written.
    """
    board = build_board(board_file.rows, order)
    write_json(out / "leaderboard.json", board_file.model_dump(by_alias=True))
    write_text(out / "leaderboard.csv", to_csv(board_file.rows))
    write_text(out / "leaderboard.md", to_markdown(board, board_file))
    write_text(out / "leaderboard.html", to_html(board, board_file))


def to_csv(rows: Iterable[Row]) -> str:
    """Return the rows as CSV, figures as fractions."""
    buffer = io.StringIO()
    ends = ("ci95_low", "ci95_high", "rank_best", "rank_worst")
    fields = [name for name in Row.model_fields if name not in {"ci95", "rank"}]
    writer = csv.DictWriter(buffer, [*fields, *ends], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        values = (*(row.ci95 or (None, None)), *(row.rank or (None, None)))
        writer.writerow(row.model_dump(exclude={"ci95", "rank"}) | dict(zip(ends, values, strict=True)))
    return buffer.getvalue()


def to_markdown(board: Board, board_file: LeaderboardFile) -> str:
    """Return the table as GitHub Markdown."""

    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("\n", " ")

    lines = [f"# {TITLE}", "", HOW_TO_READ, ""]
    for title, block in board.blocks:
        lines += [f"## {title}", "", "| 모델 | " + " | ".join(cell(c.title) for c in board.columns) + " |"]
        lines.append("| --- |" + " ---: |" * len(board.columns))
        for line in block:
            figures = " | ".join(cell(figure(row, board)) for row in line.rows)
            lines.append(f"| {cell(model_title(line.model))} | {figures} |")
        lines.append("")
    lines += [f"{number}. {text}" for number, text in enumerate(board.footnotes, start=1)]
    lines += ["", f"작성: {board_file.created} · " + " · ".join(_manifest_words(board_file)), ""]
    return "\n".join(lines)


def print_terminal(board: Board, console: Console) -> None:
    """Print the table to a console, models side by side: a terminal has more lines than columns."""
    for title, block in board.blocks:
        for first in range(0, len(block), MODELS_PER_TABLE):
            lines = block[first : first + MODELS_PER_TABLE]
            table = Table(title=Text(title), title_justify="left", show_lines=True)
            table.add_column("과제", no_wrap=True)
            for line in lines:
                # Text, because rich would read [brackets] and :colons: in a string as its own markup.
                table.add_column(Text(model_title(line.model)), justify="right", no_wrap=True)
            for place, column in enumerate(board.columns):
                if any(line.rows[place] is not None for line in lines):
                    figures = (Text(figure(line.rows[place], board, "\n")) for line in lines)
                    table.add_row(Text(column.title), *figures)
            console.print(table)
    for number, text in enumerate(board.footnotes, start=1):
        console.print(f"({number}) {text}", markup=False, highlight=False, soft_wrap=True)


def print_comparisons(comparisons: Sequence[Comparison], a: str, b: str, console: Console) -> None:
    """Print how models A and B compare, a row for each task; differences are A − B."""
    table = Table(title=Text(f"{model_title(a)} − {model_title(b)}"), title_justify="left", show_lines=True)
    for number, title in enumerate(
        ("과제", model_title(a), model_title(b), "차이\n[95% 구간]", "p\n예제", "p\n예제·시드", "p\nHolm", "판정")
    ):
        table.add_column(Text(title), justify="right" if 0 < number < 7 else "left")
    tasks = all_tasks()
    for found in comparisons:
        is_turned = found.a == b
        sign = -1 if is_turned else 1
        ends = sorted(sign * end for end in found.ci95) if found.ci95 else []
        figures = [(found.value_a, found.seeds_a), (found.value_b, found.seeds_b)]
        metric = next(metric.title for metric in tasks[found.task].metrics if metric.key == found.metric)
        table.add_row(
            Text(f"{tasks[found.task].title} {metric}"),
            *(f"{percent(value)}\n({seeds}시드)" for value, seeds in (figures[::-1] if is_turned else figures)),
            Text(signed(sign * found.difference) + (f"\n[{signed(ends[0])}, {signed(ends[1])}]" if ends else "")),
            *(_p_text(p) for p in (found.p_examples, found.p, found.p_adjusted)),
            Text(_verdict(found)),
        )
    console.print(table)


def signed(value: float) -> str:
    """Return a fraction as hundredths with two decimals and its sign."""
    return f"{100 * value:+.2f}"


def _p_text(p: float | None) -> str:
    return "—" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _verdict(found: Comparison) -> str:
    if found.verdict == "better":
        return f"{model_title(found.a)} 우세"
    return "우열을 가릴 수 없음" if found.verdict == "tie" else f"판정 불가: {found.reason}"


def _manifest_words(board_file: LeaderboardFile) -> list[str]:
    manifest = board_file.manifest
    packages = ", ".join(f"{name} {version}" for name, version in manifest.get("versions", {}).items())
    return [text for text in (manifest.get("cpu"), manifest.get("device"), packages) if text]


# --- HTML -----------------------------------------------------------------------------------------------------------

CHART_WIDTH, LABEL_WIDTH, VALUE_WIDTH, ROW_HEIGHT = 640, 150, 60, 26


def to_html(board: Board, board_file: LeaderboardFile) -> str:
    """Return a page without outside references: table, charts, footnotes, manifest. All text is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("leaderboard.html").render(
        title=TITLE,
        how_to_read=HOW_TO_READ,
        board=board,
        charts=[_chart(board, place) for place in range(len(board.columns))],
        created=board_file.created,
        manifest=_manifest_words(board_file),
        figure=lambda row: figure(row, board),
        percent=percent,
        model_title=model_title,
    )


def _chart(board: Board, place: int) -> dict[str, Any]:
    """Lay out a dot-and-interval chart of one column: circles measured, squares on the sample, diamonds reported."""
    entries = [
        (title, line.model, row)
        for title, block in board.blocks
        for line in block
        if (row := line.rows[place]) is not None and row.value is not None
    ]
    values = [bound for _, _, row in entries for bound in (row.ci95 or (row.value, row.value)) if bound is not None]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    margin = max(0.02, 0.08 * (high - low))
    low, high = max(low - margin, 0.0 if low >= 0 else -1.0), min(high + margin, 1.0)
    scale = _scale(low, high)
    shapes = {MEASURED: "circle", ON_SAMPLE: "square", ON_OTHER: "square", REPORTED: "diamond"}
    marks = []
    for number, (title, model, row) in enumerate(entries):
        assert row.value is not None
        ci_low, ci_high = row.ci95 or (row.value, row.value)
        marks.append(
            {
                "label": model_title(model),
                "shape": shapes[title],
                "y": ROW_HEIGHT * number + ROW_HEIGHT // 2,
                "x": scale(row.value),
                "low": scale(ci_low),
                "high": scale(ci_high),
                "value": percent(row.value),
                "hint": f"{model_title(model)} · {title} · {figure(row, board)}",
            }
        )
    ticks = [low + (high - low) * k / 4 for k in range(5)]
    return {
        "title": board.columns[place].title,
        "width": CHART_WIDTH,
        "left": LABEL_WIDTH,
        "height": ROW_HEIGHT * len(entries),
        "marks": marks,
        "ticks": [{"x": scale(tick), "label": f"{100 * tick:.1f}"} for tick in ticks],
    }


def _scale(low: float, high: float) -> Callable[[float], float]:
    span = CHART_WIDTH - LABEL_WIDTH - VALUE_WIDTH
    return lambda value: round(LABEL_WIDTH + 10 + span * (value - low) / (high - low), 1)
