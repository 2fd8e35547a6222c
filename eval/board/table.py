"""Rows into tables: what stands where, and the terminal and CSV forms of it. Reads rows, loads no model.

Only here and in the report are fractions multiplied by 100.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from downstream.encoders.hub import ENCODERS
from downstream.task import SAMPLE_SUFFIX, all_tasks
from eval.board.comparison import Comparison
from eval.board.rows import Row
from eval.board.words import (
    BLOCKS,
    FAILED,
    MEASURED,
    ON_OTHER,
    ON_SAMPLE,
    REPORTED,
    SOME_SEEDS,
    SUBSTITUTE,
    UNAVAILABLE,
    UNDEFINED,
    Language,
    Words,
)

MODELS_PER_TABLE = 5


@dataclass(frozen=True)
class Column:
    """A task's metric; the sample's figure stands in the column of the official task."""

    task: str
    metric: str
    title: str
    is_ranking: bool
    """Whether it is the task's first metric."""


@dataclass(frozen=True)
class Line:
    """A model's row within a block: its figure per column, None where nothing was asked for."""

    model: str
    rows: tuple[Row | None, ...]


@dataclass(frozen=True)
class Board:
    """The table all formats draw: blocks of lines under shared columns, with numbered footnotes."""

    columns: tuple[Column, ...]
    blocks: tuple[tuple[Words, tuple[Line, ...]], ...]
    footnotes: tuple[Words, ...]

    def mark(self, row: Row) -> str:
        """Return the footnote marks of a row, e.g. `(1)(3)`, or an empty string."""
        return "".join(f"({self.footnotes.index(text) + 1})" for text in _footnotes(row))


def build_board(rows: Sequence[Row], order: Sequence[str] = ()) -> Board:
    """Arrange rows: tasks of ORDER first, then the registry's; blocks by what was measured on; models as they came."""
    tasks = all_tasks()
    # A sample may be all there is of a task.
    leading = [name for name, task in tasks.items() if task.base not in tasks]
    names = [*order, *(name for name in leading if name not in order)]
    official = {
        name: tasks[name].official_name if name in tasks and name not in leading else name
        for name in {r.task for r in rows}
    }
    columns = tuple(
        Column(name, metric.key, f"{tasks[name].title} {metric.title}", metric is tasks[name].metrics[0])
        for name in names
        for metric in tasks[name].metrics
        if any(official[r.task] == name and r.metric == metric.key for r in rows)
    )

    def block_of(row: Row) -> Words:
        if row.source == "reported":
            return REPORTED
        if row.task.endswith(SAMPLE_SUFFIX):
            return ON_SAMPLE
        return MEASURED if row.task == official[row.task] else ON_OTHER

    blocks: list[tuple[Words, tuple[Line, ...]]] = []
    for title in BLOCKS:
        members = [row for row in rows if block_of(row) == title]
        cells = {(r.model, official[r.task], r.metric): r for r in members}
        lines = tuple(
            Line(model, tuple(cells.get((model, c.task, c.metric)) for c in columns))
            for model in dict.fromkeys(r.model for r in members)
        )
        if lines:
            blocks.append((title, lines))
    footnotes = tuple(dict.fromkeys(text for row in rows for text in _footnotes(row)))
    return Board(columns, tuple(blocks), footnotes)


def _footnotes(row: Row) -> list[Words]:
    """Return what is said of a row below the table: why it has no value, which task stands in, what else to know."""
    notes = []
    task = all_tasks().get(row.task)
    if task is not None and task.base and not task.is_sample:
        notes.append(Words(*(text.format(task.name, task.base) for text in SUBSTITUTE)))
    if row.status != "ok":
        start = FAILED if row.status == "failed" else UNAVAILABLE
        notes.append(Words(start.ko + row.reason, start.en + row.reason))
    elif row.reason:
        metric = next((m.title for m in task.metrics if m.key == row.metric), row.metric) if task else row.metric
        is_undefined = row.reason == UNDEFINED.ko.format(metric)
        notes.append(Words(row.reason, UNDEFINED.en.format(metric) if is_undefined else row.reason))
    elif row.note:
        is_partial = row.note.startswith(SOME_SEEDS.ko)
        english = SOME_SEEDS.en + row.note.removeprefix(SOME_SEEDS.ko) if is_partial else row.note_en or row.note
        notes.append(Words(row.note, english))
    return notes


def model_title(key: str) -> str:
    """Return the name of a model in tables."""
    return ENCODERS[key].title if key in ENCODERS else key


def percent(value: float) -> str:
    """Return a fraction as hundredths with two decimals."""
    return f"{100 * value:.2f}"


def places(rank: tuple[int, int], language: Language = "ko") -> str:
    """Return the places a model may hold, e.g. `1위` or `2–4위`; in English `#1` or `#2–4`."""
    best, worst = rank
    span = f"{best}" if best == worst else f"{best}–{worst}"
    return f"{span}위" if language == "ko" else f"#{span}"


def figure(row: Row | None, board: Board, join: str = " ", language: Language = "ko") -> str:
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
        parts.append(places(row.rank, language))
    return join.join(parts)


def clean_text(row: Row | None, language: Language = "ko") -> str:
    """Return a row's figures without the examples that training texts touch, as a range; nothing if there are none."""
    found = sorted(one.value for one in row.clean if one.value is not None) if row is not None else []
    if not found:
        return ""
    values = "–".join(dict.fromkeys((percent(found[0]), percent(found[-1]))))
    return f"겹침 제외 {values}" if language == "ko" else f"without overlap {values}"


def to_csv(rows: Sequence[Row]) -> str:
    """Return the rows as CSV, figures as fractions; a column for each noise and each training text, if there are any.

    A figure under noise stands under `noise:KIND@RATE`, one without touched examples under `clean:CORPUS`.
    """
    buffer = io.StringIO()
    nested = {"ci95", "rank", "noise", "clean"}
    records = [row.model_dump(exclude=nested) | _flat(row) for row in rows]
    fields = [name for name in Row.model_fields if name not in nested]
    ends = ["ci95_low", "ci95_high", "rank_best", "rank_worst"]
    others = [name for record in records for name in record if name not in fields and name not in ends]
    writer = csv.DictWriter(buffer, [*fields, *ends, *dict.fromkeys(others)], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return buffer.getvalue()


def _flat(row: Row) -> dict[str, float | None]:
    low, high = row.ci95 or (None, None)
    best, worst = row.rank or (None, None)
    ends = {"ci95_low": low, "ci95_high": high, "rank_best": best, "rank_worst": worst}
    noise = {f"noise:{found.noise}@{found.rate:g}": found.value for found in row.noise}
    return ends | noise | {f"clean:{found.corpus}": found.value for found in row.clean}


def print_terminal(board: Board, console: Console) -> None:
    """Print the table to a console, models side by side: a terminal has more lines than columns."""
    for title, block in board.blocks:
        for first in range(0, len(block), MODELS_PER_TABLE):
            lines = block[first : first + MODELS_PER_TABLE]
            table = Table(title=Text(title.ko), title_justify="left", show_lines=True)
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
        console.print(f"({number}) {text.ko}", markup=False, highlight=False, soft_wrap=True)


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
            *(p_text(p) for p in (found.p_examples, found.p, found.p_adjusted)),
            Text(_verdict(found)),
        )
    console.print(table)


def signed(value: float) -> str:
    """Return a fraction as hundredths with two decimals and its sign."""
    return f"{100 * value:+.2f}"


def p_text(p: float | None) -> str:
    """Return a p-value as table text."""
    return "—" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _verdict(found: Comparison) -> str:
    if found.verdict == "better":
        return f"{model_title(found.a)} 우세"
    return "우열을 가릴 수 없음" if found.verdict == "tie" else f"판정 불가: {found.reason}"
