"""Models as fine-tuning leaves them, with random weights, and what transformers says of them."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch

from corpora.foundation.files import SAMPLE_ROOT
from downstream.encoders.folder import TASK_KEY
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.families.span_qa import SpanQA
from downstream.finetune import load_finetuned
from downstream.runtimes.network import SEQUENCE_HEAD
from downstream.task import get_task
from pretraining.vocabulary.tokenizer import save_tokenizer

Folders: TypeAlias = Callable[..., Path]


def some_examples(task_name: str, count: int = 24) -> tuple[Any, ...]:
    task = get_task(task_name)
    return task.read_split(task.eval_split, SAMPLE_ROOT).examples[: 6 if isinstance(task.family, SpanQA) else count]


@pytest.fixture(scope="session")
def folders(standins: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Return a function that gives a model's folder for a task, as fine-tuning leaves it; weights are random."""
    base = tmp_path_factory.mktemp("models")

    def folder(task_name: str, kind: str = "klue-bert") -> Path:
        out = base / f"{task_name}-{kind}"
        if not out.is_dir():
            task = get_task(task_name)
            tokenizer = load_tokenizer(standins[kind])
            torch.manual_seed(1)
            model = load_model(standins[kind], tokenizer, task.family.auto_class, task.family.head_config())
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.ndim == 2:
                        parameter.mul_(4)  # fresh weights answer the same to everything
                if task.family.auto_class == SEQUENCE_HEAD:
                    batch = tokenizer([e.text for e in some_examples(task_name)], padding=True, return_tensors="pt")
                    model.classifier.bias -= model.eval()(**batch).logits.mean(0)
            setattr(model.config, TASK_KEY, task.name)
            model.save_pretrained(out)
            tokenizer.model_max_length = min(task.finetune.max_length, tokenizer.model_max_length)
            save_tokenizer(tokenizer, out)
        return out

    return folder


@dataclass(frozen=True)
class Reference:
    """A model's folder, some examples of its task, and what transformers' own classes give out for them."""

    folder: Path
    examples: tuple[Any, ...]
    outputs: list[np.ndarray[Any, Any]]
    """One row for each feature, computed by itself and without padding."""


@pytest.fixture(scope="session")
def reference(folders: Folders) -> Callable[..., Reference]:
    """Return a function that gives the reference for a task and a kind of encoder."""

    @functools.cache
    def make(task_name: str, kind: str = "klue-bert") -> Reference:
        folder, examples = folders(task_name, kind), some_examples(task_name)
        model, tokenizer, task = load_finetuned(folder)
        max_length = min(task.finetune.max_length, tokenizer.model_max_length)
        rows = []
        for feature in task.family.featurize(examples, tokenizer, max_length, with_labels=False):
            batch = {k: torch.tensor([v]) for k, v in feature.items() if not k.startswith("_")}
            with torch.inference_mode():
                rows.append(task.family.logits(model.eval(), batch)[0].numpy())
        return Reference(folder, examples, rows)

    return make
