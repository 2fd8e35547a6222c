"""Time and memory of the published comparison, from a few hundred examples of each task on this machine.

    python -m benchmarks.replication --tokenizer FOLDER --data DATA

A BERT of the base size with random weights takes a few steps on examples of each task; weights do not change the time.
Models differ in their vocabulary alone: its gradients and optimizer states are memory, and a few per cent of the time.
Where a training file is missing, the task's substitute or sample is measured. Times are scaled to the published number
of examples and the task's settings; evaluation is included.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import DataUnavailableError
from corpora.foundation.machine import cpu_name
from corpora.official import data_root
from downstream.encoders.hub import ENCODERS
from downstream.encoders.tokenizers import load_tokenizer
from downstream.finetuning.batches import FeatureDataset, LengthGroupedSampler, PaddingCollator, subsample
from downstream.task import Split, Task, all_tasks, get_task
from eval.contestants.contestant import load_leaderboard
from eval.replicate import REPLICATE_TOML

NUM_EXAMPLES = 320
STEPS = 2
"""Timed steps, after one that is not."""
EVAL_BATCH = 64
STATE_BYTES = 16
"""Of a parameter: its weight, gradient and two states of AdamW in single precision."""


def main(argv: list[str] | None = None) -> int:
    """Measure, and print a Markdown table."""
    parser = ArgumentParser("python -m benchmarks.replication", "Time and memory of the published comparison.")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of a tokenizer, e.g. kpfBERT's")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    arguments = parser.parse(argv)
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else f"{cpu_name()}, {torch.get_num_threads()} threads"
    plan = load_leaderboard(REPLICATE_TOML)
    sys.stdout.write(f"{name}\n\n| task | measured on | steps | s per step | hours per cell | peak memory, GB |\n")
    sys.stdout.write("| --- | --- | ---: | ---: | ---: | ---: |\n")
    total = 0.0
    for task_name in plan.tasks:
        task = get_task(task_name)
        measured_on, split = _examples(task, data_root(arguments.data))
        row, hours = _measure(task, split, arguments.tokenizer, device)
        sys.stdout.write(f"| `{task_name}` | `{measured_on}` | {row}\n")
        sys.stdout.flush()
        total += hours
    cells = plan.seeds * len(plan.models)
    sys.stdout.write(f"\n{total:.1f} hours for a model on all tasks with one seed, {total * cells:.0f} for all.\n\n")
    for key in plan.models:
        extra = (ENCODERS[key].vocab_size - ENCODERS["kpfbert"].vocab_size) * 768 * STATE_BYTES / 1e9
        sys.stdout.write(f"- {key}: {extra:+.2f} GB\n")
    return EXIT_DONE


def _examples(task: Task, root: Path) -> tuple[str, Split]:
    """Return the training split of a task, or of what stands in for it, and its name."""
    stand_ins = [other for other in all_tasks().values() if other.base == task.name]
    for one in (task, *sorted(stand_ins, key=lambda other: other.is_sample)):
        try:
            return one.name, one.read_split(one.train_split, root)
        except DataUnavailableError:
            continue
    raise DataUnavailableError(task.name, "no examples at all", "download its files")


def _measure(task: Task, split: Split, tokenizer_folder: Path, device: str) -> tuple[str, float]:
    """Return a row of the table, and the hours of a cell."""
    import torch

    tokenizer = load_tokenizer(tokenizer_folder)
    settings = task.finetune
    examples = subsample(split.examples, NUM_EXAMPLES)
    features = task.family.featurize(examples, tokenizer, settings.max_length, with_labels=True)
    step_s, eval_s = _times(task, features, tokenizer, device)
    inputs = len(features) / len(examples)
    steps = round(settings.epochs * inputs * task.num_examples[task.train_split] / settings.batch_size)
    eval_batches = inputs * task.num_examples[task.eval_split] / EVAL_BATCH
    hours = (steps * step_s + eval_batches * eval_s) / 3600
    memory = f"{torch.cuda.max_memory_allocated() / 1e9:.1f}" if device == "cuda" else "–"
    return f"{steps:,} | {step_s:.2f} | {hours:.2f} | {memory} |", hours


def _times(task: Task, features: list[Any], tokenizer: Any, device: str) -> tuple[float, float]:
    """Return the seconds of a training step and of a batch of evaluation."""
    import torch
    import transformers

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    config = transformers.BertConfig(vocab_size=len(tokenizer), **task.family.head_config())
    model: Any = getattr(transformers, task.family.auto_class).from_config(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.finetune.peak_lr)
    dataset, collate = FeatureDataset(features), PaddingCollator(tokenizer)
    order = list(LengthGroupedSampler(dataset, task.finetune.batch_size, 0))

    def batches(size: int) -> list[dict[str, Any]]:
        # Spread over the epoch, whose first batch is the longest.
        starts = range(0, max(1, len(order) - size + 1), max(size, len(order) // (STEPS + 1)))
        rows = ([dataset[k] for k in order[first : first + size]] for first in starts)
        return [{key: value.to(device) for key, value in collate(some).items()} for some in rows]

    def train(batch: dict[str, Any]) -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def predict(batch: dict[str, Any]) -> None:
        with torch.inference_mode():
            model(**batch)

    return _mean_time(train, batches(task.finetune.batch_size)), _mean_time(predict, batches(EVAL_BATCH)[:1])


def _mean_time(action: Callable[[dict[str, Any]], None], batches: list[dict[str, Any]]) -> float:
    """Return the seconds of an action on a batch; the first one warms up and is not counted."""
    import torch

    times = []
    for batch in [batches[0], *batches[: STEPS + 1]]:
        started = time.perf_counter()
        action(batch)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return sum(times[1:]) / len(times[1:])


if __name__ == "__main__":
    run_command(main)
