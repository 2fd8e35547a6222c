"""Folders of `downstream.finetune`, scored on their own task by the backend that a newsroom would use."""

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import bundled
from downstream.finetuning.prediction import predict
from downstream.runtimes.predictor import Predictor
from downstream.task import Task
from eval.contestants.contestant import Contestant, Fitted, Job, Outcome

TORCH = "torch"
BACKEND_LIBRARIES = ("numba", "onnxruntime")
"""What other backends than torch compute with, as far as they are installed."""


class Finetuned(Contestant):
    """A fine-tuned model as it is, trained before and elsewhere."""

    kind = "finetuned"
    description = "finetuned"
    takes_folder = True
    reads_tokens = True

    encoder: str = ""
    """Folder; default: the classifier that comes with the package."""
    runtime: str = TORCH
    """Backend, as `downstream.runtime` calls it."""

    @property
    def source(self) -> str:
        """Folder; empty for the bundled one."""
        return self.encoder

    @classmethod
    def from_recipe(cls, name: str, source: str, recipe: Mapping[str, Any]) -> Self:
        """Return the model of a finished cell."""
        return cls(name=name, encoder=source, runtime=recipe.get("runtime", TORCH))

    def applies_to(self, task: Task) -> bool:
        """Whether the model was fine-tuned on TASK."""
        return super().applies_to(task) and ModelFolder(self.folder()).task_name == task.name

    def folder(self) -> Path:
        """Return the model's folder."""
        return Path(self.encoder) if self.encoder else bundled("classifier")

    def settings(self, task: Task) -> dict[str, Any]:
        """Return weights and backend."""
        return {"weights_sha256": ModelFolder(self.folder()).digest(), "runtime": self.runtime}

    def libraries(self) -> list[str]:
        """Return what computes."""
        others = [] if self.runtime == TORCH else filter(importlib.util.find_spec, BACKEND_LIBRARIES)
        return ["torch", "transformers", "tokenizers", *others]

    def code(self, task: Task) -> list[Any]:
        """Return prediction, reading and family."""
        return [predict, Predictor, task.read, task.family]

    def run(self, job: Job, work: Path) -> Outcome:
        """Predict the evaluation split by the backend."""
        predictor = Predictor.load(self.folder(), self.runtime)
        known, backend = predictor.finetuned, predictor.runtime.name
        # An exported file is cached under a name of its own.
        size = known.size_bytes if backend == TORCH else None
        fitted = Fitted(predictor.predict, num_parameters=known.num_parameters, size_bytes=size)
        outcome = self.predict_and_score(job, fitted)
        noted = outcome.result.environment | {"runtime": backend}
        return replace(outcome, result=outcome.result.model_copy(update={"environment": noted}))


CONTESTANT = Finetuned
