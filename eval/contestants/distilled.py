"""Encoders that learn a task from the outputs of fine-tuned models, by `downstream.distill --student`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from corpora.foundation.errors import RecipeError
from corpora.foundation.files import sha256
from downstream.distill import distill, student_config
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import resolve
from downstream.finetuning.distillation import DistillConfig, TeacherEnsemble, distillation_loss, read_unlabelled
from downstream.finetuning.trainer import finetune_recipe
from downstream.task import Task, TaskData
from eval.contestants.contestant import Contestant, Job, Outcome
from eval.contestants.encoder import Trained


class Distilled(Trained):
    """An encoder that is fine-tuned on the outputs of fine-tuned models, on labelled and on unlabelled texts."""

    kind = "distilled"
    description = "distilled"
    takes_folder = True
    reads_tokens = True

    encoder: str = "pressbert-mini"
    """Folder, hub id or known key of what the student starts from."""
    teachers: dict[str, list[Path]] = Field(default_factory=dict)
    """Fine-tuned folders by the names of their tasks; other tasks are left out."""
    unlabelled: list[Path] = Field(default_factory=list)
    """Texts, or pairs of texts, without labels."""
    logits: Path | None = None
    """Folder in which the teachers' logits stay for further seeds."""

    @property
    def is_bundled(self) -> bool:
        """Whether everything comes with the package; teachers do not."""
        return False

    @property
    def source(self) -> str:
        """Folder, hub id or known key of what the student starts from."""
        return self.encoder

    @classmethod
    def from_recipe(cls, name: str, source: str, recipe: Mapping[str, Any]) -> Self:
        """Return the student of a finished cell, without its teachers, of which a recipe holds the digests alone."""
        student = cls(name=name, finetune=recipe.get("finetune", {}))
        return student.model_copy(update={"encoder": source}) if source else student

    def applies_to(self, task: Task) -> bool:
        """Whether there are teachers of TASK."""
        return super().applies_to(task) and task.name in self.teachers

    def teachers_of(self, task: Task) -> list[Path]:
        """Return the folders of the teachers of TASK.

        Raises:
            RecipeError: none is named.
        """
        if not self.teachers.get(task.name):
            fix = "name their folders under `teachers` of its entry"
            raise RecipeError(f"model {self.name} on {task.name}", "its teachers are not known", fix)
        return self.teachers[task.name]

    def finetune_config(self, task: Task) -> DistillConfig:
        """Return all settings of the student on TASK.

        Raises:
            RecipeError: a setting is unknown, out of range, or none of a student.
        """
        return student_config(task, self.overrides(task))

    def folder(self) -> Path:
        """Return the folder of what the student starts from."""
        return resolve(self.encoder)

    def recipe(self, task: Task, data: TaskData) -> dict[str, Any]:
        """Return the recipe of fine-tuning, and which teachers and texts the student learns from."""
        digest = ModelFolder(self.folder()).digest()
        recipe = finetune_recipe(task, self.name, digest, self.finetune_config(task), data)
        return recipe | self.settings(task)

    def settings(self, task: Task) -> dict[str, Any]:
        """Return the digests of teachers and texts."""
        teachers = [ModelFolder(folder).digest() for folder in self.teachers_of(task)]
        texts = {"unlabelled_sha256": sha256(*self.unlabelled)} if self.unlabelled else {}
        return {"teachers_sha256": teachers} | texts

    def code(self, task: Task) -> list[Any]:
        """Return what trains, and what teaches."""
        return [*super().code(task), distill, distillation_loss, TeacherEnsemble]

    def trial(self) -> Contestant:
        """Return this student without unlabelled texts, which keeps no logits."""
        return super().trial().model_copy(update={"unlabelled": [], "logits": None})

    def num_trained(self, task: Task, data: TaskData) -> int:
        """Return the number of labelled and unlabelled examples in an epoch."""
        texts = read_unlabelled(task, self.unlabelled, data)[0] if self.unlabelled else []
        return super().num_trained(task, data) + len(texts)

    def run(self, job: Job, work: Path) -> Outcome:
        """Train the student."""
        folder = work / "model"
        result = distill(
            *self.teachers_of(job.task),
            out=folder,
            student=self.encoder,
            model=self.name,
            seed=job.seed,
            data=job.data,
            unlabelled=self.unlabelled,
            logits=self.logits,
            overrides=self.overrides(job.task),
        )
        return self.outcome_of(result, job, folder)


CONTESTANT = Distilled
