"""Rows into tables: which figure goes into which cell, and the terminal and CSV forms. Reads rows, loads no model.

Only here and in the report are fractions multiplied by 100.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpora.foundation.texts import Language, Texts, spreadsheet_text
from downstream.encoders.hub import ENCODERS
from downstream.task import SAMPLE_SUFFIX, Task, all_tasks
from eval.board.comparison import Comparison
from eval.board.rows import Row
from eval.cells.files import NOT_MEASURED

MODELS_PER_TABLE = 5

Block: TypeAlias = Literal["measured", "reported", "on_other", "on_sample"]
"""What a figure was measured on: official data, or published elsewhere; own tasks and splits, the embedded sample."""
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

    @property
    def by_column(self) -> list[list[Row | None]]:
        """The rows of each column, from the first line to the last."""
        return [[line.rows[k] for _, lines in self.blocks for line in lines] for k in range(len(self.columns))]

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
    tasks = all_tasks()
    return "measured" if row.task not in tasks or tasks[row.task].is_official else "on_other"


def _official_name(name: str) -> str:
    """Return the official task that a task is or is a substitute for; a sample may be all there is of one."""
    tasks = all_tasks()
    return tasks[name].official_name if name in tasks and tasks[name].base in tasks else name


def build_board(rows: Sequence[Row], order: Sequence[str] = ()) -> Board:
    """Arrange rows: tasks of ORDER first, then the registry's; blocks by what was measured on; models as they came.

    A substitute split has columns of its own: its figures never stand under the heading of published ones.

    Args:
        rows: figures.
        order: tasks whose columns come first; those on other data of a task follow its own.
    """
    tasks = all_tasks()
    few_shot = dict.fromkeys(row.task for row in rows if row.task in tasks and tasks[row.task].few_shot)
    known = [*tasks, *few_shot]
    names = list(dict.fromkeys([*map(_official_name, order), *map(_official_name, known)]))
    names = [task for name in names for task in known if _official_name(task) == name]
    columns = tuple(
        Column(
            name,
            metric.key,
            title=f"{task_title(tasks[name], 'ko')} {metric.title}",
            title_en=f"{task_title(tasks[name], 'en')} {metric.title_in('en')}",
            is_ranking=metric is tasks[name].metrics[0],
        )
        for name in names
        for metric in tasks[name].metrics
        if any(row.task == name and row.metric == metric.key for row in rows)
    )
    blocks: list[tuple[Block, tuple[Line, ...]]] = []
    for block in BLOCKS:
        members = [row for row in rows if block_of(row) == block]
        cells = {(row.model, row.task, row.metric): row for row in members}
        lines = tuple(
            Line(model, tuple(cells.get((model, column.task, column.metric)) for column in columns))
            for model in dict.fromkeys(row.model for row in members)
        )
        if lines:
            blocks.append((block, lines))
    return Board(columns, tuple(blocks), tuple(dict.fromkeys(note for row in rows for note in _footnotes(row))))


def _footnotes(row: Row) -> list[Footnote]:
    """Return the notes on a row: why there is no value, unknown clusters, what else to know."""
    notes: list[Footnote] = []
    task = all_tasks().get(row.task)
    if task is not None and task.cluster is not None and row.ci95 is not None and row.num_clusters is None:
        notes.append(_footnote("clusters_unknown"))
    if row.is_older_state:
        notes.append(_footnote("older_state", commit=commit_text(row.commit)))
    if row.reason == NOT_MEASURED:
        return notes  # the cell says so itself
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
    return notes


def _footnote(key: str, **values: object) -> Footnote:
    return Footnote(Texts("ko", "report")(key, **values), Texts("en", "report")(key, **values))


def commit_text(commit: str) -> str:
    """Return commits, joined by ` / `, with nine digits each; `+` for uncommitted changes stays."""
    return " / ".join(one[:9] + ("+" if one.endswith("+") else "") for one in commit.split(" / ")) if commit else ""


def task_title(task: Task, language: Language = "ko") -> str:
    """Return the name of a task in tables; in English its key where the title is Korean."""
    return task.title_in(language)


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
    """Return a row as table text: value, footnote mark, interval, deviation over seeds, clean figure, rank."""
    if row is None:
        return ""
    mark = board.mark(row)
    if row.reason == NOT_MEASURED:
        return Texts(language, "report")("not_measured")
    if row.value is None:
        return f"— {mark}".strip()
    parts = [percent(row.value) + (f" {mark}" if mark else "")]
    if row.ci95 is not None:
        parts.append(interval_text(row.ci95))
    if row.std is not None:
        parts.append(f"±{percent(row.std)}")
    if row.is_clean_subset:
        parts.append(clean_text(row, language))
    if row.rank is not None:
        parts.append(rank_text(row.rank, language))
    return join.join(parts)


def clean_text(row: Row | None, language: Language = "ko") -> str:
    """Return a row's figures without overlapping examples; empty if there are none.

    That is the figure without all of them where models are ranked on it, and else a range over training texts.
    """
    if row is not None and row.is_clean_subset:
        value = "—" if row.clean_value is None else percent(row.clean_value)
        return Texts(language, "report")("without_overlap", values=value)
    found = sorted(one.value for one in row.clean if one.value is not None) if row is not None else []
    if not found:
        return ""
    values = "–".join(dict.fromkeys((percent(found[0]), percent(found[-1]))))
    return Texts(language, "report")("without_overlap", values=values)


def examples_text(rows: Sequence[Row | None], language: Language = "ko") -> str:
    """Return how many examples the measured rows of a column are on, their clusters, and those that rank models."""
    row = next((row for row in rows if row is not None and row.source == "measured" and row.num_examples), None)
    if row is None:
        return ""
    texts = Texts(language, "report")
    parts = [f"{row.num_examples:,}"]
    if row.num_clusters is not None:
        parts.append(texts("in_clusters", number=row.num_clusters))
    if row.is_clean_subset and row.num_clean_examples is not None:
        parts.append(texts("ranked_on", number=row.num_clean_examples))
    return " · ".join(parts)


def compared_text(found: Comparison, language: Language = "ko") -> str:
    """Return what a comparison was made on: examples, clusters, and whether those in training text were left out."""
    texts = Texts(language, "report")
    parts = [f"{found.num_examples:,}"] if found.num_examples else []
    if found.num_clusters is not None:
        parts.append(texts("in_clusters", number=found.num_clusters))
    if found.is_clean_subset:
        parts.append(texts("clean_subset"))
    return " · ".join(parts)


def settings_text(row: Row) -> str:
    """Return the settings of a row as `name=value`, separated by commas."""
    shown = (f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in _set(row))
    return ", ".join(shown)


def _set(row: Row) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in row.settings.items() if value is not None]


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
    nested = {"ci95", "clean_ci95", "rank", "noise", "clean", "settings"}
    records = [row.model_dump(exclude=nested) | _flat(row) for row in rows]
    fields = [name for name in Row.model_fields if name not in nested]
    ends = ["ci95_low", "ci95_high", "clean_ci95_low", "clean_ci95_high", "rank_best", "rank_worst", "settings"]
    others = [name for record in records for name in record if name not in fields and name not in ends]
    writer = csv.DictWriter(buffer, [*fields, *ends, *dict.fromkeys(others)], restval="", lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({k: spreadsheet_text(v) if isinstance(v, str) else v for k, v in record.items()})
    return buffer.getvalue()


def _flat(row: Row) -> dict[str, float | str | None]:
    ends: dict[str, float | str | None] = {}
    for name, pair, (first, last) in (
        ("ci95", row.ci95, ("low", "high")),
        ("clean_ci95", row.clean_ci95, ("low", "high")),
        ("rank", row.rank, ("best", "worst")),
    ):
        ends[f"{name}_{first}"], ends[f"{name}_{last}"] = pair or (None, None)
    ends["settings"] = settings_text(row)
    noise = {f"noise:{found.noise}@{found.rate:g}": found.value for found in row.noise}
    return ends | noise | {f"clean:{found.corpus}": found.value for found in row.clean}


def print_terminal(board: Board, console: Console, language: Language = "ko") -> None:
    """Print the table to a console, models side by side: a terminal has more lines than columns."""
    texts = Texts(language, "report")
    for block, block_lines in board.blocks:
        for first in range(0, len(block_lines), MODELS_PER_TABLE):
            lines = block_lines[first : first + MODELS_PER_TABLE]
            table = Table(title=Text(texts(f"block.{block}")), title_justify="left", show_lines=True)
            table.add_column(texts("task"), no_wrap=True)
            for line in lines:
                # Text, because rich would read [brackets] and :colons: in a string as its own markup.
                table.add_column(Text(model_title(line.model)), justify="right", no_wrap=True)
            for k, column in enumerate(board.columns):
                if any(line.rows[k] is not None for line in lines):
                    shown = (Text(figure(line.rows[k], board, "\n", language)) for line in lines)
                    table.add_row(Text(column.heading(language)), *shown)
            console.print(table)
    for number, note in enumerate(board.footnotes, start=1):
        console.print(f"({number}) {note.text(language)}", markup=False, highlight=False, soft_wrap=True)


def print_comparisons(
    comparisons: Sequence[Comparison], a: str, b: str, console: Console, language: Language = "ko"
) -> None:
    """Print how models A and B compare, a row for each task; differences are A − B."""
    texts = Texts(language, "report.compare")
    table = Table(title=Text(f"{model_title(a)} − {model_title(b)}"), title_justify="left", show_lines=True)
    titles = ("task", "a", "b", "difference", "p_examples", "p", "p_adjusted", "verdict")
    for number, key in enumerate(titles):
        title = {"a": model_title(a), "b": model_title(b)}.get(key) or texts(key)
        table.add_column(Text(title), justify="right" if 0 < number < 7 else "left")
    tasks = all_tasks()
    for found in comparisons:
        is_turned = found.a == b
        sign = -1 if is_turned else 1
        ends = sorted(sign * end for end in found.ci95) if found.ci95 else []
        figures = [(found.value_a, found.seeds_a), (found.value_b, found.seeds_b)]
        metric = next(m.title_in(language) for m in tasks[found.task].metrics if m.key == found.metric)
        shown = [
            f"{percent(value)}\n{texts('seeds', number=seeds)}"
            for value, seeds in (figures[::-1] if is_turned else figures)
        ]
        table.add_row(
            Text(f"{task_title(tasks[found.task], language)} {metric}\n{compared_text(found, language)}".strip()),
            *shown,
            Text(signed(sign * found.difference) + (f"\n[{signed(ends[0])}, {signed(ends[1])}]" if ends else "")),
            *(p_text(p) for p in (found.p_examples, found.p, found.p_adjusted)),
            Text(verdict_text(found, language)),
        )
    console.print(table)
