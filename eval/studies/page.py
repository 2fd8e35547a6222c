"""The page of a study, in Korean and in English: what was asked, what was tried, what came out, what the paper says."""

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from corpora.foundation.config import Config
from corpora.foundation.files import atomic_file, write_text
from corpora.foundation.texts import Language
from downstream.task import Task, get_task
from eval.board.comparison import Comparison
from eval.board.rows import Row, Table
from eval.board.table import percent, signed, task_title
from eval.studies.recipe import PaperTable, Study, Words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHART = "chart.png"
COLOURS = ("#1f4e8c", "#c0392b", "#2e7d32", "#8e44ad")
WORDS: Mapping[str, Words] = {
    "question": Words(ko="물음", en="The question"),
    "arms": Words(ko="견준 모델", en="What was compared"),
    "arm_columns": Words(
        ko="모델 | 매개변수 | 본 토큰 | 학습 시간(분) | 검증 글의 MLM 손실 | MLM 정확도",
        en="arm | parameters | tokens seen | minutes | held-out MLM loss | MLM accuracy",
    ),
    "results": Words(ko="결과", en="Results"),
    "how_to_read": Words(
        ko="값은 ×100. 대괄호는 평가 예제에 대한 95% 부트스트랩 구간, ±는 미세 조정 시드 사이의 표준편차입니다.",
        en="Values are ×100. Brackets: 95 % bootstrap interval over examples; ±: standard deviation over seeds of "
        "fine-tuning.",
    ),
    "model": Words(ko="모델", en="arm"),
    "differences": Words(ko="차이", en="Differences"),
    "difference_columns": Words(
        ko="과제 | 모델 | 상대 | 차이 | 95% 구간 | p | 보정한 p | 판정",
        en="task | arm | against | difference | 95 % interval | p | corrected p | verdict",
    ),
    "better": Words(ko="더 높음", en="higher"),
    "worse": Words(ko="더 낮음", en="lower"),
    "tie": Words(ko="구별되지 않음", en="not told apart"),
    "not_testable": Words(ko="알 수 없음", en="cannot be told"),
    "test": Words(
        ko="예제와 시드를 함께 흔든 짝 검정이며, p는 과제 안의 모든 짝에 대해 Holm 방법으로 보정했습니다.",
        en="A paired test over examples and seeds; p is corrected over all pairs of a task by Holm's method.",
    ),
    "there_already": Words(
        ko="여기서 사전학습하지 않고 있는 그대로 쓴 인코더", en="Taken as it was, not pretrained here"
    ),
    "pretrained_on": Words(ko="사전학습한 기계", en="Pretrained on"),
    "tuned_on": Words(ko="미세 조정한 기계", en="Fine-tuned on"),
    "paper": Words(ko="논문의 수치", en="The paper's figures"),
    "reading": Words(ko="읽는 법", en="What this shows, and what it cannot"),
    "again": Words(ko="다시 해 보기", en="Again"),
    "chart": Words(ko="과제별 점수와 95% 구간", en="Scores by task with 95 % intervals"),
}


class ArmRecord(Config):
    """What became of an arm before fine-tuning."""

    arm: str
    encoder: str
    """Name or folder; of one that was made here the folder under WORK, whose name follows from what it is made of."""
    encoder_sha256: str
    """Digest of its files."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    """Of its pretraining; empty for an encoder that was there already."""
    num_parameters: int = 0
    tokens: int = 0
    elapsed_s: float = 0.0
    """Time in steps."""
    device: str = ""
    precision: str = ""
    """Of its pretraining: `bf16` or `fp32`."""
    held_out_loss: float | None = None
    """Of masked tokens of held-out text, in nats, on the same rows and masks for all arms of a vocabulary."""
    held_out_accuracy: float | None = None


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

    def say(words: Words | str) -> str:
        return str(getattr(WORDS[words] if isinstance(words, str) else words, language))

    def named(arm: str) -> str:
        return say(study.arms[arm].title)

    rows = {(row.model, row.task): row for row in table.rows if row.source == "measured" and _ranks(row)}
    tasks = [get_task(name) for name in study.tasks]
    lines = [f"# {say(study.title)}", "", f"## {say('question')}", "", say(study.question), ""]
    lines += [f"## {say('arms')}", "", *_arm_lines(say("arm_columns"), records, named)]
    given = {record.encoder: record.encoder_sha256 for record in records if not record.recipe}
    if given:
        told = ", ".join(f"`{Path(encoder).name}` (sha256 {digest[:12]}…)" for encoder, digest in given.items())
        lines += ["", f"{say('there_already')}: {told}."]
    made = {record.arm: {(record.device, record.precision)} for record in records if record.precision}
    lines += _machine_lines(say("pretrained_on"), made, named)
    lines += ["", f"## {say('results')}", "", say("how_to_read"), ""]
    lines += _header(
        " | ".join([say("model"), *(f"{task_title(task, language)} {task.metrics[0].title}" for task in tasks)])
    )
    for arm in study.arms:
        lines.append(f"| {named(arm)} | " + " | ".join(_figure(rows.get((arm, t.name))) for t in tasks) + " |")
    tuned: dict[str, set[tuple[str, str]]] = {}
    for cell in table.cells:
        about = cell.environment
        accelerator = about.get("device", "cpu")
        machine = about.get("cpu", "") if accelerator == "cpu" else accelerator
        tuned.setdefault(cell.model, set()).add((machine, about.get("precision", "")))
    lines += _machine_lines(say("tuned_on"), {arm: tuned[arm] for arm in study.arms if arm in tuned}, named)
    lines += ["", f"![{say('chart')}]({CHART})", ""]
    lines += [f"## {say('differences')}", "", say("test"), "", *_header(say("difference_columns"), texts=(0, 1, 2, 7))]
    pairs = {(found.task, frozenset({found.a, found.b})): found for found in table.comparisons}
    for task in tasks:
        for arm, against in study.compared():
            if found := pairs.get((task.name, frozenset({arm, against}))):
                lines.append(_comparison_line(task, found, study, against, language))
    for paper in study.paper:
        lines += ["", f"## {say('paper')}: {paper.title}", "", *_paper_lines(paper), "", f"{study.source}."]
    if say(study.reading):
        lines += ["", f"## {say('reading')}", "", say(study.reading).strip()]
    settings = "".join(f" --set {shlex.quote(override)}" for override in study.overrides)
    command = f"python -m eval.study {study.name} --data ROOT{settings}"
    lines += ["", f"## {say('again')}", "", "```bash", command, "```", ""]
    return "\n".join(lines)


def _ranks(row: Row) -> bool:
    return row.metric == get_task(row.task).metrics[0].key


def _header(columns: str, texts: Collection[int] = (0,)) -> list[str]:
    """Return the head of a table; the columns of text stand to the left, figures to the right."""
    marks = ("---" if k in texts else "---:" for k in range(columns.count(" | ") + 1))
    return [f"| {columns} |", f"| {' | '.join(marks)} |"]


def _arm_lines(columns: str, records: Sequence[ArmRecord], named: Callable[[str], str]) -> list[str]:
    """Return the table of arms, less the columns in which there is nothing to tell of any; none if names are left."""
    cells = [[named(record.arm), *_arm_cells(record)] for record in records]
    told = [k for k in range(len(cells[0])) if any(line[k] for line in cells)]
    if len(told) == 1:
        return [", ".join(line[0] for line in cells) + "."]
    titles = columns.split(" | ")
    lines = _header(" | ".join(titles[k] for k in told))
    return lines + ["| " + " | ".join(line[k] for k in told) + " |" for line in cells]


def _machine_lines(title: str, machines: Mapping[str, set[tuple[str, str]]], named: Callable[[str], str]) -> list[str]:
    """Return a line that tells which arms were made on which processor in which precision; none if all on the same."""
    found = sorted(set().union(*machines.values()))
    if len(found) < 2:
        return []
    groups = []
    for machine in found:
        arms = " · ".join(named(arm) for arm in machines if machine in machines[arm])
        groups.append(f"{', '.join(part for part in machine if part)} ({arms})")
    return ["", f"{title}: {'; '.join(groups)}."]


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
    parts = [percent(row.value)]
    if row.ci95 is not None:
        parts.append(f"[{percent(row.ci95[0])}, {percent(row.ci95[1])}]")
    if row.std is not None:
        parts.append(f"±{percent(row.std)}")
    return " ".join(parts)


def _comparison_line(task: Task, found: Comparison, study: Study, against: str, language: Language) -> str:
    """Return the line of a pair, turned so that the figure is the arm's minus that of what it is held against."""
    is_turned = found.a == against
    arm = found.b if is_turned else found.a
    sign = -1 if is_turned else 1
    bounds = sorted(sign * bound for bound in found.ci95) if found.ci95 else []
    interval = f"[{signed(bounds[0])}, {signed(bounds[1])}]" if bounds else ""
    verdict = found.verdict if found.verdict != "better" else "worse" if is_turned else "better"
    difference = sign * found.difference or 0.0  # not −0
    cells = [
        task_title(task, language),
        getattr(study.arms[arm].title, language),
        getattr(study.arms[against].title, language),
        signed(difference),
        interval,
        _probability(found.p),
        _probability(found.p_adjusted),
        getattr(WORDS[verdict], language),
    ]
    return "| " + " | ".join(cells) + " |"


def _probability(p: float | None) -> str:
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _paper_lines(paper: PaperTable) -> list[str]:
    lines = _header(" | ".join(["", *paper.columns]))
    return lines + [f"| {name} | " + " | ".join(map(str, values)) + " |" for name, values in paper.rows.items()]


def draw_chart(path: Path, study: Study, rows: Sequence[Row]) -> None:
    """Draw each task's scores with their intervals as a PNG; English, for matplotlib's font.

    One line an arm, or, where the study has an axis, scores over it.
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
            _draw_course(panel, study, points)
        else:
            _draw_forest(panel, study, points)
    if not study.axis:
        panels[0].set_yticks(range(len(study.arms)), [arm.title.en for arm in study.arms.values()])
    elif (lines := panels[-1].get_legend_handles_labels())[0]:
        # Below the panels, where no score can lie.
        figure.legend(*lines, loc="outside lower center", ncols=len(lines[0]), frameon=False, fontsize=9)
    with atomic_file(path, "wb") as file:
        figure.savefig(file, format="png", dpi=120)


def _draw_forest(panel: "Axes", study: Study, points: Mapping[str, tuple[float, ...]]) -> None:
    for place, arm in enumerate(study.arms):
        if arm not in points:
            continue
        value, low, high = (100 * figure for figure in points[arm])
        colour = "#c0392b" if arm == study.baseline else "#1f4e8c"
        panel.plot([low, high], [place, place], color=colour, linewidth=2)
        panel.plot(value, place, "o", color=colour, markersize=6)
        panel.annotate(f"{value:.2f}", (value, place), (0, 6), textcoords="offset points", ha="center")
    panel.margins(x=0.12)
    panel.set_ylim(len(study.arms) - 0.4, -0.8)
    panel.grid(visible=True, axis="x", color="#e5e5e5", linewidth=0.6)


def _draw_course(panel: "Axes", study: Study, points: Mapping[str, tuple[float, ...]]) -> None:
    assert study.axis is not None
    lines: dict[str, list[tuple[float, ...]]] = {}
    for name, arm in study.arms.items():
        if arm.at is not None and name in points:
            lines.setdefault(arm.line, []).append((arm.at, *(100 * figure for figure in points[name])))
    for number, (line, line_points) in enumerate(lines.items()):
        places, values, lows, highs = zip(*sorted(line_points), strict=True)
        colour, mark = COLOURS[number % len(COLOURS)], "os^D"[number % 4]
        panel.plot(places, values, color=colour, marker=mark, markersize=6, label=line or None)
        panel.vlines(places, lows, highs, color=colour, linewidth=2)
    if study.axis.is_log:
        panel.set_xscale("log")
    ticks = sorted({arm.at for arm in study.arms.values() if arm.at is not None})
    panel.set_xticks(ticks, [f"{tick:,g}" if tick < 1e6 else f"{tick / 1e6:g}M" for tick in ticks])
    panel.minorticks_off()
    panel.set_xlabel(study.axis.title)
    panel.grid(visible=True, color="#e5e5e5", linewidth=0.6)
