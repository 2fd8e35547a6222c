"""Load a fine-tuned folder and predict with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from downstream.encoders.folder import ModelFolder
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.finetuning.batches import LENGTH_MULTIPLE, FeatureDataset, PaddingCollator
from downstream.task import Family, Features, Prediction, Task, get_task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_finetuned(folder: Path) -> tuple[Any, "PreTrainedTokenizerBase", Task]:
    """Load a folder that `downstream.finetune` saved: model, tokenizer and the task it was trained on.

    Raises:
        CheckpointError: the folder is no finished fine-tuning.
    """
    model = ModelFolder(folder)
    task = get_task(model.task_name)
    tokenizer = load_tokenizer(folder)
    if model.has_bilstm:
        from downstream.finetuning import bilstm

        return bilstm.load(folder, task.family), tokenizer, task
    return load_model(folder, tokenizer, task.family.auto_class, task.family.head_config()), tokenizer, task


def predict(
    model: Any,
    tokenizer: "PreTrainedTokenizerBase",
    family: Family,
    examples: Sequence[Any],
    *,
    max_length: int,
    batch_size: int = 64,
) -> list[Prediction]:
    """Predict EXAMPLES in batches of similar length; predictions are in the order of the examples."""
    features = family.featurize(examples, tokenizer, max_length, with_labels=False)
    logits = compute_logits(model, tokenizer, family, features, batch_size=batch_size)
    return family.decode(logits, features, examples)


def compute_logits(
    model: Any,
    tokenizer: "PreTrainedTokenizerBase",
    family: Family,
    features: Sequence[Features],
    *,
    batch_size: int = 64,
    title: str = "predict",
    precision: Literal["bf16", "fp16", "fp32"] = "fp32",
) -> list[Any]:
    """Return the output of the model's head for every input, one array each, in their order.

    Args:
        model: left in evaluation mode.
        tokenizer: the model's; it pads.
        family: of the task; it defines the logits.
        features: inputs; those of similar length are computed together.
        batch_size: inputs that are computed together.
        title: of the progress bar.
        precision: that matrices are multiplied in.
    """
    import torch
    from tqdm import tqdm

    has_16_bits = precision != "fp32"
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16

    order = sorted(range(len(features)), key=lambda k: -len(features[k]["input_ids"]))
    outputs: list[Any] = [None] * len(features)
    inputs = FeatureDataset(features)
    collate = PaddingCollator(tokenizer, LENGTH_MULTIPLE if has_16_bits else 1)
    model.eval()
    with torch.inference_mode(), torch.autocast(model.device.type, dtype, enabled=has_16_bits):
        for first in tqdm(range(0, len(order), batch_size), desc=title, unit="batch", disable=None, leave=False):
            chosen = order[first : first + batch_size]
            batch = {key: value.to(model.device) for key, value in collate([inputs[k] for k in chosen]).items()}
            logits = family.logits(model, batch).float().cpu().numpy()  # (B, …)
            for k, row in zip(chosen, logits, strict=True):
                outputs[k] = np.asarray(row)
    return outputs
