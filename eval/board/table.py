"""Rows into tables: which figure goes into which cell, and the terminal and CSV forms. Reads rows, loads no model.

Only here and in the report are fractions multiplied by 100.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpora.foundation.texts import Language, Texts
from downstream.encoders.hub import ENCODERS
from downstream.task import SAMPLE_SUFFIX, Task, all_tasks
from eval.board.comparison import Comparison
from eval.board.rows import Row

MODELS_PER_TABLE = 5

Block: TypeAlias = Literal["measured", "on_other", "on_sample", "reported"]
"""What a figure was measured on: official data, a substitute split, the embedded sample; or published elsewhere."""
BLOCKS: tuple[Block, ...] = get_args(Block)


class Footnote(NamedTuple):
    """A note on a figure in both languages."""

    ko: str
    en: str

    def text(self, language: Language) -> str:
        """Return the note in one language."""
        return self.ko if language == "ko" else self.en


@dataclass(frozen=True)
class Column:
    """A task's metric."""

    task: str
    metric: str
    title: str
    """In Korean."""
    title_en: str
    is_ranking: bool
    """Whether it is the task's first metric."""

    def heading(self, language: Language) -> str:
        """Return the title in one language."""
        return self.title if language == "ko" else self.title_en


@dataclass(frozen=True)
class Line:
    """A model's row within a block: its figure per column, None where none was asked for."""

    model: str
    rows: tuple[Row | None, ...]


@dataclass(frozen=True)
class Board:
    """The table that all formats draw: blocks of lines under shared columns, with numbered footnotes."""

    columns: tuple[Column, ...]
    blocks: tuple[tuple[Block, tuple[Line, ...]], ...]
    footnotes: tuple[Footnote, ...]

    def mark(self, row: Row) -> str:
        """Return the footnote marks of a row, e.g. `(1)(3)`, or an empty string."""
        found = (self.footnotes.index(note) for note in _footnotes(row) if note in self.footnotes)
        return "".join(f"({number + 1})" for number in found)


def block_of(row: Row) -> Block:
    """Return what the row's figure was measured on."""
    if row.source == "reported":
        return "reported"
    if row.task.endswith(SAMPLE_SUFFIX):
        return "on_sample"
    return "measured" if row.task == _official_name(row.task) else "on_other"


def _official_name(name: str) -> str:
    """Return the official task that a task is or is a substitute for; a sample may be all there is of one."""
    tasks = all_tasks()
    return tasks[name].official_name if name in tasks and tasks[name].base in tasks else name


def build_board(rows: Sequence[Row], order: Sequence[str] = (), *, by_official: bool = True) -> Board:
    """Arrange rows: tasks of ORDER first, then the registry's; blocks by what was measured on; models as they came.

    Args:
        rows: figures.
        order: official tasks whose columns come first.
        by_official: whether the figure of a substitute goes into the column of its official task, with a footnote;
            otherwise substitutes have columns of their own.
    """
    tasks = all_tasks()
    few_shot = dict.fromkeys(row.task for row in rows if row.task in tasks and tasks[row.task].few_shot)
    known = [*tasks, *few_shot]
    names = [name for name in known if name == _official_name(name)]
    names = [*order, *(name for name in names if name not in order)]
    if not by_official:
        names = [task for name in names for task in known if _official_name(task) == name]
    column_of = {name: _official_name(name) if by_official else name for name in {row.task for row in rows}}
    columns = tuple(
        Column(
            name,
            metric.key,
            title=f"{task_title(tasks[name], 'ko')} {metric.title}",
            title_en=f"{task_title(tasks[name], 'en')} {metric.title}",
            is_ranking=metric is tasks[name].metrics[0],
        )
        for name in names
        for metric in tasks[name].metrics
        if any(column_of[row.task] == name and row.metric == metric.key for row in rows)
    )
    blocks: list[tuple[Block, tuple[Line, ...]]] = []
    for block in BLOCKS:
        members = [row for row in rows if block_of(row) == block]
        cells = {(row.model, column_of[row.task], row.metric): row for row in members}
        lines = tuple(
            Line(model, tuple(cells.get((model, column.task, column.metric)) for column in columns))
            for model in dict.fromkeys(row.model for row in members)
        )
        if lines:
            blocks.append((block, lines))
    notes = dict.fromkeys(note for row in rows for note in _footnotes(row))
    # A column of its own says which task it is.
    substitutes = {_substitute_note(task) for task in tasks.values()}
    return Board(columns, tuple(blocks), tuple(note for note in notes if by_official or note not in substitutes))


def _footnotes(row: Row) -> list[Footnote]:
    """Return the notes on a row: a substitute task, why there is no value, what else to know."""
    notes: list[Footnote | None] = []
    task = all_tasks().get(row.task)
    if task is not None:
        notes.append(_substitute_note(task))
    if row.status != "ok":
        notes.append(_footnote("failed" if row.status == "failed" else "unavailable", reason=row.reason))
    elif row.reason:
        metric = next((m.title for m in task.metrics if m.key == row.metric), row.metric) if task else row.metric
        undefined = _footnote("undefined", metric=metric)
        notes.append(undefined if row.reason == undefined.ko else Footnote(row.reason, row.reason))
    elif row.note:
        partial = _footnote("some_seeds", reason="")
        is_partial = row.note.startswith(partial.ko)
        english = partial.en + row.note.removeprefix(partial.ko) if is_partial else row.note_en or row.note
        notes.append(Footnote(row.note, english))
    return [note for note in notes if note is not None]


def _substitute_note(task: Task) -> Footnote | None:
    if not task.base or task.is_sample:
        return None
    return _footnote("substitute", task=task.name, official=task.base)


def _footnote(key: str, **values: object) -> Footnote:
    return Footnote(Texts("ko", "report")(key, **values), Texts("en", "report")(key, **values))


def task_title(task: Task, language: Language = "ko") -> str:
    """Return the name of a task in tables; in English its key where the title is Korean."""
    return task.title if language == "ko" or task.title.isascii() else task.name


def model_title(key: str) -> str:
    """Return the name of a model in tables."""
    return ENCODERS[key].title if key in ENCODERS else key


def percent(value: float) -> str:
    """Return a fraction as hundredths with two decimals."""
    return f"{100 * value:.2f}"


def signed(value: float) -> str:
    """Return a fraction as hundredths with two decimals and its sign."""
    return f"{100 * value:+.2f}"


def interval_text(ci95: tuple[float, float] | None) -> str:
    """Return an interval as table text."""
    return f"[{percent(ci95[0])}, {percent(ci95[1])}]" if ci95 else ""


def p_text(p: float | None) -> str:
    """Return a p-value as table text."""
    return "—" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def rank_text(rank: tuple[int, int], language: Language = "ko") -> str:
    """Return the ranks that a model may have, e.g. `1위` or `2–4위`; in English `#1` or `#2–4`."""
    best, worst = rank
    return Texts(language, "report")("rank", span=f"{best}" if best == worst else f"{best}–{worst}")


def figure(row: Row | None, board: Board, join: str = " ", language: Language = "ko") -> str:
    """Return a row as table text: value, footnote mark, interval, deviation over seeds, rank."""
    if row is None:
        return ""
    mark = board.mark(row)
    if row.value is None:
        return f"— {mark}".strip()
    parts = [percent(row.value) + (f" {mark}" if mark else "")]
    if row.ci95 is not None:
        parts.append(interval_text(row.ci95))
    if row.std is not None:
        parts.append(f"±{percent(row.std)}")
    if row.rank is not None:
        parts.append(rank_text(row.rank, language))
    return join.join(parts)


def clean_text(row: Row | None, language: Language = "ko") -> str:
    """Return a row's figures without overlapping examples as a range over training texts; empty if there are none."""
    found = sorted(one.value for one in row.clean if one.value is not None) if row is not None else []
    if not found:
        return ""
    values = "–".join(dict.fromkeys((percent(found[0]), percent(found[-1]))))
    return Texts(language, "report")("without_overlap", values=values)


def verdict_text(found: Comparison, language: Language = "ko") -> str:
    """Return the outcome of a paired test."""
    texts = Texts(language, "report")
    if found.verdict == "not_testable":
        return texts("not_testable", reason=texts(f"reason.{found.reason}"))
    return texts(found.verdict, model=model_title(found.a))


def to_csv(rows: Sequence[Row]) -> str:
    """Return the rows as CSV, figures as fractions; a column for each noise and each training text, if there are any.

    A figure under noise is in column `noise:KIND@RATE`, one without overlapping examples in `clean:CORPUS`.
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
    for block, block_lines in board.blocks:
        for first in range(0, len(block_lines), MODELS_PER_TABLE):
            lines = block_lines[first : first + MODELS_PER_TABLE]
            table = Table(title=Text(Texts("ko", "report.block")(block)), title_justify="left", show_lines=True)
            table.add_column("과제", no_wrap=True)
            for line in lines:
                # Text, because rich would read [brackets] and :colons: in a string as its own markup.
                table.add_column(Text(model_title(line.model)), justify="right", no_wrap=True)
            for k, column in enumerate(board.columns):
                if any(line.rows[k] is not None for line in lines):
                    table.add_row(Text(column.title), *(Text(figure(line.rows[k], board, "\n")) for line in lines))
            console.print(table)
    for number, note in enumerate(board.footnotes, start=1):
        console.print(f"({number}) {note.ko}", markup=False, highlight=False, soft_wrap=True)


def print_comparisons(comparisons: Sequence[Comparison], a: str, b: str, console: Console) -> None:
    """Print how models A and B compare, a row for each task; differences are A − B."""
    table = Table(title=Text(f"{model_title(a)} − {model_title(b)}"), title_justify="left", show_lines=True)
    for number, title in enumerate(
        ("과제", model_title(a), model_title(b), "차이\n[95% 구간]", "p\n예제", "p\n예제·시드", "p\nHolm", "결과")
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
            Text(verdict_text(found)),
        )
    console.print(table)
