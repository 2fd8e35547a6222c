"""Fine-tune an encoder on a task, score it, and save a plain transformers folder with its model card.

    python -m downstream.finetune nsmc --model klue/bert-base --out runs/nsmc [--dry-run]

Running the command again continues from the last checkpoint, and does nothing once the run is finished. The state
after the last step is scored: no checkpoint is selected on the reported split.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.config import validate
from corpora.official import data_root
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import resolve
from downstream.finetuning.arguments import parse_overrides
from downstream.finetuning.method import TrainingMethod
from downstream.finetuning.prediction import load_finetuned, predict
from downstream.finetuning.result import Result
from downstream.finetuning.trainer import TrainingRun, estimate_run, finetune_recipe, train_and_evaluate
from downstream.task import FinetuneConfig, Task, TaskData, get_task, read_task
from pretraining.training.metrics import check_reporters

__all__ = ["TaskData", "finetune", "load_finetuned", "main", "parse_overrides", "predict", "read_task"]


def finetune(
    task: str | Task,
    encoder: str | Path,
    *,
    out: Path,
    model: str | None = None,
    seed: int = 0,
    data: TaskData | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    reporters: Sequence[str] = (),
) -> Result:
    """Fine-tune ENCODER on TASK and score it on the task's evaluation split.

    Args:
        task: task or its name, e.g. `"nsmc"`.
        encoder: folder, hub id, or key of `downstream.encoders.hub.ENCODERS`.
        out: folder for the fine-tuned model, its card and `result.json`; an unfinished run there is continued.
        model: name in the result; default: the last part of ENCODER.
        seed: of head initialisation, data order and dropout.
        data: the task's splits if already read, or the data root; default: `PRESSBERT_DATA` or the cache.
        overrides: fields of `FinetuneConfig` that differ from the task's.
        reporters: what the loss is shown in, beside `metrics.jsonl`: `tensorboard`, `wandb`.

    Returns:
        The scored result, as saved in OUT.

    Raises:
        SuiteError: the encoder, the data or the folder is unusable.
    """
    return train_and_evaluate(
        plan(task, encoder, out=out, model=model, seed=seed, data=data, overrides=overrides, reporters=tuple(reporters))
    )


def plan(
    task: str | Task,
    encoder: str | Path,
    *,
    out: Path,
    model: str | None = None,
    seed: int = 0,
    data: TaskData | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    reporters: tuple[str, ...] = (),
) -> TrainingRun:
    """Read data and settings of a fine-tuning, and train nothing yet; see `finetune`.

    Raises:
        SuiteError: the encoder, the data or a setting is unusable.
    """
    task = get_task(task) if isinstance(task, str) else task
    config = validate(FinetuneConfig, task.finetune.model_dump() | dict(overrides or {}), f"{task.name} fine-tuning")
    splits = data if isinstance(data, TaskData) else read_task(task, data_root(data))
    folder = resolve(str(encoder))
    recipe = finetune_recipe(task, model or Path(str(encoder)).name, ModelFolder(folder).digest(), config, splits)
    return TrainingRun(task, folder, out, seed, splits, config, recipe, TrainingMethod.from_config(config), reporters)


def main(argv: list[str] | None = None) -> int:
    """Fine-tune from the command line; prints the scores as JSON."""
    parser = ArgumentParser("python -m downstream.finetune", "Fine-tune an encoder on a task and score it.")
    parser.add_argument("task", help="e.g. nsmc, klue-nli, nsmc-sample")
    parser.add_argument("--model", required=True, help="folder, hub id, or a key such as kpfbert")
    parser.add_argument("--out", type=Path, required=True, help="folder for the fine-tuned model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting, e.g. --set epochs=1"
    )
    parser.add_argument("--dry-run", action="store_true", help="time one micro-batch; estimate time and memory")
    parser.add_argument(
        "--report-to", nargs="+", default=[], metavar="NAME", help="show the loss in tensorboard or wandb, if installed"
    )
    arguments = parser.parse(argv)
    check_reporters(arguments.report_to)
    run = plan(
        arguments.task,
        arguments.model,
        out=arguments.out,
        seed=arguments.seed,
        data=arguments.data,
        overrides=parse_overrides(arguments.set),
        reporters=tuple(arguments.report_to),
    )
    if arguments.dry_run:
        sys.stdout.write(estimate_run(run).table())
        return EXIT_DONE
    result = train_and_evaluate(run)
    sys.stdout.write(json.dumps({"task": result.task, "metrics": result.metrics}, ensure_ascii=False) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
