"""`--dry-run`: the time of unfinished cells on this machine, from a trial of each model on a few examples of each task.

A trial trains one epoch and predicts, by the code that runs a cell; its seconds per example are multiplied by the
numbers of the task. Where a trial takes a few seconds, two of different sizes tell the time of an example from the time
that every run takes to start. What a model takes to load and save is left out, and so are the grid search of `--grid`
and the answers of teachers.
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
from downstream.task import Task, TaskData, read_task
from eval.cells.files import read_finished
from eval.cells.measurements import takes_noise
from eval.contestants.contestant import Cell, Contestant, Job
from eval.measures.noise import MAX_EXAMPLES, num_conditions
from pretraining.training.estimate import format_duration

TRIAL_EXAMPLES = 64
"""Examples that a fine-tuned model is trained on, and that it predicts, in its first trial."""
BASELINE_EXAMPLES = 1_000
"""The same of a model that is not fine-tuned."""
TRIAL_S = 5.0
"""A trial that ends sooner is repeated with more examples."""
GROWTH = 4
"""Factor of the examples from one trial to the next."""


@dataclass(frozen=True)
class Speed:
    """Seconds of one example; they depend on shapes and lengths, not on weights."""

    train_s: float
    """In one epoch."""
    eval_s: float

    def cell_s(self, model: Contestant, task: Task, data: TaskData) -> float:
        """Return the seconds of training and evaluation of a cell."""
        config = model.finetune_config(task)
        epochs = config.epochs if config else 1.0
        return epochs * model.num_trained(task, data) * self.train_s + len(data.eval.examples) * self.eval_s


def try_cell(model: Contestant, task: Task, data: TaskData, *, turns: int = 1) -> Speed:
    """Run MODEL on a few examples of a task, and on more of them until a trial takes `TRIAL_S`.

    Args:
        model: what is timed.
        task: whose examples.
        data: its splits.
        turns: trials at least; the first of two does not count, since it includes imports and compilation.

    Raises:
        SuiteError: an error that would stop the cell, too.
    """
    number = BASELINE_EXAMPLES if model.finetune_config(task) is None else TRIAL_EXAMPLES
    most = max(len(data.train.examples), len(data.eval.examples))
    trials = [_try_examples(model, task, data, number) for _ in range(turns)][-1:]
    while trials[-1].train_s + trials[-1].eval_s < TRIAL_S and number < most:
        number *= GROWTH
        trials.append(_try_examples(model, task, data, number))
    last, before = trials[-1], trials[-2] if len(trials) > 1 else _Trial(0, 0, 0.0, 0.0)
    return Speed(
        _slope(before.num_trained, before.train_s, last.num_trained, last.train_s),
        _slope(before.num_predicted, before.eval_s, last.num_predicted, last.eval_s),
    )


@dataclass(frozen=True)
class _Trial:
    """The numbers of examples, and the seconds that they took."""

    num_trained: int
    num_predicted: int
    train_s: float
    eval_s: float


def _try_examples(model: Contestant, task: Task, data: TaskData, number: int) -> _Trial:
    """Train MODEL on NUMBER examples for an epoch, and predict NUMBER."""
    once = model.trial()
    trial = _some_examples(task, data, number)
    with tempfile.TemporaryDirectory(prefix="pressbert-") as scratch:
        result = once.run(Job(once, task, 0, trial, {}), Path(scratch)).result
    num_trained = task.few_shot or len(trial.train.examples)
    return _Trial(num_trained, len(trial.eval.examples), result.train_s, result.eval_s)


def _slope(few: int, few_s: float, many: int, many_s: float) -> float:
    """Return the seconds of an example; of two trials that differ too little, from the larger one alone."""
    if many - few < many / 2 or many_s <= few_s:
        return many_s / many
    return (many_s - few_s) / (many - few)


def _some_examples(task: Task, data: TaskData, number: int) -> TaskData:
    """Return NUMBER examples of each split, or all if there are fewer."""
    # A few-shot task draws its examples itself; of a retrieval the texts that belong together are neighbours.
    train = data.train.examples if task.few_shot else subsample(data.train.examples, number)
    some = data.eval.examples
    examples = some[:number] if isinstance(task.family, Retrieval) else subsample(some, number)
    return TaskData(replace(data.train, examples=tuple(train)), replace(data.eval, examples=tuple(examples)))


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
    seconds = speed.cell_s(model, task, data)
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
