"""Sentence embedders, scored on similarity and retrieval tasks by the cosine of their vectors."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from corpora.foundation.files import sha256
from downstream.embeddings import pipeline, pooling, similarity
from downstream.embeddings.embedder import Embedder, bundled_embedder, model_files
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import resolve
from downstream.families.classification import Regression
from downstream.families.retrieval import Retrieval, rank_neighbours
from downstream.task import Prediction, Task, TextExample
from eval.contestants.contestant import Contestant, Fitted, Job, Outcome


class SentenceEmbedder(Contestant):
    """An embedder as it is, trained before and elsewhere."""

    kind = "embedder"
    description = "embedder"
    takes_folder = True

    encoder: str = ""
    """Folder or hub id; default: the embedder that comes with the package."""
    prompt: str = ""
    """Written before every text, such as the `query: ` of multilingual E5."""

    @property
    def is_bundled(self) -> bool:
        """Whether the embedder comes with the package."""
        return not self.encoder

    @property
    def source(self) -> str:
        """Folder or hub id; empty for the bundled one."""
        return self.encoder

    @classmethod
    def from_recipe(cls, name: str, source: str, recipe: Mapping[str, Any]) -> Self:
        """Return the embedder of a finished cell."""
        return cls(name=name, encoder=source, prompt=recipe.get("prompt", ""))

    def applies_to(self, task: Task) -> bool:
        """Whether TASK scores pairs of texts or their ranking."""
        return isinstance(task.family, Regression | Retrieval) and task.few_shot is None

    def folder(self) -> Path:
        """Return the embedder's folder."""
        return resolve(self.encoder) if self.encoder else bundled_embedder()

    def settings(self, task: Task) -> dict[str, Any]:
        """Return the digest of its files, and its prompt if it has one."""
        digest = {"embedder_sha256": sha256(*model_files(self.folder()))}
        return digest | ({"prompt": self.prompt} if self.prompt else {})

    def libraries(self) -> tuple[str, ...]:
        """Return what computes."""
        return "torch", "transformers", "tokenizers"

    def code(self, task: Task) -> list[Any]:
        """Return what computes vectors and their likeness."""
        return [Embedder, pipeline.read_settings, pooling.PooledEncoder, similarity.evaluate_split]

    def run(self, job: Job, work: Path) -> Outcome:
        """Score the pairs of the evaluation split."""
        embedder = Embedder.load(self.encoder or None)
        fitted = Fitted(
            partial(similarities, embedder, job.task, prompt=self.prompt),
            num_parameters=embedder.num_parameters,
            size_bytes=ModelFolder(embedder.folder).weights_bytes,
            on_cpu=lambda: partial(
                similarities, Embedder.load(embedder.folder, device="cpu"), job.task, prompt=self.prompt
            ),
        )
        return self.predict_and_score(job, fitted, device=embedder.device.partition(":")[0])


def similarities(embedder: Embedder, task: Task, pairs: Sequence[TextExample], *, prompt: str = "") -> list[Prediction]:
    """Score pairs by the cosine of their vectors, on the task's scale; see `downstream.embeddings.similarity`.

    On retrieval tasks the examples are single texts, and the result is the rank of the nearest one of the same group.
    """
    if isinstance(task.family, Retrieval):
        return [
            *rank_neighbours(
                embedder.encode([prompt + text.text for text in pairs]), [str(text.label) for text in pairs]
            )
        ]
    assert isinstance(task.family, Regression)
    texts = [prompt + text for text in (*(pair.text for pair in pairs), *(pair.pair or "" for pair in pairs))]
    vectors = embedder.encode(texts).astype(np.float64)  # (2N, D)
    cosines = (vectors[: len(pairs)] * vectors[len(pairs) :]).sum(axis=1)
    low, high = task.family.low, task.family.high
    return [float(low + (high - low) * cosine) for cosine in cosines]


CONTESTANT = SentenceEmbedder
