"""Choose fine-tuning settings by grid search on a part of the training split, then fine-tune with them.

    python -m downstream.grid nsmc --model klue/bert-base --out runs/nsmc --grid paper --seeds 3

The best point is trained on the whole training split and scored on the reported one, once for every seed. Every point
with its score, and the skipped ones, are part of the recipe in `result.json`. Points are saved under `OUT/points`.
See `downstream.finetuning.search`.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import validate
from corpora.foundation.errors import UsageError
from corpora.official import data_root
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import resolve
from downstream.finetuning.arguments import parse_overrides
from downstream.finetuning.method import TrainingMethod
from downstream.finetuning.result import Result
from downstream.finetuning.search import GRIDS, Grid, choose, get_grid
from downstream.finetuning.trainer import TrainingRun, finetune_recipe, train_and_evaluate
from downstream.task import FinetuneConfig, Task, TaskData, get_task, read_task

__all__ = ["GRIDS", "Grid", "choose", "finetune_by_grid", "get_grid", "main"]


def finetune_by_grid(
    task: str | Task,
    encoder: str | Path,
    *,
    out: Path,
    grid: Grid,
    seeds: Sequence[int] = (0,),
    validation_seed: int = 0,
    model: str | None = None,
    data: TaskData | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> list[Result]:
    """Choose settings on a part of the training split, then fine-tune with them and score on the reported split.

    Args:
        task: task or its name.
        encoder: folder, hub id, or known encoder.
        out: points are saved under `points`, models under `seed-N`; finished ones are not computed again.
        grid: settings to choose from.
        seeds: of the trainings with the chosen settings.
        validation_seed: of the part of the training split that points are scored on.
        model: name in the results; default: the last part of ENCODER.
        data: the task's splits, or the data root.
        overrides: settings that are the same at all points.

    Returns:
        A result for each seed; its recipe holds the choice under `grid`.

    Raises:
        SuiteError: encoder, data or folder are unusable.
    """
    task = get_task(task) if isinstance(task, str) else task
    splits = data if isinstance(data, TaskData) else read_task(task, data_root(data))
    choice = choose(
        task,
        encoder,
        grid,
        out=out / "points",
        train=splits.train,
        validation_seed=validation_seed,
        overrides=overrides,
    )
    config = validate(FinetuneConfig, task.finetune.model_dump() | choice.settings, f"{task.name} fine-tuning")
    folder = resolve(str(encoder))
    name = model or Path(str(encoder)).name
    recipe = finetune_recipe(task, name, ModelFolder(folder).digest(), config, splits) | {"grid": choice.record}
    method = TrainingMethod.from_config(config)
    return [
        train_and_evaluate(TrainingRun(task, folder, out / f"seed-{seed}", seed, splits, config, recipe, method))
        for seed in seeds
    ]


def main(argv: list[str] | None = None) -> int:
    """Choose and fine-tune from the command line; prints the choice and the scores as JSON."""
    parser = ArgumentParser("python -m downstream.grid", "Choose fine-tuning settings by grid search, then fine-tune.")
    parser.add_argument("task", help="e.g. nsmc, klue-nli-devsplit")
    parser.add_argument("--model", required=True, help="folder, hub id, or a key such as kpfbert")
    parser.add_argument("--out", type=Path, required=True, help="folder for points and models")
    parser.add_argument(
        "--grid", default="paper", help="paper (batch 16, 32; learning rate 5e-5, 3e-5, 2e-5; epochs 3, 4), small"
    )
    parser.add_argument("--seeds", type=int, default=1, help="number of trainings with the chosen settings")
    parser.add_argument(
        "--carve-seed", type=int, default=0, help="seed of the part of the training split that points are scored on"
    )
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting that is the same at all points"
    )
    arguments = parser.parse(argv)
    if arguments.seeds < 1:
        raise UsageError("--seeds", f"{arguments.seeds} trainings", "give 1 or more")
    results = finetune_by_grid(
        arguments.task,
        arguments.model,
        out=arguments.out,
        grid=get_grid(arguments.grid),
        seeds=range(arguments.seeds),
        validation_seed=arguments.carve_seed,
        data=arguments.data,
        overrides=parse_overrides(arguments.set),
    )
    output = {
        "task": results[0].task,
        "finetune": results[0].recipe["finetune"],
        "grid": results[0].recipe["grid"],
        "metrics": [result.metrics for result in results],
    }
    sys.stdout.write(json.dumps(output, ensure_ascii=False) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
