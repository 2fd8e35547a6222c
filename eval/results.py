"""Finished cells on disk, and the leaderboard's rows made of them.

A cell is `results/TASK/MODEL/seed-N.json`, written whole or not at all, which is what makes a second run skip it. Rows
only read cells; no model is ever loaded for a table.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from corpora.runtime import Config, ResultError
from downstream.metrics import Metric, bootstrap_ci95
from downstream.result import Result, read_result
from downstream.task import Task

REPORTED_JSON = Path(__file__).with_name("reported.json")

Status = Literal["ok", "failed", "unavailable"]


class Row(Config):
    """One figure of the leaderboard: a model on a task in a metric, over its seeds."""

    model: str
    task: str
    metric: str
    source: Literal["measured", "reported"] = "measured"
    status: Status = "ok"
    reason: str = ""
    """Why there is no value: what failed or is missing and what to do, or why the metric is undefined."""
    value: float | None = None
    """Mean over seeds, as a fraction."""
    ci95: tuple[float, float] | None = None
    """95 % bootstrap interval over examples: what another draw of examples might have given."""
    seeds: int = 0
    std: float | None = None
    """Sample standard deviation over seeds: what another seed might have given. None for a single one."""
    num_examples: int = 0
    split: str = ""
    data_sha256: str = ""
    num_parameters: int = 0
    """Of the encoder, head left out."""
    train_s: float = 0.0
    """Mean over seeds."""
    eval_s: float = 0.0
    """Mean over seeds."""
    reference: str = ""
    """Where a reported figure was published."""
    note: str = ""
    """What else a reader of the figure must know, such as another source that prints another one."""


class LeaderboardFile(Config):
    """`leaderboard.json`."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    created: str
    manifest: dict[str, Any]
    rows: list[Row]


def cell_path(out: Path, task: str, model: str, seed: int) -> Path:
    """Return where a cell lies."""
    return out / "results" / task / model.replace("/", "--") / f"seed-{seed}.json"


def find_cells(out: Path) -> tuple[list[Result], list[ResultError]]:
    """Read all cells under OUT, the newest last; damaged files are returned as errors, not hidden."""
    cells, errors = [], []
    for path in sorted((out / "results").glob("*/*/seed-*.json"), key=lambda path: (path.stat().st_mtime_ns, path)):
        try:
            cells.append(read_result(path))
        except ResultError as error:
            errors.append(error)
    return cells, errors


def read_reported() -> list[Row]:
    """Return the published figures."""
    return [Row(**row) for row in json.loads(REPORTED_JSON.read_text(encoding="utf-8"))["rows"]]


def rows_of_cells(task: Task, cells: Sequence[Result]) -> list[Row]:
    """Fold the seeds of one model on one task into rows, one a metric.

    Only cells of the last one's recipe count: seeds of different experiments are never averaged.
    """
    kept = sorted((c for c in cells if c.recipe_sha256 == cells[-1].recipe_sha256), key=lambda cell: cell.seed)
    # A cell from before the task got another metric has no figure in it, and keeps the others.
    known = [metric for metric in task.metrics if all(metric.key in cell.metrics for cell in kept)]
    return [_row(metric, kept) for metric in known]


def _row(metric: Metric, cells: Sequence[Result]) -> Row:
    first = cells[0]
    values = [cell.metrics[metric.key] for cell in cells]
    defined = [value for value in values if value is not None]
    is_defined = len(defined) == len(values)
    columns = [cell.metric_columns(metric.key) for cell in cells]
    return Row(
        model=first.model,
        task=first.task,
        metric=metric.key,
        reason="" if is_defined else f"예측이 모두 같아 {metric.title} 값을 정의할 수 없음",
        value=float(np.mean(defined)) if is_defined else None,
        ci95=bootstrap_ci95(metric, columns) if is_defined else None,
        seeds=len(cells),
        std=float(np.std(defined, ddof=1)) if is_defined and len(defined) > 1 else None,
        num_examples=first.num_examples,
        split=first.split,
        data_sha256=first.data_sha256,
        num_parameters=first.num_parameters,
        train_s=round(float(np.mean([cell.train_s for cell in cells])), 3),
        eval_s=round(float(np.mean([cell.eval_s for cell in cells])), 3),
    )


def missing_rows(task: Task, model: str, status: Status, reason: str) -> list[Row]:
    """Return the rows of a cell that could not be filled, one a metric."""
    return [
        Row(model=model, task=task.name, metric=metric.key, status=status, reason=reason, split=task.eval_split)
        for metric in task.metrics
    ]


def reported_rows(tasks: Iterable[Task]) -> list[Row]:
    """Return the published figures on the official tasks that TASKS are or stand in for."""
    names = {task.official_name for task in tasks}
    return [row for row in read_reported() if row.task in names]
