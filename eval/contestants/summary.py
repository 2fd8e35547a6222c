"""Extractive summaries: rules, the editor's own choice, and summarizers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from corpora.foundation.files import sha256
from downstream.encoders.hub import resolve
from downstream.summaries.evaluation import RULES
from downstream.summaries.family import SentenceChoice, choose_sentences
from downstream.task import Task
from eval.contestants.contestant import Contestant, Fitted, Job, Outcome

SUMMARIZER = "summarizer"
"""The system that reads a model; all others are rules."""


class SummarySystem(Contestant):
    """A system that chooses sentences of an article."""

    kind = "summary"
    description = "summarizer"

    system: str = SUMMARIZER
    """As `downstream.summaries.family.choose_sentences` calls it."""
    encoder: str = ""
    """Folder or hub id of a summarizer; default: the one that comes with the package."""

    @property
    def source(self) -> str:
        """Folder or hub id; empty for the bundled one and for a rule."""
        return self.encoder

    @classmethod
    def from_recipe(cls, name: str, source: str, recipe: Mapping[str, Any]) -> Self:
        """Return the system of a finished cell."""
        return cls(name=name, encoder=source, system=recipe.get("system", SUMMARIZER))

    def applies_to(self, task: Task) -> bool:
        """Whether TASK is a choice of sentences."""
        return isinstance(task.family, SentenceChoice)

    def folder(self) -> Path | None:
        """Return the summarizer's folder; None for a rule and the bundled one."""
        return resolve(self.encoder) if self.encoder else None

    def settings(self, task: Task) -> dict[str, Any]:
        """Return system, files and code."""
        return {
            "system": self.system,
            "model_sha256": self._model_sha256(),
            "code_sha256": self.code_sha256(task),
        }

    def _model_sha256(self) -> str:
        """Return a digest of a summarizer's files; empty for a rule."""
        from downstream.summaries.summarizer import BUNDLED

        if self.system != SUMMARIZER:
            return ""
        folder = self.folder() or BUNDLED
        return sha256(*sorted(path for path in folder.rglob("*") if path.suffix in {".json", ".safetensors"}))

    def libraries(self) -> tuple[str, ...]:
        """Return what rules and summarizers compute with."""
        return "numpy", "kiwipiepy"

    def code(self, task: Task) -> list[Any]:
        """Return the rules and, for a summarizer, its model."""
        from downstream.summaries.summarizer import Summarizer

        return [choose_sentences, *RULES.values(), *([Summarizer] if self.system == SUMMARIZER else [])]

    def run(self, job: Job, work: Path) -> Outcome:
        """Choose sentences of the articles of the evaluation split."""
        return self.predict_and_score(job, Fitted(choose_sentences(self.system, self.encoder or None)))


CONTESTANT = SummarySystem
