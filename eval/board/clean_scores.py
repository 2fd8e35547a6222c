"""Scores without the evaluation examples that training text contains; they are rescored, nothing is predicted again.

`eval.contamination` finds the examples; this module reads its files.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from corpora.foundation.errors import ResultError
from corpora.overlap import MEASURES, Measure
from downstream.finetuning.result import Result
from downstream.task import get_task
from eval.board.rows import CleanFigure, Figure, Table, TouchedExamples, figure_on
from eval.contamination.files import Hit, Pair, all_hits, find_pairs, pair_path, read_pair, touched_positions

AnyMeasure: TypeAlias = Measure | Literal["any"]


@dataclass(frozen=True)
class Touched:
    """The examples of a task that a training text contains."""

    task: str
    data_sha256: str
    """Of the evaluation split they are in."""
    num_examples: int
    """In this split."""
    positions: frozenset[int]
    """Their indices in the evaluation file, from 0."""
    ids: frozenset[str] | None = None
    """Their ids; None where only positions were listed."""


@dataclass(frozen=True)
class CleanScore:
    """A metric on all examples, on those that are not touched, and on those that are."""

    all: Figure
    clean: Figure
    touched: Figure


def touched_examples(out: Path, task: str, corpus: str, *, min_letters: int = 0) -> dict[AnyMeasure, Touched]:
    """Return the examples of a task that a training text contains, by measure, and by `any` of them.

    Args:
        out: folder of `contamination.json`.
        task: the task's name.
        corpus: the corpus's name, or that of the task's training split.
        min_letters: shorter texts do not count; 20 leaves out what people write independently of each other.

    Raises:
        ResultError: the pair was not checked yet, its files are damaged, or its list of hits is an excerpt.
    """
    pair = read_pair(pair_path(out, task, corpus))
    hits = [hit for hit in all_hits(out, pair) if hit.num_letters >= min_letters]
    of_measure: dict[AnyMeasure, list[Hit]] = {
        measure: [hit for hit in hits if hit.measure == measure] for measure in MEASURES
    }
    return {
        measure: Touched(
            task=task,
            data_sha256=pair.data_sha256,
            num_examples=pair.num_examples,
            ids=frozenset(hit.example for hit in found),
            positions=frozenset(hit.position for hit in found),
        )
        for measure, found in (of_measure | {"any": hits}).items()
    }


def clean_score(
    result: Result | Sequence[Result], touched: Touched, *, seed: int = 0, keys: Collection[str] | None = None
) -> dict[str, CleanScore]:
    """Return each metric of a result with and without the touched examples.

    Args:
        result: one model's result on a task, or its results of several seeds, which are averaged.
        touched: of the same task.
        seed: of the bootstrap.
        keys: of the metrics that are wanted; default: all.

    Returns:
        Metric key → figures.

    Raises:
        ResultError: a result is of another task or other data than TOUCHED.
        ValueError: there is no result.
    """
    results = [result] if isinstance(result, Result) else list(result)
    if not results:
        raise ValueError("no result to score")
    for each in results:
        _check_same_data(each, touched)
    is_touched = np.zeros(touched.num_examples, np.bool_)
    is_touched[list(touched.positions)] = True
    scores = {}
    for metric in get_task(touched.task).metrics:
        if (keys is None or metric.key in keys) and all(metric.key in each.columns for each in results):
            columns = [each.metric_columns(metric.key) for each in results]
            groups = (np.ones_like(is_touched), ~is_touched, is_touched)
            figures = [figure_on(metric, columns, results[0].clusters, group, seed) for group in groups]
            scores[metric.key] = CleanScore(*figures)
    return scores


def _check_same_data(result: Result, touched: Touched) -> None:
    where = f"{result.model} on {result.task}, seed {result.seed}"
    evaluated = result.data_sha256.rpartition("+")[2]  # behind that of the training split
    if result.task != touched.task:
        raise ResultError(where, f"the touched examples are of {touched.task}", "give those of the same task")
    if evaluated != touched.data_sha256 or result.num_examples != touched.num_examples:
        what = "scored on other data than were checked for contamination"
        raise ResultError(where, what, "run python -m eval.contamination again with the same --data")


def with_clean_scores(table: Table, out: Path) -> tuple[Table, list[Pair], list[ResultError]]:
    """Add figures without the touched examples to the rows of those tasks that were checked.

    Args:
        table: of the folder's cells.
        out: folder of the leaderboard; `python -m eval.contamination` may have written into it.

    Returns:
        The table, all pairs of its tasks that were checked, and the errors of those that could not be used.
    """
    pairs, errors = find_pairs(out)
    names = {cell.task for cell in table.cells}
    pairs = [pair for pair in pairs if pair.status == "ok" and pair.task in names]
    figures: dict[tuple[str, str], list[CleanFigure]] = {}
    for pair in pairs:
        metric = get_task(pair.task).metrics[0].key
        try:
            positions = frozenset(touched_positions(out, pair))
            touched = Touched(pair.task, pair.data_sha256, pair.num_examples, positions)
            for model, cells in table.cells_of(pair.task).items():
                if touched.positions and (found := clean_score(cells, touched, keys={metric}).get(metric)) is not None:
                    figures.setdefault((pair.task, model), []).append(_clean_figure(pair, touched, found))
        except ResultError as error:
            errors.append(error)
    rows = [
        row.model_copy(update={"clean": figures[row.task, row.model]})
        if row.source == "measured"
        and (row.task, row.model) in figures
        and row.metric == get_task(row.task).metrics[0].key
        else row
        for row in table.rows
    ]
    return replace(table, rows=rows), pairs, errors


def find_touched(out: Path) -> tuple[dict[str, TouchedExamples], list[ResultError]]:
    """Return, for each task that was checked, the examples that any of its training texts contains.

    Args:
        out: folder of the leaderboard.

    Returns:
        Task → examples, and the errors of pairs that could not be used.
    """
    pairs, errors = find_pairs(out)
    found: dict[str, TouchedExamples] = {}
    for pair in pairs:
        if pair.status != "ok":
            continue
        try:
            positions = frozenset(touched_positions(out, pair))
        except ResultError as error:
            errors.append(error)
            continue
        before = found.get(pair.task)
        if before is not None and before.data_sha256 != pair.data_sha256:
            what = "checked on other data than the task's other training texts"
            errors.append(ResultError(pair_path(out, pair.task, pair.corpus), what, "run python -m eval.contamination"))
        else:
            known = before.positions if before is not None else frozenset()
            found[pair.task] = TouchedExamples(pair.data_sha256, known | positions)
    return found, errors


def _clean_figure(pair: Pair, touched: Touched, found: CleanScore) -> CleanFigure:
    return CleanFigure(
        corpus=pair.corpus,
        source=pair.source,
        num_touched=len(touched.positions),
        value=found.clean.value,
        ci95=found.clean.ci95,
        touched_value=found.touched.value,
    )
