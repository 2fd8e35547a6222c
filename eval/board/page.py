"""A leaderboard's files: JSON, CSV, Markdown in two languages, a model-index, and one self-contained page.

The page holds its style and its script, and asks for nothing else: it works from a disk without a network. Everything
on it is also in the Markdown, but the choice of examples and the drawings.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from corpora.foundation.files import package_path, write_json, write_text
from corpora.overlap import MEASURES
from downstream.task import all_tasks, get_task
from eval.board.charts import Chart, colours_of, forest, learning_curves, scatter
from eval.board.comparison import Comparison
from eval.board.disagreement import Disagreement
from eval.board.model_index import write_model_index
from eval.board.rows import CleanFigure, LeaderboardFile, NoiseFigure, Row
from eval.board.table import (
    Board,
    build_board,
    clean_text,
    figure,
    model_title,
    p_text,
    percent,
    places,
    signed,
    to_csv,
)
from eval.board.words import BUSY, HOW_TO_READ, SECTIONS, TITLE, WORDS, Language, Words, task_title
from eval.cells.measurements import IDLE_SHARE, CurveFile
from eval.contamination.files import Pair
from eval.contamination.report import measure_meaning, measure_title
from eval.measures.noise import NOISES

MAX_LOSS_POINTS = 200
"""Points of a learning curve that are drawn."""


@dataclass(frozen=True)
class Evidence:
    """What a report shows besides figures."""

    disagreements: Sequence[Disagreement] = ()
    contamination: Sequence[Pair] = ()
    curves: Sequence[CurveFile] = ()


@dataclass(frozen=True)
class Report:
    """All that the page and the Markdown tell."""

    file: LeaderboardFile
    order: Sequence[str] = ()
    """Tasks whose columns come first."""
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def board(self) -> Board:
        """The table of scores."""
        return build_board(self.file.rows, self.order)

    @property
    def ranking(self) -> dict[str, list[Row]]:
        """Task → its measured rows with a value in the ranking metric, in the order of the leaderboard."""
        found: dict[str, list[Row]] = {}
        known = all_tasks()
        for row in self.file.rows:
            is_figure = row.source == "measured" and row.value is not None and row.task in known
            if is_figure and row.metric == known[row.task].metrics[0].key:
                found.setdefault(row.task, []).append(row)
        return found


def write_leaderboard(
    out: Path, board_file: LeaderboardFile, order: Sequence[str] = (), evidence: Evidence | None = None
) -> None:
    """Write `leaderboard.json`, `.csv`, `.md`, `.en.md`, `.html` and `model-index/` to OUT, each atomically.

    Args:
        out: folder.
        board_file: figures and manifest.
        order: tasks whose columns come first.
        evidence: what else the report shows.

    Raises:
        ResultError: a file cannot be written.
    """
    report = Report(board_file, order, evidence or Evidence())
    write_json(out / "leaderboard.json", board_file.model_dump(by_alias=True))
    write_text(out / "leaderboard.csv", to_csv(board_file.rows))
    write_text(out / "leaderboard.md", to_markdown(report, "ko"))
    write_text(out / "leaderboard.en.md", to_markdown(report, "en"))
    write_text(out / "leaderboard.html", to_html(report))
    write_model_index(out, board_file.rows)


# --- what both forms tell -------------------------------------------------------------------------------------------


def condition_title(found: NoiseFigure, language: Language) -> str:
    """Return the name of a noise at its rate, e.g. `자모 오타 10%`."""
    title = NOISES[found.noise].title if language == "ko" else found.noise.replace("-", " ")
    return title if found.rate == 1 else f"{title} {found.rate:.0%}"


def is_busy(row: Row) -> bool:
    """Whether the row's times are from a machine that had other work."""
    return row.cpu_share is not None and row.cpu_share < IDLE_SHARE


def size_text(size_bytes: int | None) -> str:
    """Return a size for people, in decimal units."""
    if size_bytes is None:
        return "—"
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 100_000 else f"{size_bytes / 1e3:,.1f} kB"


def time_text(seconds: float, language: Language) -> str:
    """Return a time for people."""
    if seconds < 120:
        return f"{seconds:,.1f} " + ("초" if language == "ko" else "s")
    if seconds < 7200:
        return f"{seconds / 60:,.0f} " + ("분" if language == "ko" else "min")
    return f"{seconds / 3600:,.1f} " + ("시간" if language == "ko" else "h")


def latency_text(milliseconds: float) -> str:
    """Return a latency for people."""
    return "< 0.01 ms" if milliseconds < 0.01 else f"{milliseconds:,.2f} ms"


def cost_cells(row: Row, language: Language) -> list[str]:
    """Return parameters, size, latency, rate and training time as table text."""
    star = " *" if is_busy(row) else ""
    return [
        f"{row.num_parameters:,}" if row.num_parameters else "—",
        size_text(row.size_bytes),
        "—" if row.latency_ms is None else f"{latency_text(row.latency_ms)}{star}",
        "—" if row.sentences_per_s is None else f"{row.sentences_per_s:,.0f}{star}",
        time_text(row.train_s, language),
    ]


def noise_cell(found: NoiseFigure) -> str:
    """Return a figure under noise with its drop; ▼ where the drop is more than chance."""
    if found.value is None or found.drop is None:
        return "—"
    mark = " ▼" if found.drop_ci95 is not None and found.drop_ci95[0] > 0 else ""
    return f"{percent(found.value)} ({signed(-found.drop or 0.0)}){mark}"


def interval_text(ci95: tuple[float, float] | None) -> str:
    """Return an interval as table text."""
    return f"[{percent(ci95[0])}, {percent(ci95[1])}]" if ci95 else ""


def verdict_text(found: Comparison, language: Language) -> str:
    """Return what a comparison says."""
    if found.verdict == "better":
        return f"{model_title(found.a)} {WORDS['better'][language == 'en']}"
    return WORDS[found.verdict][language == "en"]


def difference_text(found: Comparison) -> str:
    """Return a difference with its interval."""
    ends = f" [{signed(found.ci95[0])}, {signed(found.ci95[1])}]" if found.ci95 else ""
    return signed(found.difference) + ends


def clean_cells(row: Row, found: CleanFigure) -> list[str]:
    """Return the figure on all examples, without the touched ones, and on those alone."""
    without = "—" if found.value is None else f"{percent(found.value)} {interval_text(found.ci95)}".strip()
    touched = "—" if found.touched_value is None else percent(found.touched_value)
    return ["—" if row.value is None else percent(row.value), without, touched]


def manifest_facts(manifest: Mapping[str, Any]) -> list[tuple[Words, str]]:
    """Return what made the figures: processor, device, precision, threads, system, source and versions."""
    names = {
        "cpu": "processor",
        "device": "device",
        "precision": "precision",
        "threads": "threads",
        "platform": "platform",
        "git": "commit",
    }
    facts = [(WORDS[word], str(manifest[key])) for key, word in names.items() if manifest.get(key)]
    packages = ", ".join(f"{name} {version}" for name, version in manifest.get("versions", {}).items())
    return facts + ([(WORDS["versions"], packages)] if packages else [])


# --- Markdown -------------------------------------------------------------------------------------------------------


def to_markdown(report: Report, language: Language) -> str:
    """Return the report as GitHub Markdown in one language."""
    pick = 0 if language == "ko" else 1
    lines = [f"# {TITLE[pick]}", "", HOW_TO_READ[pick], ""]
    if _cleaned(report):
        lines += [WORDS["clean_hint"][pick], ""]
    lines += _score_lines(report.board, language)
    sections = {
        "pairs": _pair_lines(report, language),
        "cost": _cost_lines(report, language),
        "noise": _noise_lines(report, language),
        "errors": _dispute_lines(report, language),
        "contamination": _contamination_lines(report, language),
        "curves": _curve_lines(report, language),
    }
    for name, body in sections.items():
        found = list(body)
        if found:
            lines += [f"## {SECTIONS[name][pick]}", "", WORDS[f"{name}_text"][pick], "", *found, ""]
    lines += [f"## {SECTIONS['manifest'][pick]}", ""]
    lines += [f"- {title[pick]}: {_escaped(text)}" for title, text in manifest_facts(report.file.manifest)]
    lines += [f"- {WORDS['created'][pick]}: {report.file.created}", ""]
    lines += [WORDS["again_text"][pick], "", "```sh", AGAIN, "```", ""]
    return "\n".join(lines)


AGAIN = "python eval/run_all.py --from leaderboard.json --data DATA --out again"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return [f"| {' | '.join(map(_escaped, row))} |" for row in (head, rule, *rows)]


def _score_lines(board: Board, language: Language) -> Iterator[str]:
    pick = 0 if language == "ko" else 1
    for title, block in board.blocks:
        head = [WORDS["model"][pick], *(column.title for column in board.columns)]
        rows = [
            [
                model_title(line.model),
                *(
                    " · ".join(filter(None, [figure(row, board, language=language), clean_text(row, language)]))
                    for row in line.rows
                ),
            ]
            for line in block
        ]
        yield from (f"## {title[pick]}", "", *_table(head, rows), "")
    if board.footnotes:
        yield from (f"{number}. {text[pick]}" for number, text in enumerate(board.footnotes, start=1))
        yield ""


def _pair_lines(report: Report, language: Language) -> Iterator[str]:
    pick = 0 if language == "ko" else 1
    if report.file.comparisons:
        head = [WORDS["task"][pick], "A", "B", *(WORDS[key][pick] for key in ("difference", "corrected_p", "verdict"))]
        rows = [
            [
                task_title(get_task(found.task), language),
                model_title(found.a),
                model_title(found.b),
                difference_text(found),
                p_text(found.p_adjusted),
                verdict_text(found, language),
            ]
            for found in report.file.comparisons
        ]
        yield from _table(head, rows, left=3)


def _cost_lines(report: Report, language: Language) -> Iterator[str]:
    pick = 0 if language == "ko" else 1
    head = [WORDS[key][pick] for key in ("task", "model", "parameters", "size", "latency", "rate", "train")]
    rows = [row for rows in report.ranking.values() for row in rows]
    if any(row.latency_ms is not None for row in rows):
        texts = [
            [task_title(get_task(row.task), language), model_title(row.model), *cost_cells(row, language)]
            for row in rows
        ]
        yield from _table(head, texts, left=2)
        if any(map(is_busy, rows)):
            yield from ("", BUSY[pick])


def _noise_lines(report: Report, language: Language) -> Iterator[str]:
    pick = 0 if language == "ko" else 1
    for task, rows in report.ranking.items():
        noised = [row for row in rows if row.noise]
        if not noised:
            continue
        conditions = noise_conditions(noised)
        title = f"{task_title(get_task(task), language)} {get_task(task).metrics[0].title}"
        head = [title, WORDS["clean"][pick], *(condition_title(c, language) for c in conditions)]
        body = [[model_title(row.model), clean_value(row), *noise_row(row, conditions)] for row in noised]
        yield from (*_table(head, body), "")


def noise_conditions(rows: Sequence[Row]) -> list[NoiseFigure]:
    """Return one figure for each condition that a row has, in the order they come."""
    return list({(found.noise, found.rate): found for row in rows for found in row.noise}.values())


def noise_row(row: Row, conditions: Sequence[NoiseFigure]) -> list[str]:
    """Return a row's figures under CONDITIONS as table text."""
    own = {(found.noise, found.rate): found for found in row.noise}
    return [noise_cell(own[c.noise, c.rate]) if (c.noise, c.rate) in own else "" for c in conditions]


def clean_value(row: Row) -> str:
    """Return a row's figure on the sample that is noised, as it is."""
    first = next((found for found in row.noise if found.value is not None and found.drop is not None), None)
    return "—" if first is None or first.value is None or first.drop is None else percent(first.value + first.drop)


def _dispute_lines(report: Report, language: Language) -> Iterator[str]:
    pick = 0 if language == "ko" else 1
    if report.evidence.disagreements:
        head = [WORDS[key][pick] for key in ("task", "examples", "disputed")]
        found = report.evidence.disagreements
        rows = [
            [task_title(get_task(one.task), language), f"{one.num_examples:,}", f"{one.num_disputed:,}"]
            for one in found
        ]
        yield from _table(head, rows)


def _contamination_lines(report: Report, language: Language) -> Iterator[str]:
    pick = 0 if language == "ko" else 1
    pairs = report.evidence.contamination
    if not pairs:
        return
    head = [WORDS[key][pick] for key in ("task", "training_text", "examples")]
    head += [measure_title(measure, language) for measure in MEASURES] + [WORDS["hits"][pick]]
    rows = [
        [
            task_title(get_task(pair.task), language),
            corpus_title(pair, language),
            f"{pair.num_examples:,}",
            *touched_cells(pair),
            f"[tsv]({pair.hits})",
        ]
        for pair in pairs
    ]
    yield from (*_table(head, rows, left=2), "")
    meanings = [f"- {measure_title(m, language)}: {measure_meaning(m, language)}" for m in MEASURES]
    yield from (*meanings, "")
    if cleaned := _cleaned(report):
        head = [WORDS[key][pick] for key in ("task", "training_text", "model", "with_all", "without", "only_touched")]
        yield from (f"### {WORDS['clean_title'][pick]}", "")
        texts = [
            [
                task_title(get_task(row.task), language),
                f"{found.corpus} ({found.num_touched:,})",
                model_title(row.model),
                *clean_cells(row, found),
            ]
            for row, found in cleaned
        ]
        yield from _table(head, texts, left=3)


def _cleaned(report: Report) -> list[tuple[Row, CleanFigure]]:
    return [(row, found) for rows in report.ranking.values() for row in rows for found in row.clean]


def corpus_title(pair: Pair, language: Language) -> str:
    """Return the name of a pair's training text."""
    return f"{pair.corpus} ({WORDS['own_split'][language == 'en']})" if pair.source == "split" else pair.corpus


def touched_cells(pair: Pair) -> list[str]:
    """Return the touched examples by measure, with their share."""
    counts = [pair.measures[measure] for measure in MEASURES]
    return ["—" if c.share is None else f"{c.num_touched:,} ({100 * c.share:.2f}%)" for c in counts]


def _curve_lines(report: Report, language: Language) -> Iterator[str]:
    pick = 0 if language == "ko" else 1
    if report.evidence.curves:
        head = [WORDS["task"][pick], WORDS["model"][pick], "seed", WORDS["steps"][pick], WORDS["loss"][pick]]
        rows = [
            [
                task_title(get_task(curve.task), language),
                model_title(curve.model),
                str(curve.seed),
                f"{curve.points[-1].step:,}",
                f"{curve.points[0].loss:.3f} → {curve.points[-1].loss:.3f}",
            ]
            for curve in report.evidence.curves
        ]
        yield from _table(head, rows, left=2)


# --- HTML -----------------------------------------------------------------------------------------------------------


def to_html(report: Report) -> str:
    """Return the page: one file without outside references, Korean with an English switch. All text is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(package_path("eval", "templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    board, ranking = report.board, report.ranking
    colours = colours_of([row.model for row in report.file.rows if row.source == "measured"])
    forests = [chart for place in range(len(board.columns)) if (chart := forest(board, place)).marks]
    scatters = [chart for task, rows in ranking.items() if (chart := scatter(task, rows, colours)).marks]
    return environment.get_template("leaderboard.html").render(
        title=TITLE,
        how_to_read=HOW_TO_READ,
        busy=BUSY,
        sections=SECTIONS,
        words=WORDS,
        report=report,
        board=board,
        ranking=ranking,
        noised={t: [r for r in rows if r.noise] for t, rows in ranking.items() if any(r.noise for r in rows)},
        cleaned=_cleaned(report),
        has_cost=any(row.latency_ms is not None for rows in ranking.values() for row in rows),
        forests=forests,
        scatters=scatters,
        curves=_curve_charts(report.evidence.curves, colours),
        colours=colours,
        tasks={name: get_task(name) for name in dict.fromkeys([*ranking, *_tasks_told(report)])},
        measures=[
            ([measure_title(m, "ko"), measure_title(m, "en")], [measure_meaning(m, "ko"), measure_meaning(m, "en")])
            for m in MEASURES
        ],
        facts=manifest_facts(report.file.manifest),
        again=AGAIN,
        pretty=lambda value: json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True),
        **{
            function.__name__: function
            for function in (
                *(percent, places, model_title, interval_text, p_text, signed, size_text, time_text, is_busy),
                *(verdict_text, difference_text, cost_cells, condition_title, noise_cell, noise_conditions),
                *(clean_value, clean_cells, corpus_title, touched_cells, task_title, clean_text),
            )
        },
    )


def _tasks_told(report: Report) -> Iterator[str]:
    yield from (found.task for found in report.file.comparisons)
    yield from (found.task for found in report.evidence.disagreements)
    yield from (pair.task for pair in report.evidence.contamination)


def _curve_charts(curves: Sequence[CurveFile], colours: Mapping[str, int]) -> list[Chart]:
    by_task: dict[str, list[CurveFile]] = {}
    for curve in curves:
        step = -(-len(curve.points) // MAX_LOSS_POINTS)
        by_task.setdefault(curve.task, []).append(curve.model_copy(update={"points": curve.points[::step]}))
    return [learning_curves(task, found, colours) for task, found in by_task.items()]
