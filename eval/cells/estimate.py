"""`--dry-run`: the time of unfinished cells on this machine, from a trial of each model on a few examples of each task.

A trial trains one epoch and predicts, by the code that runs a cell; its seconds per example are multiplied by the
numbers of the task. What a model takes to load and save is left out, and so is the grid search of `--grid`.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpora.foundation.errors import SuiteError
from corpora.foundation.files import fingerprint
from corpora.foundation.texts import Language, Texts
from downstream.families.retrieval import Retrieval
from downstream.finetuning.batches import subsample
from downstream.task import FinetuneConfig, Task, TaskData, read_task
from eval.cells.files import read_finished
from eval.cells.measurements import takes_noise
from eval.contestants.contestant import Cell, Contestant, Job
from eval.measures.noise import MAX_EXAMPLES, num_conditions
from pretraining.training.estimate import format_duration

TRIAL_EXAMPLES = 64
"""Examples that a fine-tuned model is trained on, and that it predicts."""
BASELINE_EXAMPLES = 1_000
"""The same of a model that is not fine-tuned, whose time for a few examples is mostly start-up."""


@dataclass(frozen=True)
class Speed:
    """Seconds of one example; they depend on shapes and lengths, not on weights."""

    train_s: float
    """In one epoch."""
    eval_s: float

    def cell_s(self, data: TaskData, config: FinetuneConfig | None = None, *, few_shot: int | None = None) -> float:
        """Return the seconds of training and evaluation.

        Args:
            data: splits of the task.
            config: of the fine-tuning; None of a model that is not fine-tuned.
            few_shot: labelled examples of a few-shot task.
        """
        trained = len(subsample(data.train.examples, few_shot or (config.train_examples if config else None)))
        epochs = config.epochs if config else 1.0
        return epochs * trained * self.train_s + len(data.eval.examples) * self.eval_s


def try_cell(model: Contestant, task: Task, data: TaskData, *, turns: int = 1) -> Speed:
    """Run MODEL on a few examples of a task.

    Args:
        model: what is timed.
        task: whose examples.
        data: its splits.
        turns: trials, of which the last counts; the first one of a process includes imports and compilation.

    Raises:
        SuiteError: an error that would stop the cell, too.
    """
    number = BASELINE_EXAMPLES if model.finetune_config(task) is None else TRIAL_EXAMPLES
    # A few-shot task draws its examples itself; of a retrieval the texts that belong together are neighbours.
    train = data.train.examples if task.few_shot else subsample(data.train.examples, number)
    some = data.eval.examples
    examples = some[:number] if isinstance(task.family, Retrieval) else subsample(some, number)
    trial = TaskData(replace(data.train, examples=tuple(train)), replace(data.eval, examples=tuple(examples)))
    once = model.with_overrides({"epochs": 1, "train_examples": None})
    for _ in range(turns):
        with tempfile.TemporaryDirectory(prefix="pressbert-") as scratch:
            result = once.run(Job(once, task, 0, trial, {}), Path(scratch)).result
    num_trained = task.few_shot or len(train)
    return Speed(result.train_s / num_trained, result.eval_s / len(examples))


@dataclass(frozen=True)
class CellsEstimate:
    """The unfinished cells of a model on a task."""

    task: str
    model: str
    num_cells: int
    """Not finished; one a seed."""
    cell_s: float = 0.0
    """Of each: training, evaluation and what is measured beside them."""
    reason: str = ""
    """Why they cannot be run; empty if they can."""


def estimate_cells(cells: Sequence[Cell], *, root: Path, out: Path, with_noise: bool = True) -> Iterator[CellsEstimate]:
    """Estimate cells, model by model on each task; nothing is written to OUT.

    Args:
        cells: what would be run, task by task and model by model.
        root: data root.
        out: folder of leaderboard and results, whose finished cells take no time.
        with_noise: whether scores on noised input are measured, too.
    """
    tried: set[str] = set()
    for task, group in groupby(cells, key=lambda cell: cell.task):
        by_model = [(model, list(seeds)) for model, seeds in groupby(group, key=lambda cell: cell.model)]
        try:
            data = read_task(task, root)
        except SuiteError as error:
            for model, seeds in by_model:
                yield CellsEstimate(task.name, model.name, len(seeds), reason=f"{error.where}: {error.what}")
            continue
        for model, seeds in by_model:
            try:
                left = _num_unfinished(seeds, data, out)
                turns = 1 if model.name in tried else 2
                noised = mean(with_noise and takes_noise(task, cell.seed) for cell in seeds)
                seconds = _cell_s(model, task, data, turns=turns, noised=noised) if left else 0.0
            except SuiteError as error:
                yield CellsEstimate(task.name, model.name, len(seeds), reason=f"{error.where}: {error.what}")
            else:
                tried.update({model.name} if left else ())
                yield CellsEstimate(task.name, model.name, left, seconds)


def _num_unfinished(cells: Sequence[Cell], data: TaskData, out: Path) -> int:
    """Return the number of the unfinished seeds of a model on a task."""
    recipe = fingerprint(cells[0].model.recipe(cells[0].task, data))
    found = [read_finished(out, cell.key) for cell in cells]
    return sum(one is None or one.recipe_sha256 != recipe for one in found)


def _cell_s(model: Contestant, task: Task, data: TaskData, *, turns: int, noised: float) -> float:
    """Return the time of a cell, where NOISED is the share of a model's cells that are scored under noise."""
    speed = try_cell(model, task, data, turns=turns)
    seconds = speed.cell_s(data, model.finetune_config(task), few_shot=task.few_shot)
    if noised:
        seconds += noised * num_conditions(task) * min(MAX_EXAMPLES, len(data.eval.examples)) * speed.eval_s
    return seconds


def show_estimates(found: Sequence[CellsEstimate], console: Console, language: Language = "ko") -> None:
    """Print a row for each model on each task, and the sum."""
    texts = Texts(language, "report.estimate")
    table = Table(show_lines=False)
    for key in ("task", "model", "cells", "one", "all"):
        table.add_column(texts(key), overflow="fold", justify="left" if key in {"task", "model"} else "right")
    for one in found:
        times = (
            [format_duration(one.cell_s), format_duration(one.cell_s * one.num_cells)] if one.num_cells else ["", ""]
        )
        times = [texts("blocked"), ""] if one.reason else times
        table.add_row(*map(Text, (one.task, one.model, f"{one.num_cells}", *times)))
    console.print(table)
    for reason in dict.fromkeys(one.reason for one in found if one.reason):
        console.print(f"→ {reason}", markup=False, highlight=False, soft_wrap=True)
    able = [one for one in found if not one.reason]
    total = sum(one.num_cells * one.cell_s for one in able)
    counts = {"cells": sum(one.num_cells for one in able), "blocked": sum(one.num_cells for one in found if one.reason)}
    summary = texts("summary", time=format_duration(total), **counts)
    console.print(summary, markup=False, highlight=False, soft_wrap=True)
