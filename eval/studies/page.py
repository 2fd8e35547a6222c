"""The page of a study in Korean and English: question, models, results, tests, and the figures of the paper."""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from corpora.foundation.config import Config
from corpora.foundation.files import atomic_file, write_text
from corpora.foundation.texts import Language, Texts
from downstream.task import Task, get_task
from eval.board.comparison import Comparison
from eval.board.rows import Row, Table
from eval.board.table import interval_text, percent, signed, task_title
from eval.studies.recipe import PaperTable, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHART = "chart.png"
COLOURS = ("#1f4e8c", "#c0392b", "#2e7d32", "#8e44ad")


class ArmRecord(Config):
    """The encoder of an arm, and how it was pretrained."""

    arm: str
    encoder: str
    """Name or folder; if it was pretrained here, its folder under WORK, named by a digest of its recipe."""
    encoder_sha256: str
    """Digest of its files."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    """Of its pretraining; empty for an existing encoder."""
    num_parameters: int = 0
    tokens: int = 0
    elapsed_s: float = 0.0
    """Step time."""
    device: str = ""
    precision: str = ""
    """Of its pretraining: `bf16` or `fp32`."""
    held_out_loss: float | None = None
    """MLM loss on held-out text, in nats; same rows and masks for all arms with the same vocabulary."""
    held_out_accuracy: float | None = None
    held_out_bits_by_source: dict[str, float] = Field(default_factory=dict)
    """Bits per character of masked held-out tokens; empty if the study does not ask for them."""


def write_page(out: Path, study: Study, records: Sequence[ArmRecord], table: Table) -> list[Path]:
    """Write `NAME.md`, `NAME.en.md` and the chart to OUT; returns the pages.

    Raises:
        ResultError: they cannot be written.
    """
    draw_chart(out / CHART, study, table.rows)
    pages = {"ko": out / f"{study.name}.md", "en": out / f"{study.name}.en.md"}
    write_text(pages["ko"], to_page(study, records, table, "ko"))
    write_text(pages["en"], to_page(study, records, table, "en"))
    return list(pages.values())


def to_page(study: Study, records: Sequence[ArmRecord], table: Table, language: Language) -> str:
    """Return the page in one language, as Markdown."""
    texts = Texts(language, "study")

    def named(arm: str) -> str:
        return study.arms[arm].title.text(language)

    tasks = [get_task(name) for name in study.tasks]
    lines = [f"# {study.title.text(language)}", "", f"## {texts('question')}", "", study.question.text(language), ""]
    lines += [f"## {texts('arms')}", "", *_arm_lines(texts, records, named)]
    lines += _source_lines(texts, records, named)
    given = {record.encoder: record.encoder_sha256 for record in records if not record.recipe}
    if given:
        encoders = (texts("encoder", name=Path(name).name, digest=digest[:12]) for name, digest in given.items())
        lines += ["", texts("existing", encoders=", ".join(encoders))]
    made = {record.arm: {(record.device, record.precision)} for record in records if record.precision}
    lines += _machine_lines(texts, "pretrained_on", made, named)
    lines += ["", f"## {texts('results')}", "", texts("how_to_read"), "", *_score_lines(study, tasks, table, texts)]
    lines += _machine_lines(texts, "finetuned_on", _machines(study, table), named)
    lines += ["", f"![{texts('chart')}]({CHART})", "", f"## {texts('differences')}", "", texts("test"), ""]
    lines += _difference_lines(study, tasks, table, texts)
    for paper in study.paper:
        lines += ["", f"## {texts('paper', title=paper.title)}", "", *_paper_lines(paper), "", f"{study.source}."]
    if reading := study.reading.text(language).strip():
        lines += ["", f"## {texts('reading')}", "", reading]
    settings = "".join(f" --set {shlex.quote(override)}" for override in study.overrides)
    command = f"python -m eval.study {study.name} --data ROOT{settings}"
    lines += ["", f"## {texts('again')}", "", "```bash", command, "```", ""]
    return "\n".join(lines)


def _ranks(row: Row) -> bool:
    return row.metric == get_task(row.task).metrics[0].key


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: Collection[int] = (0,)) -> list[str]:
    """Return a table; the columns numbered TEXTS are aligned to the left, figures to the right."""
    marks = ["---" if k in texts else "---:" for k in range(len(head))]
    return [f"| {' | '.join(row)} |" for row in (head, marks, *rows)]


def _arm_lines(texts: Texts, records: Sequence[ArmRecord], named: Callable[[str], str]) -> list[str]:
    """Return the table of arms without its empty columns; their names alone if no other column has a value."""
    keys = ("arm", "parameters", "tokens", "minutes", "loss", "accuracy")
    cells = [[named(record.arm), *_arm_cells(record)] for record in records]
    filled = [k for k in range(len(keys)) if any(line[k] for line in cells)]
    if len(filled) == 1:
        return [", ".join(line[0] for line in cells) + "."]
    return _table([texts(f"column.{keys[k]}") for k in filled], ([line[k] for k in filled] for line in cells))


def _source_lines(texts: Texts, records: Sequence[ArmRecord], named: Callable[[str], str]) -> list[str]:
    """Return a table of the held-out bits per character by source, a column an arm; nothing without them."""
    scored = [record for record in records if record.held_out_bits_by_source]
    if not scored:
        return []
    names = dict.fromkeys(name for record in scored for name in record.held_out_bits_by_source)
    rows = [
        [f"`{name}`", *(f"{record.held_out_bits_by_source[name]:.3f}" for record in scored)] for name in sorted(names)
    ]
    head = [texts("column.source"), *(named(record.arm) for record in scored)]
    return ["", f"### {texts('by_source')}", "", *_table(head, rows)]


def _machine_lines(
    texts: Texts, title: str, machines: Mapping[str, set[tuple[str, str]]], named: Callable[[str], str]
) -> list[str]:
    """Return a table of processors and precisions with the arms made on them; nothing if all are the same."""
    found = sorted(set().union(*machines.values()))
    if len(found) < 2:
        return []
    rows = [
        [
            ", ".join(part for part in machine if part),
            " · ".join(named(arm) for arm in machines if machine in machines[arm]),
        ]
        for machine in found
    ]
    head = [texts("column.machine"), texts("column.arm")]
    return ["", f"### {texts(title)}", "", *_table(head, rows, texts=(0, 1))]


def _machines(study: Study, table: Table) -> dict[str, set[tuple[str, str]]]:
    """Return the processors and precisions that each arm was fine-tuned with."""
    found: dict[str, set[tuple[str, str]]] = {}
    for cell in table.cells:
        about = cell.environment
        accelerator = about.get("device", "cpu")
        machine = about.get("cpu", "") if accelerator == "cpu" else accelerator
        found.setdefault(cell.model, set()).add((machine, about.get("precision", "")))
    return {arm: found[arm] for arm in study.arms if arm in found}


def _score_lines(study: Study, tasks: Sequence[Task], table: Table, texts: Texts) -> list[str]:
    rows = {(row.model, row.task): row for row in table.rows if row.source == "measured" and _ranks(row)}
    titles = (f"{task_title(task, texts.language)} {task.metrics[0].title}" for task in tasks)
    cells = (
        [arm.title.text(texts.language), *(_figure(rows.get((name, task.name))) for task in tasks)]
        for name, arm in study.arms.items()
    )
    return _table([texts("column.arm"), *titles], cells)


def _difference_lines(study: Study, tasks: Sequence[Task], table: Table, texts: Texts) -> list[str]:
    pairs = {(found.task, frozenset({found.a, found.b})): found for found in table.comparisons}
    keys = ("task", "arm", "against", "difference", "interval", "p", "adjusted_p", "verdict")
    rows = [
        _difference_cells(task, found, study, against, texts)
        for task in tasks
        for arm, against in study.compared()
        if (found := pairs.get((task.name, frozenset({arm, against}))))
    ]
    return _table([texts(f"column.{key}") for key in keys], rows, texts=(0, 1, 2, 7))


def _arm_cells(record: ArmRecord) -> list[str]:
    return [
        f"{record.num_parameters:,}" if record.num_parameters else "",
        f"{record.tokens:,}" if record.recipe else "",
        f"{record.elapsed_s / 60:.1f}" if record.elapsed_s else "",
        "" if record.held_out_loss is None else f"{record.held_out_loss:.3f}",
        "" if record.held_out_accuracy is None else f"{record.held_out_accuracy:.3f}",
    ]


def _figure(row: Row | None) -> str:
    if row is None or row.value is None:
        return "—"
    deviation = "" if row.std is None else f"±{percent(row.std)}"
    return " ".join(filter(None, [percent(row.value), interval_text(row.ci95), deviation]))


def _difference_cells(task: Task, found: Comparison, study: Study, against: str, texts: Texts) -> list[str]:
    """Return the cells of a pair, signed so that the difference is the arm's figure minus that of AGAINST."""
    is_turned = found.a == against
    arm = found.b if is_turned else found.a
    sign = -1 if is_turned else 1
    bounds = sorted(sign * bound for bound in found.ci95) if found.ci95 else []
    return [
        task_title(task, texts.language),
        study.arms[arm].title.text(texts.language),
        study.arms[against].title.text(texts.language),
        signed(sign * found.difference or 0.0),  # not −0
        f"[{signed(bounds[0])}, {signed(bounds[1])}]" if bounds else "",
        _probability(found.p),
        _probability(found.p_adjusted),
        texts("worse" if found.verdict == "better" and is_turned else found.verdict),
    ]


def _probability(p: float | None) -> str:
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _paper_lines(paper: PaperTable) -> list[str]:
    return _table(["", *paper.columns], ([name, *map(str, values)] for name, values in paper.rows.items()))


def draw_chart(path: Path, study: Study, rows: Sequence[Row]) -> None:
    """Draw each task's scores with their intervals as a PNG, in English because of matplotlib's font.

    A study with an axis has its scores drawn over it, another one row per arm.
    """
    from matplotlib.figure import Figure

    tasks = [get_task(name) for name in study.tasks]
    found = {(row.model, row.task): row for row in rows if row.source == "measured" and _ranks(row)}
    height = 4.0 if study.axis else 1.2 + 0.42 * len(study.arms)
    figure = Figure(figsize=(2.2 + (3.6 if study.axis else 2.6) * len(tasks), height), layout="constrained")
    panels = figure.subplots(1, len(tasks), sharey=not study.axis, squeeze=False)[0]
    for panel, task in zip(panels, tasks, strict=True):
        points = {
            arm: (row.value, *(row.ci95 or (row.value, row.value)))
            for arm in study.arms
            if (row := found.get((arm, task.name))) is not None and row.value is not None
        }
        panel.set_title(f"{task.name}\n{task.metrics[0].key}", fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
        if study.axis:
            _draw_lines(panel, study, points)
        else:
            _draw_forest(panel, study, points)
    if not study.axis:
        panels[0].set_yticks(range(len(study.arms)), [arm.title.en for arm in study.arms.values()])
    elif (lines := panels[-1].get_legend_handles_labels())[0]:
        # Below the panels, where it covers no score.
        figure.legend(*lines, loc="outside lower center", ncols=len(lines[0]), frameon=False, fontsize=9)
    with atomic_file(path, "wb") as file:
        figure.savefig(file, format="png", dpi=120)


def _draw_forest(panel: "Axes", study: Study, points: Mapping[str, tuple[float, ...]]) -> None:
    for height, arm in enumerate(study.arms):
        if arm not in points:
            continue
        value, low, high = (100 * figure for figure in points[arm])
        colour = "#c0392b" if arm == study.baseline else "#1f4e8c"
        panel.plot([low, high], [height, height], color=colour, linewidth=2)
        panel.plot(value, height, "o", color=colour, markersize=6)
        panel.annotate(f"{value:.2f}", (value, height), (0, 6), textcoords="offset points", ha="center")
    panel.margins(x=0.12)
    panel.set_ylim(len(study.arms) - 0.4, -0.8)
    panel.grid(visible=True, axis="x", color="#e5e5e5", linewidth=0.6)


def _draw_lines(panel: "Axes", study: Study, points: Mapping[str, tuple[float, ...]]) -> None:
    assert study.axis is not None
    lines: dict[str, list[tuple[float, ...]]] = {}
    for name, arm in study.arms.items():
        if arm.at is not None and name in points:
            lines.setdefault(arm.line, []).append((arm.at, *(100 * figure for figure in points[name])))
    for number, (line, line_points) in enumerate(lines.items()):
        positions, values, lows, highs = zip(*sorted(line_points), strict=True)
        colour, mark = COLOURS[number % len(COLOURS)], "os^D"[number % 4]
        panel.plot(positions, values, color=colour, marker=mark, markersize=6, label=line or None)
        panel.vlines(positions, lows, highs, color=colour, linewidth=2)
    if study.axis.is_log:
        panel.set_xscale("log")
    ticks = sorted({arm.at for arm in study.arms.values() if arm.at is not None})
    panel.set_xticks(ticks, [f"{tick:,g}" if tick < 1e6 else f"{tick / 1e6:g}M" for tick in ticks])
    panel.minorticks_off()
    panel.set_xlabel(study.axis.title)
    panel.grid(visible=True, color="#e5e5e5", linewidth=0.6)
