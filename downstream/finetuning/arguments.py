"""Settings of a training: those given as KEY=VALUE, and those of transformers' Trainer."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from corpora.foundation.errors import UsageError
from corpora.foundation.machine import Precision, training_precision
from downstream.task import FinetuneConfig
from pretraining.training.metrics import check_reporters

CHECKPOINT_STEPS = 500
"""Steps between checkpoints. Shorter runs are faster to repeat than their checkpoints are to write."""
LOG_LINES = 50
"""Lines of loss and learning rate in the metrics of a run."""


def parse_overrides(pairs: Sequence[str]) -> dict[str, Any]:
    """Turn `key=value` strings into a dict; the config validates the values.

    Raises:
        UsageError: a string has no `=`.
    """
    for pair in pairs:
        if "=" not in pair:
            raise UsageError("--set", f"'{pair}' is not KEY=VALUE", "write e.g. --set epochs=1")
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def finetuning_precision(asked: Precision | Literal["fp16"]) -> Literal["bf16", "fp16", "fp32"]:
    """Return the precision that matrices are multiplied in.

    Raises:
        UsageError: fp16 is asked for without a GPU.
    """
    import torch

    if asked != "fp16":
        return training_precision(asked)
    if not torch.cuda.is_available():
        raise UsageError("precision=fp16", "there is no GPU, and CPUs do not train in fp16", "use precision=auto")
    return "fp16"


def training_arguments(
    config: FinetuneConfig, checkpoints: Path, seed: int, *, num_features: int, reporters: Sequence[str] = ()
) -> Any:
    """Return transformers' `TrainingArguments`.

    Args:
        config: of the training.
        checkpoints: folder for checkpoints.
        seed: of data order and dropout.
        num_features: inputs in an epoch.
        reporters: what the loss is shown in, e.g. `tensorboard`.

    Raises:
        UsageError: the precision is not one of this machine, or a reporter is not installed.
    """
    import torch
    from transformers import TrainingArguments

    precision = finetuning_precision(config.precision)
    check_reporters(reporters)
    if "tensorboard" in reporters:
        # Checkpoints are deleted at the end, and their folder is the default.
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(checkpoints.parents[1] / "tensorboard"))
    steps = int(config.epochs * num_features / config.batch_size)
    return TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.peak_lr,
        lr_scheduler_type="linear",
        warmup_steps=config.warmup_ratio,
        weight_decay=config.weight_decay,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=not torch.cuda.is_available(),
        seed=seed,
        data_seed=seed,
        save_strategy="steps" if steps >= CHECKPOINT_STEPS else "no",
        save_steps=CHECKPOINT_STEPS,
        logging_steps=max(1, steps // LOG_LINES),
        report_to=list(reporters) or "none",
        disable_tqdm=not sys.stderr.isatty(),
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
    )
