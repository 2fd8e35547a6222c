"""The result of a cell: a model on a task with a seed. Its schema is defined here alone."""

import datetime
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from corpora.foundation.config import Config
from corpora.foundation.errors import ResultError, UsageError
from corpora.foundation.files import parse_signed, write_signed
from corpora.foundation.machine import environment
from downstream.metrics import FloatArray, Metric
from downstream.task import Prediction, Split, Task, get_task

SCHEMA: Literal[1] = 1
RESULT_FILE = "result.json"
ROUNDING = 1e-9
"""Difference of a metric that the order of a sum makes."""


class Result(Config):
    """Predictions of one model on one task with one seed, and what is needed to reproduce them."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    model: str
    task: str
    split: str
    seed: int
    metrics: dict[str, float | None]
    """Metric key → fraction; None where the metric is undefined for these predictions."""
    higher_is_better: dict[str, bool] = Field(default_factory=dict)
    """Metric key → whether a larger value is better; empty in cells from before it was noted, as the next three."""
    num_examples: int
    ids: list[str] | None = None
    """Id of each example, in the order of the evaluation file."""
    targets: list[Any] | None = None
    """What each prediction is compared with: label, score, or list of accepted answers."""
    clusters: list[int] | None = None
    """Number of each example's cluster, in the order in which clusters first occur; None where a task has none."""
    data_sha256: str
    """Of the files of the training and the evaluation split, joined by `+`."""
    recipe_sha256: str
    """Fingerprint of `recipe`; another value means another experiment."""
    recipe: dict[str, Any]
    """Everything but the seed that decides the predictions: model, task, data, resolved settings, package versions."""
    num_parameters: int = 0
    train_s: float
    eval_s: float
    device: str
    environment: dict[str, str] = Field(default_factory=dict)
    predictions: list[str | float]
    """One per example, in the order of the evaluation file."""
    columns: dict[str, list[list[float | None]]]
    """Metric key → its per-example numbers, which determine score, interval and paired tests."""

    def metric_columns(self, key: str) -> FloatArray:
        """Return the (N, K) per-example numbers of a metric; NaN for an excluded example."""
        return np.array([[np.nan if x is None else x for x in row] for row in self.columns[key]], dtype=np.float64)


def score(  # noqa: PLR0913 - the facts of a result, by name
    task: Task,
    split: Split,
    predictions: Sequence[Prediction],
    *,
    model: str,
    seed: int,
    data_sha256: str,
    recipe: dict[str, Any],
    recipe_sha256: str,
    train_s: float,
    eval_s: float,
    device: str,
    precision: str | None = None,
    num_parameters: int = 0,
) -> Result:
    """Score predictions on a task's evaluation split with all its metrics.

    Args:
        task: what is scored.
        split: the examples that were predicted.
        predictions: one per example.
        model: name.
        seed: of the training.
        data_sha256: of the files of both splits.
        recipe: everything but the seed that decides the predictions.
        recipe_sha256: its fingerprint.
        train_s: time of training in seconds.
        eval_s: time of predicting in seconds.
        device: type of the device that computed.
        precision: of the training, if there was one.
        num_parameters: of the model without its head.
    """
    columns = {metric.key: metric.columns(predictions, split.golds) for metric in task.metrics}
    values = {metric.key: metric.fold(columns[metric.key]) for metric in task.metrics}
    return Result(
        schema=SCHEMA,
        model=model,
        task=task.name,
        split=task.eval_split,
        seed=seed,
        metrics={key: None if np.isnan(value) else value for key, value in values.items()},
        higher_is_better={metric.key: metric.higher_is_better for metric in task.metrics},
        num_examples=len(split.examples),
        ids=[example.id for example in split.examples],
        targets=[target_of(getattr(example, "target", example.gold)) for example in split.examples],
        clusters=split.cluster_numbers,
        data_sha256=data_sha256,
        recipe=recipe,
        recipe_sha256=recipe_sha256,
        train_s=round(train_s, 3),
        eval_s=round(eval_s, 3),
        device=device,
        environment=environment() | ({"precision": precision} if precision else {}),
        num_parameters=num_parameters,
        predictions=[p if isinstance(p, str) else float(p) for p in predictions],
        columns={
            key: [[None if np.isnan(x) else float(x) for x in row] for row in array] for key, array in columns.items()
        },
    )


def target_of(gold: Any) -> Any:
    """Return a gold as a JSON value: labels and scores as they are, several accepted answers as a list.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(gold, str | int | float):
        return gold
    if isinstance(gold, tuple | list):
        return [target_of(one) for one in gold]
    raise TypeError(f"a gold of type {type(gold).__name__} has no form in a result")


def write_result(path: Path, result: Result) -> None:
    """Write a cell file atomically.

    Raises:
        ResultError: the file cannot be written.
    """
    write_signed(path, result.model_dump(by_alias=True), indent=None)


def read_result(path: Path) -> Result:
    """Read a cell file.

    Its digest is checked, and its metrics are computed again from the numbers of its examples.

    Raises:
        ResultError: it is damaged, was changed, or is of another schema.
    """
    try:
        result = Result(**parse_signed(path.read_text(encoding="utf-8")))
        if reason := _inconsistent(result):
            raise ValueError(reason)
    except OSError as error:
        raise ResultError(path, error.strerror or str(error), "check the path and its permissions") from error
    except (ValueError, TypeError) as error:
        detail = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error).splitlines()[0]
        raise ResultError(
            path, f"not a result of schema {SCHEMA} ({detail})", "delete it; the cell is then computed again"
        ) from error
    return result


def _inconsistent(result: Result) -> str:
    """Return what of a result contradicts the rest of it, or nothing."""
    num_examples = len(result.predictions)
    if result.num_examples != num_examples:
        return f"num_examples={result.num_examples}, but {num_examples} predictions"
    if any(rows is not None and len(rows) != num_examples for rows in (result.ids, result.targets, result.clusters)):
        return f"ids or targets of another number than {num_examples} predictions"
    if not all(math.isfinite(seconds) and seconds >= 0 for seconds in (result.train_s, result.eval_s)):
        return "a time that is no number of seconds"
    if finished := result.environment.get("finished"):
        datetime.datetime.fromisoformat(whole_date(finished))
    for metric in _metrics_of(result.task):
        if metric.key in result.columns and metric.key in result.metrics:
            value, stored = float(metric.fold(result.metric_columns(metric.key))), result.metrics[metric.key]
            if (stored is None) != math.isnan(value) or (stored is not None and abs(stored - value) > ROUNDING):
                return f"{metric.key}={stored}, but its examples give {value:.6f}"
    return ""


def whole_date(text: str) -> str:
    """Return a date with month and day: cells are ordered by theirs, of which a year may be all that is known."""
    return (text + "-01-01"[len(text) - 4 :])[:10] if len(text) in (4, 7) else text


def _metrics_of(name: str) -> Sequence[Metric]:
    """Return the metrics of a task; none of one that is not known here."""
    try:
        return get_task(name).metrics
    except UsageError:
        return ()
