"""A tiny BERT without pretraining: what fine-tuning alone gives."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from corpora.foundation.machine import no_file_bars
from downstream.finetuning.search import SEARCH_SEED, Grid, split_off_validation
from downstream.task import Split, Task, TaskData, TextExample
from eval.contestants.contestant import Job, Outcome
from eval.contestants.encoder import Trained
from pretraining.vocabulary.tokenizer import save_tokenizer
from pretraining.vocabulary.wordpiece import train_wordpiece

ARCHITECTURE = {"vocab_size": 8000, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}


class Scratch(Trained):
    """A randomly initialised BERT with a vocabulary trained on the task's training text, fine-tuned on the task."""

    kind = "scratch"
    takes_grid = True
    description = "scratch"

    @classmethod
    def from_recipe(cls, name: str, source: str, recipe: Mapping[str, Any]) -> Self:
        """Return the model of a finished cell."""
        return cls(name=name, finetune=recipe.get("finetune", {}), choice=recipe.get("grid", {}))

    def with_grid(self, grid: Grid, task: Task, train: Split, out: Path) -> Self:
        """Return this model with the settings selected by grid search; vocabulary and points see no validation text."""
        data = split_off_validation(task, train, seed=0)
        return self.tuned(str(build_scratch(data, out / "encoder", seed=SEARCH_SEED)), grid, task, train, out)

    def settings(self, task: Task) -> dict[str, Any]:
        """Return architecture and fine-tuning."""
        chosen = {"grid": self.choice} if self.choice else {}
        return {"architecture": ARCHITECTURE, "finetune": self.finetune_config(task).model_dump()} | chosen

    def code(self, task: Task) -> list[Any]:
        """Return what builds the encoder and what trains it."""
        return [*super().code(task), build_scratch, train_wordpiece]

    def run(self, job: Job, work: Path) -> Outcome:
        """Build the encoder and fine-tune it."""
        encoder = build_scratch(job.data, work / "encoder", seed=job.seed)
        return self.finetune_from(str(encoder), job, work / "model")


def build_scratch(data: TaskData, folder: Path, *, seed: int) -> Path:
    """Save a tiny randomly initialised BERT with a vocabulary trained on the task's training text.

    The same task, data and seed give the same bytes.
    """
    import torch
    from transformers import BertConfig, BertModel

    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = train_wordpiece(_training_texts(data), ARCHITECTURE["vocab_size"])
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=ARCHITECTURE["hidden_size"],
        num_hidden_layers=ARCHITECTURE["num_hidden_layers"],
        num_attention_heads=ARCHITECTURE["num_attention_heads"],
        intermediate_size=4 * ARCHITECTURE["hidden_size"],
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(seed)
    with no_file_bars():
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    return folder


def _training_texts(data: TaskData) -> list[str]:
    texts: list[str] = []
    for example in data.train.examples:
        if isinstance(example, TextExample):
            texts += [example.text, *getattr(example, "choices", ()), *([example.pair] if example.pair else [])]
        else:
            texts += [example.question, example.context]
    return list(dict.fromkeys(texts))


CONTESTANT = Scratch
