"""A report as GitHub Markdown in one language: two tables of scores, and everything else folded below them."""

from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

from corpora.foundation.texts import Language, Texts
from corpora.overlap import MEASURES
from downstream.task import get_task
from eval.board.report import (
    AGAIN,
    Report,
    clean_cells,
    clean_value,
    condition_title,
    corpus_title,
    corpus_titles,
    cost_cells,
    difference_text,
    is_busy,
    manifest_facts,
    noise_conditions,
    noise_row,
    score_of,
    settings_cells,
    touched_cells,
)
from eval.board.rows import Row
from eval.board.table import (
    Board,
    clean_text,
    compared_text,
    examples_text,
    figure,
    model_title,
    p_text,
    percent,
    rank_text,
    task_title,
    verdict_text,
)
from eval.contamination.report import measure_meaning, measure_title


def to_markdown(report: Report, language: Language) -> str:
    """Return the report in one language."""
    texts = Texts(language, "report")
    lines = [f"# {texts('title')}", "", texts("how_to_read"), ""]
    if notice := report.state_notice(language):
        lines += [f"> {_harmless(notice)}", ""]
    for key, board in report.boards.items():
        lines += [f"## {texts(key)}", "", texts(f"{key}_text"), "", *_brief_lines(board, texts)]
        if board.footnotes:
            notes = (
                f"{number}. {_harmless(note.text(language))}" for number, note in enumerate(board.footnotes, start=1)
            )
            lines += _folded(texts("notes"), notes)
    sections = {
        "picks": _pick_lines(report, texts),
        "forest": _full_lines(report, texts),
        "settings": _setting_lines(report, texts),
        "pairs": _pair_lines(report, texts),
        "cost": _cost_lines(report, texts),
        "noise": _noise_lines(report, texts),
        "errors": _dispute_lines(report, texts),
        "contamination": _contamination_lines(report, texts),
        "curves": _curve_lines(report, texts),
        "manifest": _manifest_lines(report, texts),
    }
    for name, body in sections.items():
        found = list(body)
        if found:
            lines += _folded(texts(f"section.{name}"), [texts(f"section_text.{name}"), "", *found])
    return "\n".join(lines)


def _folded(title: str, lines: Iterable[str]) -> list[str]:
    return ["<details>", f"<summary><b>{title}</b></summary>", "", *lines, "", "</details>", ""]


class _Link(str):
    """A cell that is a link of ours."""

    __slots__ = ()


def _escaped(text: str) -> str:
    """Return a text of a cell: names and reasons may come from others, and no page may run what is in them.

    It stays in its cell.
    """
    return text if isinstance(text, _Link) else _harmless(text).replace("|", "\\|")


def _harmless(text: str) -> str:
    """Return a text in one line without tags, links and pictures."""
    plain = " ".join(text.splitlines()).replace("&", "&amp;").replace("<", "&lt;")
    return plain.replace("\\", "\\\\").replace("](", "]\\(")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return [f"| {' | '.join(map(_escaped, row))} |" for row in (head, rule, *rows)]


def _task(name: str, texts: Texts) -> str:
    return task_title(get_task(name), texts.language)


def _brief_lines(board: Board, texts: Texts) -> list[str]:
    """Return the table of ranking metrics, without intervals; models without a row in them are left out."""
    shown = [k for k, column in enumerate(board.columns) if column.is_ranking]
    head = [texts("model"), texts("source"), *(board.columns[k].heading(texts.language) for k in shown)]
    rows = _example_lines(board, shown, texts) + [
        [
            model_title(line.model),
            texts(f"source_of.{block}"),
            *(_brief(line.rows[k], board, texts) for k in shown),
        ]
        for block, lines in board.blocks
        for line in lines
        if any(line.rows[k] is not None for k in shown)
    ]
    return [*_table(head, rows, left=2), ""]


def _example_lines(board: Board, shown: Sequence[int], texts: Texts) -> list[list[str]]:
    """Return the line that says how many examples and clusters each column has; none where nothing was measured."""
    cells = [examples_text(board.by_column[k], texts.language) for k in shown]
    return [[f"*{texts('evaluated')}*", "", *cells]] if any(cells) else []


def _brief(row: Row | None, board: Board, texts: Texts) -> str:
    """Return a row as value, footnote mark and deviation over seeds, and then its rank."""
    if row is None or row.value is None:
        return figure(row, board, language=texts.language)
    deviation = "" if row.std is None else f"±{percent(row.std)}"
    value = " ".join(filter(None, [percent(row.value), deviation, board.mark(row)]))
    clean = clean_text(row, texts.language) if row.is_clean_subset else ""
    rank = "" if row.rank is None else rank_text(row.rank, texts.language)
    return " · ".join(filter(None, [value, clean, rank]))


def _pick_lines(report: Report, texts: Texts) -> Iterator[str]:
    if report.picks:
        head = [texts(key) for key in ("pick_task", "pick_best", "pick_fastest", "pick_published")]
        rows = []
        for pick in report.picks:
            best = ", ".join(f"{model_title(row.model)} {percent(score_of(row) or 0.0)}" for row in pick.best)
            best = best or texts(pick.why_empty)
            fastest = model_title(pick.fastest.model) if pick.fastest is not None and pick.is_distinguished else ""
            published = pick.reported
            shown = "" if published is None else f"{model_title(published.model)} {percent(published.value or 0.0)}"
            is_tied = bool(pick.best) and not pick.is_distinguished
            rows.append([_task(pick.task, texts), texts("pick_none") if is_tied else best, fastest, shown])
        yield from _table(head, rows, left=4)


def _setting_lines(report: Report, texts: Texts) -> Iterator[str]:
    rows = [row for rows in report.ranking.values() for row in rows]
    if any(row.settings or row.commit for row in rows):
        head = [texts(key) for key in ("task", "model", "settings", "chosen_by", "commit")]
        cells = [[_task(row.task, texts), model_title(row.model), *settings_cells(row, texts.language)] for row in rows]
        yield from _table(head, cells, left=5)


def _full_lines(report: Report, texts: Texts) -> Iterator[str]:
    for key, board in report.boards.items():
        head = [texts("model"), texts("source"), *(column.heading(texts.language) for column in board.columns)]
        rows = [
            [
                model_title(line.model),
                texts(f"source_of.{block}"),
                *(
                    " · ".join(
                        filter(
                            None,
                            [
                                figure(row, board, language=texts.language),
                                "" if row is None or row.is_clean_subset else clean_text(row, texts.language),
                            ],
                        )
                    )
                    for row in line.rows
                ),
            ]
            for block, lines in board.blocks
            for line in lines
        ]
        yield from (f"### {texts(key)}", "", *_table(head, rows, left=2), "")


def _pair_lines(report: Report, texts: Texts) -> Iterator[str]:
    if report.file.comparisons:
        head = [texts("task"), texts("evaluated"), "A", "B"]
        head += [texts(key) for key in ("difference", "corrected_p", "verdict")]
        rows = [
            [
                _task(found.task, texts),
                compared_text(found, texts.language),
                model_title(found.a),
                model_title(found.b),
                difference_text(found),
                p_text(found.p_adjusted),
                verdict_text(found, texts.language),
            ]
            for found in report.file.comparisons
        ]
        yield from _table(head, rows, left=4)


def _cost_lines(report: Report, texts: Texts) -> Iterator[str]:
    if report.has_cost:
        head = [texts(key) for key in ("task", "model", "parameters", "size", "latency", "rate", "train")]
        rows = [row for rows in report.ranking.values() for row in rows]
        cells = [[_task(row.task, texts), model_title(row.model), *cost_cells(row, texts.language)] for row in rows]
        yield from _table(head, cells, left=2)
        if any(map(is_busy, rows)):
            yield from ("", texts("busy"))


def _noise_lines(report: Report, texts: Texts) -> Iterator[str]:
    for task, rows in report.noised.items():
        conditions = noise_conditions(rows)
        title = f"{_task(task, texts)} {get_task(task).metrics[0].title}"
        head = [title, texts("clean"), *(condition_title(c, texts.language) for c in conditions)]
        body = [[model_title(row.model), clean_value(row), *noise_row(row, conditions)] for row in rows]
        yield from (*_table(head, body), "")


def _dispute_lines(report: Report, texts: Texts) -> Iterator[str]:
    if report.evidence.disagreements:
        head = [texts(key) for key in ("task", "examples", "disputed")]
        found = report.evidence.disagreements
        yield from _table(
            head, [[_task(one.task, texts), f"{one.num_examples:,}", f"{one.num_disputed:,}"] for one in found]
        )


def _contamination_lines(report: Report, texts: Texts) -> Iterator[str]:
    language = texts.language
    if not report.evidence.contamination:
        return
    head = [texts(key) for key in ("task", "training_text", "examples")]
    head += [*(measure_title(measure, language) for measure in MEASURES), texts("hits")]
    rows = [
        [
            _task(pair.task, texts),
            corpus_title(pair, language),
            f"{pair.num_examples:,}",
            *touched_cells(pair),
            _Link(f"[tsv]({quote(pair.hits)})"),
        ]
        for pair in report.evidence.touched
    ]
    if rows:
        yield from (*_table(head, rows, left=2), "")
    yield from (f"- {measure_title(m, language)}: {measure_meaning(m, language)}" for m in MEASURES)
    if report.evidence.clean:
        cells = [[_task(task, texts), corpus_titles(pairs, language)] for task, pairs in report.evidence.clean.items()]
        yield from ("", texts("contamination.clean_text"), "")
        yield from _table([texts("task"), texts("training_text")], cells, left=2)
    if report.cleaned:
        head = [texts(key) for key in ("task", "training_text", "model", "with_all", "without", "only_touched")]
        cells = [
            [
                _task(row.task, texts),
                f"{found.corpus} ({found.num_touched:,})",
                model_title(row.model),
                *clean_cells(row, found),
            ]
            for row, found in report.cleaned
        ]
        yield from ("", f"### {texts('clean_title')}", "", texts("clean_text"), "", *_table(head, cells, left=3))


def _curve_lines(report: Report, texts: Texts) -> Iterator[str]:
    if report.evidence.curves:
        head = [texts("task"), texts("model"), "seed", texts("steps"), texts("loss")]
        rows = [
            [
                _task(curve.task, texts),
                model_title(curve.model),
                str(curve.seed),
                f"{curve.points[-1].step:,}",
                f"{curve.points[0].loss:.3f} → {curve.points[-1].loss:.3f}",
            ]
            for curve in report.evidence.curves
        ]
        yield from _table(head, rows, left=2)


def _manifest_lines(report: Report, texts: Texts) -> Iterator[str]:
    yield from (f"- {texts(key)}: {_escaped(value)}" for key, value in manifest_facts(report.file.manifest))
    yield from (f"- {texts('created')}: {report.file.created}", "", texts("again_text"), "", "```sh", AGAIN, "```")
