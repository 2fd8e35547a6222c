"""Choose how to fine-tune an encoder on a task: by a grid, scored on a part of the training split and on nothing else.

    python -m downstream.grid nsmc --model klue/bert-base --out runs/nsmc --grid paper --seeds 3

A part of the training split is carved off by a seed, so that nothing of it shares a text with the rest. Each point of
the grid is trained on the rest and scored on that part. Numbers of epochs are tried in ascending order, and where more
of them are no better the still larger ones are left out (early stopping, by whole runs, since a learning rate that
decays to nothing knows its last step beforehand). The best point is then trained on the whole training split and scored
on the reported one, once for every seed.

Every point with its score, and those left out, are part of the recipe in `result.json`. A finished point lies under
`OUT/points` and is never computed again.

Source of the grid `paper`: Devlin et al. 2019, section 4.1 and appendix A.3.
"""

import json
import logging
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import validate
from corpora.foundation.errors import DataError, UsageError, suggest
from corpora.foundation.files import fingerprint
from corpora.official import data_root
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import resolve
from downstream.finetune import (
    RESULT_FILE,
    TaskData,
    complete,
    finetune,
    finetune_recipe,
    lesson_of,
    parse_overrides,
    read_task,
)
from downstream.finetuning.result import Result
from downstream.task import Division, FinetuneConfig, QuestionExample, Split, Task, get_task, shared_texts

logger = logging.getLogger(__name__)

CARVED = "carved"
"""Name of the split that a grid is scored on."""
CARVED_SHARE = 0.1
SEARCH_SEED = 0
"""Of the training at the points, whatever seeds the best one is trained with."""


@dataclass(frozen=True)
class Grid:
    """Settings to choose from; each combination is a point."""

    batch_sizes: tuple[int, ...]
    peak_lrs: tuple[float, ...]
    epochs: tuple[float, ...]
    """In ascending order."""


GRIDS: Mapping[str, Grid] = {
    "paper": Grid((16, 32), (5e-5, 3e-5, 2e-5), (3, 4)),
    # An encoder of a few million weights wants a rate ten times as high, and more passes.
    "small": Grid((16, 32), (1e-4, 2e-4, 4e-4, 8e-4), (3, 5, 8)),
}


@dataclass(frozen=True)
class Choice:
    """What a grid came to."""

    settings: dict[str, Any]
    """Of the best point: fields of `FinetuneConfig`."""
    record: dict[str, Any]
    """For a recipe: the points with their scores, those left out, and what they were scored on."""


def carve(task: Task, train: Split, *, seed: int, share: float = CARVED_SHARE) -> TaskData:
    """Divide a training split in two that share no text, or no article where that is known.

    Args:
        task: whose split it is.
        train: the split.
        seed: decides what goes where.
        share: expected share of groups of texts that are carved off.

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
        return [f"carved with seed {seed}: {key}" for key in own]

    parts = Division(task.train_split, {}, keys=keys, eval_share=share).parts(train.examples)
    if not parts["train"] or not parts["dev"]:
        what = f"its training split of {len(train.examples):,} examples does not fall into two parts"
        raise DataError(task.name, what, "choose the settings with --set instead of a grid")
    rest, carved = (
        Split(tuple(examples), fingerprint({"split": train.sha256, "ids": [example.id for example in examples]}))
        for examples in (parts["train"], parts["dev"])
    )
    return TaskData(rest, carved)


def choose(
    task: Task,
    encoder: str | Path,
    grid: Grid,
    *,
    out: Path,
    train: Split,
    carve_seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
) -> Choice:
    """Score the points of a grid, but for those that early stopping leaves out, and return the best.

    Args:
        task: what is trained.
        encoder: folder, hub id, or known encoder.
        grid: what to choose from.
        out: folder of the points; finished ones are not computed again.
        train: the task's training split, the only one that is looked at.
        carve_seed: of the part that points are scored on.
        overrides: settings that are the same at all points.

    Raises:
        SuiteError: encoder, data or folder are unusable.
    """
    data = carve(task, train, seed=carve_seed)
    scored_on = replace(task, eval_split=CARVED)
    key = task.metrics[0].key
    points: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    for batch_size in grid.batch_sizes:
        for peak_lr in grid.peak_lrs:
            before = float("-inf")
            is_stopped = False
            for epochs in grid.epochs:
                settings = {"batch_size": batch_size, "peak_lr": peak_lr, "epochs": epochs}
                if is_stopped:
                    left_out.append(settings)
                    continue
                result = _score_point(scored_on, encoder, out, data, {**(overrides or {}), **settings})
                value = result.metrics[key]
                points.append(settings | {key: value})
                worth = float("-inf") if value is None else value
                is_stopped = worth <= before
                before = worth
    # Of equals the first.
    best = max(points, key=lambda point: float("-inf") if point[key] is None else point[key])
    record = {
        "metric": key,
        "carved_seed": carve_seed,
        "carved_share": CARVED_SHARE,
        "carved_examples": len(data.eval.examples),
        "carved_sha256": data.eval.sha256,
        "points": points,
        "left_out": left_out,
    }
    return Choice({**(overrides or {}), **{name: best[name] for name in ("batch_size", "peak_lr", "epochs")}}, record)


def _score_point(task: Task, encoder: str | Path, out: Path, data: TaskData, settings: dict[str, Any]) -> Result:
    """Train a point and keep its result alone: a grid's models would fill the disk."""
    config = validate(FinetuneConfig, task.finetune.model_dump() | settings, f"{task.name} fine-tuning")
    recipe = finetune_recipe(task, Path(str(encoder)).name, ModelFolder(resolve(str(encoder))).digest(), config, data)
    folder = out / fingerprint(recipe)[:16]
    result = finetune(task, encoder, out=folder, seed=SEARCH_SEED, data=data, overrides=settings)
    for path in folder.iterdir():
        if path.name != RESULT_FILE:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    logger.info("batch_size=%(batch_size)s peak_lr=%(peak_lr)s epochs=%(epochs)s", settings)
    return result


def finetune_by_grid(
    task: str | Task,
    encoder: str | Path,
    *,
    out: Path,
    grid: Grid,
    seeds: Sequence[int] = (0,),
    carve_seed: int = 0,
    model: str | None = None,
    data: TaskData | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> list[Result]:
    """Choose settings on a part of the training split, then fine-tune with them and score on the reported split.

    Args:
        task: task or its name.
        encoder: folder, hub id, or known encoder.
        out: points lie under `points`, models under `seed-N`; what is finished there is not computed again.
        grid: what to choose from.
        seeds: of the trainings with the chosen settings.
        carve_seed: of the part that points are scored on.
        model: name in the results; default: the last part of ENCODER.
        data: the task's splits, or the data root.
        overrides: settings that are the same at all points.

    Returns:
        A result for each seed; its recipe has the choice under `grid`.

    Raises:
        SuiteError: encoder, data or folder are unusable.
    """
    task = get_task(task) if isinstance(task, str) else task
    splits = data if isinstance(data, TaskData) else read_task(task, data_root(data))
    choice = choose(
        task, encoder, grid, out=out / "points", train=splits.train, carve_seed=carve_seed, overrides=overrides
    )
    config = validate(FinetuneConfig, task.finetune.model_dump() | choice.settings, f"{task.name} fine-tuning")
    folder = resolve(str(encoder))
    recipe = finetune_recipe(task, model or Path(str(encoder)).name, ModelFolder(folder).digest(), config, splits) | {
        "grid": choice.record
    }
    return [
        complete(
            task,
            folder,
            out=out / f"seed-{seed}",
            seed=seed,
            splits=splits,
            config=config,
            recipe=recipe,
            lesson=lesson_of(config),
        )
        for seed in seeds
    ]


def get_grid(name: str) -> Grid:
    """Return the grid called NAME.

    Raises:
        UsageError: there is none; the nearest is named.
    """
    if name not in GRIDS:
        raise UsageError("--grid", f"unknown grid '{name}'", suggest(name, GRIDS))
    return GRIDS[name]


def main(argv: list[str] | None = None) -> int:
    """Choose and fine-tune from the command line; prints the choice and the scores as JSON."""
    parser = ArgumentParser("python -m downstream.grid", "Choose fine-tuning settings by a grid, then fine-tune.")
    parser.add_argument("task", help="e.g. nsmc, klue-nli-devsplit")
    parser.add_argument("--model", required=True, help="folder, hub id, or kpfbert, klue-bert, kobert, mbert")
    parser.add_argument("--out", type=Path, required=True, help="folder for points and models")
    parser.add_argument(
        "--grid", default="paper", help="paper (batch 16, 32; rate 5e-5, 3e-5, 2e-5; epochs 3, 4), small"
    )
    parser.add_argument("--seeds", type=int, default=1, help="trainings with the chosen settings")
    parser.add_argument("--carve-seed", type=int, default=0, help="of the part of the training split that is scored on")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="the same at all points")
    arguments = parser.parse(argv)
    if arguments.seeds < 1:
        raise UsageError("--seeds", f"{arguments.seeds} trainings", "give 1 or more")
    results = finetune_by_grid(
        arguments.task,
        arguments.model,
        out=arguments.out,
        grid=get_grid(arguments.grid),
        seeds=range(arguments.seeds),
        carve_seed=arguments.carve_seed,
        data=arguments.data,
        overrides=parse_overrides(arguments.set),
    )
    told = {
        "task": results[0].task,
        "finetune": results[0].recipe["finetune"],
        "grid": results[0].recipe["grid"],
        "metrics": [result.metrics for result in results],
    }
    sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
