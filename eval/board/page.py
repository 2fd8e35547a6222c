"""A leaderboard's files: JSON, CSV, Markdown in two languages, a model-index, and one self-contained page.

The page holds its style and its script, and asks for nothing else: it works from a disk without a network. Beyond the
Markdown it has charts, and examples on which models disagree.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from corpora.foundation.files import package_path, write_json, write_text
from corpora.foundation.texts import Texts
from corpora.overlap import MEASURES
from downstream.task import get_task
from eval.board.charts import Chart, colours_of, forest, learning_curves, scatter
from eval.board.markdown import to_markdown
from eval.board.model_index import write_model_index
from eval.board.report import (
    AGAIN,
    Evidence,
    Report,
    clean_cells,
    clean_value,
    condition_title,
    corpus_title,
    corpus_titles,
    cost_cells,
    difference_text,
    is_busy,
    latency_text,
    manifest_facts,
    noise_conditions,
    score_of,
    settings_cells,
    touched_cells,
)
from eval.board.rows import LeaderboardFile
from eval.board.table import (
    clean_text,
    compared_text,
    examples_text,
    interval_text,
    model_title,
    p_text,
    percent,
    rank_text,
    signed,
    task_title,
    to_csv,
    verdict_text,
)
from eval.cells.files import NOT_MEASURED
from eval.cells.measurements import CurveFile
from eval.contamination.report import measure_meaning, measure_title

MAX_LOSS_POINTS = 200
"""Points of a learning curve that are drawn."""
SECTIONS = (
    *("picks", "table", "forest", "pairs", "cost", "noise", "errors", "contamination", "settings", "curves"),
    "manifest",
)
"""Of the page, in their order."""


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


def to_html(report: Report) -> str:
    """Return the page: one file without outside references, Korean with an English switch. All text is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(package_path("eval", "templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    ranking = report.ranking
    colours = colours_of([row.model for row in report.file.rows if row.source == "measured"])
    forests = {
        key: [chart for k in range(len(board.columns)) if (chart := forest(board, k)).marks]
        for key, board in report.boards.items()
    }
    return environment.get_template("leaderboard.html").render(
        ko=Texts("ko", "report"),
        en=Texts("en", "report"),
        t=_text,
        pair=_pair,
        both=_both,
        has=_has(report),
        sections=SECTIONS,
        report=report,
        ranking=ranking,
        forests=forests,
        scatters=[chart for task, rows in ranking.items() if (chart := scatter(task, rows, colours)).marks],
        curves=_curve_charts(report.evidence.curves, colours),
        colours=colours,
        tasks={name: get_task(name) for name in dict.fromkeys([*ranking, *_other_tasks(report)])},
        measures=MEASURES,
        facts=manifest_facts(report.file.manifest),
        again=AGAIN,
        NOT_MEASURED=NOT_MEASURED,
        pretty=lambda value: json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True),
        **{
            function.__name__: function
            for function in (
                *(percent, rank_text, model_title, interval_text, p_text, signed, is_busy, task_title),
                *(verdict_text, difference_text, cost_cells, condition_title, noise_conditions),
                *(score_of, settings_cells, compared_text, examples_text, latency_text),
                *(clean_value, clean_cells, corpus_title, corpus_titles, touched_cells, clean_text),
                *(measure_title, measure_meaning),
            )
        },
    )


def _pair(korean: str, english: str) -> Markup:
    """Return a text in both languages, of which the page shows one."""
    if korean == english:
        return Markup("{}").format(korean)
    return Markup('<span class="ko">{}</span><span class="en" lang="en">{}</span>').format(korean, english)


def _text(key: str) -> Markup:
    """Return a text of the catalogue in both languages."""
    return _pair(Texts("ko", "report")(key), Texts("en", "report")(key))


def _both(function: Callable[..., str], *arguments: Any) -> Markup:
    """Return what FUNCTION makes of ARGUMENTS in both languages."""
    return _pair(function(*arguments, "ko"), function(*arguments, "en"))


def _has(report: Report) -> dict[str, bool]:
    """Return which sections have contents."""
    evidence = report.evidence
    contents: dict[str, object] = {
        "picks": report.picks,
        "table": True,
        "forest": report.boards,
        "pairs": report.file.comparisons,
        "cost": report.has_cost,
        "noise": report.noised,
        "errors": evidence.disagreements,
        "contamination": evidence.contamination,
        "settings": any(row.settings or row.commit for rows in report.ranking.values() for row in rows),
        "curves": evidence.curves,
        "manifest": True,
    }
    return {section: bool(content) for section, content in contents.items()}


def _other_tasks(report: Report) -> Iterator[str]:
    yield from (pick.task for pick in report.picks)
    yield from (found.task for found in report.file.comparisons)
    yield from (found.task for found in report.evidence.disagreements)
    yield from (pair.task for pair in report.evidence.contamination)


def _curve_charts(curves: Sequence[CurveFile], colours: Mapping[str, int]) -> list[Chart]:
    by_task: dict[str, list[CurveFile]] = {}
    for curve in curves:
        step = -(-len(curve.points) // MAX_LOSS_POINTS)
        by_task.setdefault(curve.task, []).append(curve.model_copy(update={"points": curve.points[::step]}))
    return [learning_curves(task, found, colours) for task, found in by_task.items()]
