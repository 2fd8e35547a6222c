"""Pretrained encoders, fine-tuned on every task."""

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from corpora.foundation.config import validate
from corpora.foundation.machine import no_file_bars
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import is_bundled, resolve
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.finetune import finetune
from downstream.finetuning.prediction import load_finetuned, predict
from downstream.finetuning.result import Result
from downstream.finetuning.search import Grid, choose
from downstream.finetuning.trainer import METRICS_FILE, finetune_recipe, train_and_evaluate
from downstream.task import FinetuneConfig, Split, Task, TaskData
from eval.contestants.contestant import Contestant, Fitted, Job, Outcome
from eval.contestants.curves import read_curve

NUM_CHECKED = 2
"""Examples that an encoder predicts with an untrained head when it is checked."""


class Trained(Contestant):
    """A model that is fine-tuned by `downstream.finetune`."""

    is_deterministic = False

    finetune: dict[str, Any] = Field(default_factory=dict)
    """Fine-tuning settings that differ from the task's own."""
    task_finetune: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Further ones on single tasks, by their names; a task of the embedded sample has its own name."""
    sample_finetune: dict[str, Any] = Field(default_factory=dict)
    """What replaces `finetune` on the embedded sample."""
    choice: dict[str, Any] = Field(default_factory=dict)
    """How grid search selected the settings; the record of `downstream.grid.choose`."""

    def overrides(self, task: Task) -> dict[str, Any]:
        """Return the settings on TASK that differ from the task's own."""
        general = self.sample_finetune if task.is_sample and self.sample_finetune else self.finetune
        return general | self.task_finetune.get(task.name, {})

    def with_overrides(self, overrides: dict[str, Any]) -> Self:
        """Return this model with other settings on every task."""
        update = {
            "finetune": self.finetune | overrides,
            "task_finetune": {name: settings | overrides for name, settings in self.task_finetune.items()},
            "sample_finetune": (self.sample_finetune or self.finetune) | overrides,
        }
        return self.model_copy(update=update)

    def finetune_config(self, task: Task) -> FinetuneConfig:
        """Return all fine-tuning settings on TASK.

        Raises:
            RecipeError: a setting is unknown or out of range.
        """
        values = task.finetune.model_dump() | self.overrides(task)
        return validate(FinetuneConfig, values, f"model {self.name} on {task.name}")

    def tuned(self, encoder: str, grid: Grid, task: Task, train: Split, out: Path) -> Self:
        """Return this model with the settings that grid search selects for a folder, hub id or known key."""
        choice = choose(task, encoder, grid, out=out, train=train, overrides=self.overrides(task))
        changes = {"finetune": choice.settings, "task_finetune": {}, "sample_finetune": {}, "choice": choice.record}
        return self.model_copy(update=changes)

    def libraries(self) -> tuple[str, ...]:
        """Return what trains and computes."""
        return "torch", "transformers", "tokenizers", "accelerate"

    def code(self, task: Task) -> list[Any]:
        """Return training, loading, reading and family."""
        return [train_and_evaluate, predict, load_model, load_tokenizer, task.read, task.family]

    def finetune_from(self, encoder: str, job: Job, folder: Path) -> Outcome:
        """Fine-tune a folder, hub id or known key on the task of a cell, and score it."""
        overrides = self.overrides(job.task)
        result = finetune(
            job.task, encoder, out=folder, model=self.name, seed=job.seed, data=job.data, overrides=overrides
        )
        return self.outcome_of(result, job, folder)

    def outcome_of(self, result: Result, job: Job, folder: Path) -> Outcome:
        """Return what a trained FOLDER and its RESULT are as a cell."""
        result = result.model_copy(update={"recipe": job.recipe, "recipe_sha256": job.recipe_sha256})
        max_length = self.finetune_config(job.task).max_length
        return Outcome(result, lambda: _load(folder, job.task, max_length), read_curve(folder / METRICS_FILE))


def _load(folder: Path, task: Task, max_length: int) -> Fitted:
    """Load a fine-tuned model on the device that trained it."""
    import torch

    with no_file_bars():
        model, tokenizer, _ = load_finetuned(folder)
    longest = min(max_length, tokenizer.model_max_length)

    def predict_on(device: str) -> Any:
        return partial(predict, model.to(device), tokenizer, task.family, max_length=longest)

    return Fitted(
        predict_on("cuda" if torch.cuda.is_available() else "cpu"),
        num_parameters=sum(p.numel() for p in model.base_model.parameters()),
        size_bytes=ModelFolder(folder).weights_bytes,
        on_cpu=lambda: predict_on("cpu"),
    )


class Encoder(Trained):
    """A pretrained encoder."""

    kind = "encoder"
    takes_folder = True
    takes_grid = True
    reads_tokens = True

    encoder: str = ""
    """Folder, hub id or known key; default: the name."""
    encoder_sha256: str = ""
    """Digest of the encoder's files if known: finished cells then count although the encoder is deleted."""

    @property
    def is_bundled(self) -> bool:
        """Whether the encoder comes with the package."""
        return is_bundled(self.name)

    @property
    def source(self) -> str:
        """Folder, hub id or known key; of an encoder known by its digest the folder's name, as it may be deleted."""
        found = self.encoder or self.name
        return Path(found).name if self.encoder_sha256 else found

    @classmethod
    def from_recipe(cls, name: str, source: str, recipe: Mapping[str, Any]) -> Self:
        """Return the encoder of a finished cell."""
        return cls(name=name, encoder=source, finetune=recipe.get("finetune", {}), choice=recipe.get("grid", {}))

    def with_grid(self, grid: Grid, task: Task, train: Split, out: Path) -> Self:
        """Return this encoder with the settings selected by grid search."""
        return self.tuned(self.encoder or self.name, grid, task, train, out)

    def folder(self) -> Path:
        """Return the encoder's folder."""
        return resolve(self.encoder or self.name)

    def recipe(self, task: Task, data: TaskData) -> dict[str, Any]:
        """Return the recipe of `downstream.finetune`, with the record of a grid search."""
        digest = self.encoder_sha256 or ModelFolder(self.folder()).digest()
        recipe = finetune_recipe(task, self.name, digest, self.finetune_config(task), data)
        return recipe | self.settings(task)

    def settings(self, task: Task) -> dict[str, Any]:
        """Return the record of a grid search."""
        return {"grid": self.choice} if self.choice else {}

    def check(self, task: Task, data: TaskData | None) -> tuple[str, dict[str, object]]:
        """Load the encoder under the head of TASK, and predict a few examples with it."""
        folder = self.folder()
        # It warns of every head that is still random, which is expected here.
        logging.getLogger("transformers").setLevel(logging.ERROR)
        with no_file_bars():
            tokenizer = load_tokenizer(folder)
            model = load_model(folder, tokenizer, task.family.auto_class, task.family.head_config())
        if data is not None:
            examples = data.eval.examples[:NUM_CHECKED]
            longest = min(task.finetune.max_length, tokenizer.model_max_length)
            predictions = predict(model, tokenizer, task.family, examples, max_length=longest)
            assert len(predictions) == len(examples)
        num_parameters = sum(p.numel() for p in model.base_model.parameters())
        return "encoder", {"parameters": num_parameters, "tokens": len(tokenizer)}

    def run(self, job: Job, work: Path) -> Outcome:
        """Fine-tune the encoder."""
        return self.finetune_from(self.encoder or self.name, job, work / "model")


CONTESTANT = Encoder
