"""Parts of a guide that a command writes: between the lines `<!-- NAME -->` and `<!-- end -->`.

`fill_results` writes the figures of a published report into the table of `docs/evaluation.md`. Which tasks and models
it has is written by hand: a task in the first cell of a row, and one or two models in the heads of the other columns,
all in backticks.

    | task | `a` | `a` − `b` [95 %] |
    | --- | ---: | ---: |
    | `nsmc` | | |
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from corpora.foundation.errors import UsageError
from corpora.foundation.files import write_text
from downstream.task import all_tasks
from eval.board.table import percent, signed

GUIDES = ("evaluation.md", "evaluation.en.md")
"""In the parent of the folder of the report."""
BLOCK = "results"
END = "<!-- end -->\n"
MISSING = "–"
NAME = re.compile(r"`([^`]+)`")

Rows: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
"""By task and model."""


def read_block(path: Path, name: str) -> str:
    """Return what is between the lines of the block NAME of a page.

    Raises:
        UsageError: the page lacks these lines.
    """
    return _divided(path, name)[1].strip()


def write_block(path: Path, name: str, text: str) -> None:
    """Replace what is between the lines of the block NAME of a page.

    Raises:
        UsageError: the page lacks these lines.
    """
    before, _, after = _divided(path, name)
    write_text(path, f"{before}\n{text}\n\n{after}")


def _divided(path: Path, name: str) -> tuple[str, str, str]:
    """Return a page up to the first line of a block, the block, and the page from its last line on."""
    begin = f"<!-- {name} -->\n"
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    block, end, after = rest.partition(END)
    if not found or not end:
        raise UsageError(path, f"no lines {begin.strip()} and {END.strip()}", "put them around the table")
    return before + begin, block, end + after


def update_guides(reports: Path) -> list[Path]:
    """Write the figures of the report in REPORTS into the guides beside this folder; return those that are there.

    Raises:
        UsageError: a guide lacks the lines around its table.
    """
    report = json.loads((reports / "leaderboard.json").read_text(encoding="utf-8"))
    guides = [path for path in (reports.parent / name for name in GUIDES) if path.is_file()]
    for path in guides:
        write_block(path, BLOCK, fill_results(read_block(path, BLOCK), report))
    return guides


def fill_results(table: str, report: Mapping[str, Any]) -> str:
    """Return TABLE, in Markdown, with the figures of REPORT.

    A column of one model has its means of the ranking metric ×100, in bold where a paired test finds it better than the
    model that another column compares it with. A column of two has their difference with its interval, and `*` if it is
    that on clean examples. What was not measured is "–".
    """
    rows = ranking_rows(report)
    pairs = {(row["task"], row["a"], row["b"]): row for row in report["comparisons"]}
    head, dashes, *lines = table.splitlines()
    columns = [NAME.findall(cell) for cell in _cells(head)[1:]]
    rivals = {model: other for models in columns if len(models) == 2 for model, other in (models, models[::-1])}

    def cell(task: str, models: Sequence[str]) -> str:
        if len(models) == 2:
            a, b = models
            return _difference(pairs.get((task, a, b)), 1) or _difference(pairs.get((task, b, a)), -1) or MISSING
        if (row := rows.get((task, models[0]))) is None:
            return MISSING
        pair = pairs.get((task, models[0], rivals.get(models[0], "")))
        is_better = pair is not None and pair["verdict"] == "better"
        return f"**{percent(row['value'])}**" if is_better else percent(row["value"])

    filled = []
    for line in lines:
        label = _cells(line)[0]
        task = "".join(NAME.findall(label)[:1])
        filled.append(f"| {' | '.join([label, *(cell(task, models) for models in columns)])} |")
    return "\n".join([head, dashes, *filled])


def ranking_rows(report: Mapping[str, Any]) -> Rows:
    """Return the measured rows of a report in the ranking metric of their task."""
    ranking = {name: task.metrics[0].key for name, task in all_tasks().items()}
    return {
        (row["task"], row["model"]): row
        for row in report["rows"]
        if row["source"] == "measured" and row["value"] is not None and row["metric"] == ranking.get(row["task"])
    }


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _difference(pair: Mapping[str, Any] | None, sign: int) -> str:
    """Return the difference of a pair, or the reverse of it; empty if there is none."""
    if pair is None or pair["difference"] is None or pair["ci95"] is None:
        return ""
    low, high = sorted(sign * bound for bound in pair["ci95"])
    clean = " *" if pair["is_clean_subset"] else ""
    return f"{signed(sign * pair['difference'])} [{signed(low)}, {signed(high)}]{clean}"
