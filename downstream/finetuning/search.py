"""Grid search over fine-tuning settings, scored on a validation part of the training split.

The validation part is split off by a seed and shares no text with the rest. Each point of the grid is trained on the
rest and scored on the validation part. Numbers of epochs are tried in ascending order; where more epochs do not score
higher, still larger numbers are skipped. This is early stopping by whole runs, because a schedule that decays to zero
fixes its last step in advance. A finished point is never computed again.

Source of the grid `paper`: Devlin et al. 2019, section 4.1 and appendix A.3.
"""

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corpora.foundation.config import validate
from corpora.foundation.errors import DataError, UsageError, suggest
from corpora.foundation.files import fingerprint
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import resolve
from downstream.finetuning.method import TrainingMethod
from downstream.finetuning.result import RESULT_FILE, Result
from downstream.finetuning.trainer import TrainingRun, finetune_recipe, train_and_evaluate
from downstream.substitutes import Division, shared_texts
from downstream.task import FinetuneConfig, QuestionExample, Split, Task, TaskData

logger = logging.getLogger(__name__)

VALIDATION = "carved"
"""Name of the validation part as a split. Saved results and recipes hold this word."""
VALIDATION_SHARE = 0.1
SEARCH_SEED = 0
"""Training seed at every point, independent of the seeds that the best point is trained with."""
UNDEFINED = float("-inf")
"""Rank of an undefined score: below every other."""


@dataclass(frozen=True)
class Grid:
    """Settings to choose from; each combination is a point."""

    batch_sizes: tuple[int, ...]
    peak_lrs: tuple[float, ...]
    epochs: tuple[float, ...]
    """In ascending order."""
    regularisations: tuple[float, ...] = (0.125, 0.25, 0.5, 1, 2, 4, 8)
    """Of linear baselines, as multiples of their default strength."""


GRIDS: Mapping[str, Grid] = {
    "paper": Grid((16, 32), (5e-5, 3e-5, 2e-5), (3, 4)),
    # An encoder of a few million parameters needs a learning rate ten times as high, and more epochs.
    "small": Grid((16, 32), (1e-4, 2e-4, 4e-4, 8e-4), (3, 5, 8)),
}


@dataclass(frozen=True)
class Choice:
    """Settings selected by grid search."""

    settings: dict[str, Any]
    """Of the best point: fields of `FinetuneConfig`."""
    record: dict[str, Any]
    """For a recipe: the points with their scores, the skipped ones, and the validation part."""


def get_grid(name: str) -> Grid:
    """Return the grid called NAME.

    Raises:
        UsageError: there is none; the nearest name is suggested.
    """
    if name not in GRIDS:
        raise UsageError("--grid", f"unknown grid '{name}'", suggest(name, GRIDS))
    return GRIDS[name]


def split_off_validation(task: Task, train: Split, *, seed: int, share: float = VALIDATION_SHARE) -> TaskData:
    """Divide a training split in two that share no text, or no article where articles are known.

    Args:
        task: whose split it is.
        train: the split.
        seed: decides which examples are split off.
        share: expected share of groups of texts in the validation part.

    Raises:
        DataError: one of the two would be empty.
    """

    def keys(example: Any) -> list[str]:
        if isinstance(example, QuestionExample):
            own = [example.title or example.context]
        elif task.derive is not None and "/" in example.id:
            own = [example.id.rpartition("/")[0], *shared_texts(example)]
        else:
            own = shared_texts(example)
        # The text is hashed: another wording would be another division.
        return [f"carved with seed {seed}: {key}" for key in own]

    parts = Division(task.train_split, {}, keys=keys, eval_share=share).parts(train.examples)
    if not parts["train"] or not parts["dev"]:
        what = f"its training split of {len(train.examples):,} examples cannot be divided into two parts"
        raise DataError(task.name, what, "choose the settings with --set instead of a grid")
    rest, validation = (
        Split(tuple(examples), fingerprint({"split": train.sha256, "ids": [example.id for example in examples]}))
        for examples in (parts["train"], parts["dev"])
    )
    return TaskData(rest, validation)


def validation_record(seed: int, data: TaskData) -> dict[str, Any]:
    """Return what a recipe says of the validation part of DATA, which was split off with SEED."""
    return {
        "carved_seed": seed,
        "carved_share": VALIDATION_SHARE,
        "carved_examples": len(data.eval.examples),
        "carved_sha256": data.eval.sha256,
    }


def choose(
    task: Task,
    encoder: str | Path,
    grid: Grid,
    *,
    out: Path,
    train: Split,
    validation_seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
    run: Callable[[TrainingRun], Result] = train_and_evaluate,
) -> Choice:
    """Score the points of a grid, except those that early stopping skips, and return the best.

    Args:
        task: what is trained.
        encoder: folder, hub id, or known encoder.
        grid: settings to choose from.
        out: folder of the points; finished ones are not computed again.
        train: the task's training split; no other split is read.
        validation_seed: of the validation part.
        overrides: settings that are the same at all points.
        run: trains a point and scores it.

    Raises:
        SuiteError: encoder, data or folder are unusable.
    """
    data = split_off_validation(task, train, seed=validation_seed)
    scored_on = replace(task, eval_split=VALIDATION)
    key = task.metrics[0].key
    points: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for batch_size in grid.batch_sizes:
        for peak_lr in grid.peak_lrs:
            before = UNDEFINED
            is_stopped = False
            for epochs in grid.epochs:
                settings = {"batch_size": batch_size, "peak_lr": peak_lr, "epochs": epochs}
                if is_stopped:
                    skipped.append(settings)
                    continue
                result = _score_point(scored_on, encoder, out, data, {**(overrides or {}), **settings}, run)
                value = result.metrics[key]
                points.append(settings | {key: value})
                rank = UNDEFINED if value is None else value
                is_stopped = rank <= before
                before = rank
    # The first of equal points.
    best = max(points, key=lambda point: UNDEFINED if point[key] is None else point[key])
    record = {
        "metric": key,
        **validation_record(validation_seed, data),
        "points": points,
        "left_out": skipped,
    }
    return Choice({**(overrides or {}), **{name: best[name] for name in ("batch_size", "peak_lr", "epochs")}}, record)


def _score_point(
    task: Task,
    encoder: str | Path,
    out: Path,
    data: TaskData,
    settings: dict[str, Any],
    run: Callable[[TrainingRun], Result],
) -> Result:
    """Train a point and keep only its result: a grid's models would fill the disk."""
    config = validate(FinetuneConfig, task.finetune.model_dump() | settings, f"{task.name} fine-tuning")
    encoder_folder = resolve(str(encoder))
    recipe = finetune_recipe(task, Path(str(encoder)).name, ModelFolder(encoder_folder).digest(), config, data)
    folder = out / fingerprint(recipe)[:16]
    method = TrainingMethod.from_config(config)
    result = run(TrainingRun(task, encoder_folder, folder, SEARCH_SEED, data, config, recipe, method))
    for path in folder.iterdir():
        if path.name != RESULT_FILE:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    logger.info("batch_size=%(batch_size)s peak_lr=%(peak_lr)s epochs=%(epochs)s", settings)
    return result
