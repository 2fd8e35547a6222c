"""Semantic textual similarity without fine-tuning: cosines of sentence vectors against the annotators' scores.

A prediction is the cosine on the task's scale (for scores from 0 to 5, five times the cosine), which is the target of
the cosine stage in training (Reimers and Gurevych 2019, section 4.2). Pearson and Spearman do not depend on the scale.
KLUE-STS's F1 does: its threshold of 3 is a cosine of 0.6, meaningful only for models trained on such scores. Nothing is
fitted to the evaluated pairs.

The lexical baselines use character n-grams: the cosine of TF-IDF vectors, and the Jaccard index.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from corpora.foundation.errors import DataUnavailableError, UsageError
from corpora.foundation.files import fingerprint
from corpora.foundation.machine import versions
from corpora.official import data_root
from downstream.embeddings.compact import as_int8, shorten
from downstream.embeddings.embedder import BATCH_SIZE, Embedder
from downstream.families.classification import Regression
from downstream.finetuning.result import Result, score
from downstream.metrics import FloatArray, pearson, spearman
from downstream.task import Split, Task, TextExample, get_task

logger = logging.getLogger(__name__)

NGRAMS = (1, 2)
"""Shortest and longest n-gram in characters; selected by the correlation on KorSTS's training split."""

Scores: TypeAlias = dict[str, dict[str, float | None]]
"""Task → metric → value; None where the metric is undefined."""


@dataclass(frozen=True)
class EvaluationSuite:
    """Similarity tasks that a model is scored on while it is trained."""

    tasks: Mapping[str, tuple[Task, Split]]
    unavailable: Mapping[str, str]
    """Task → why its data are missing."""

    @classmethod
    def from_names(cls, names: Sequence[str], root: Path) -> "EvaluationSuite":
        """Read the reported splits of tasks below the data root; missing ones are logged and listed."""
        tasks, unavailable = {}, {}
        for name in names:
            task = similarity_task(name)
            try:
                tasks[task.name] = task, task.read_split(task.eval_split, root)
            except DataUnavailableError as error:
                unavailable[task.name] = str(error)
                logger.warning("not scored on %s: %s", task.name, error)
        return cls(tasks, unavailable)

    def score(self, folder: Path) -> Scores:
        """Score a saved model on every task."""
        embedder = Embedder.load(folder)
        return {name: evaluate_split(task, split, embedder).metrics for name, (task, split) in self.tasks.items()}


def evaluate_embedder(
    task: str | Task,
    model: Embedder | str | Path | None = None,
    *,
    data: Path | None = None,
    name: str | None = None,
    batch_size: int = BATCH_SIZE,
    dimension: int | None = None,
    is_int8: bool = False,
) -> Result:
    """Score an embedder on the reported split of a similarity task.

    Args:
        task: task or its name: `korsts`, `korsts-dev`, `klue-sts`, …
        model: embedder, its folder or hub id, or any encoder for mean pooling; default: the bundled embedder.
        data: data root; default: `PRESSBERT_DATA` or the cache.
        name: name of the model in the result; default: its folder's.
        batch_size: texts per batch.
        dimension: number of first components that are compared; default: all.
        is_int8: compare vectors of 8-bit integers.

    Returns:
        The result: the task's metrics, Pearson and Spearman, with a prediction for each pair.

    Raises:
        UsageError: the task is not a similarity task.
        DataUnavailableError: the split is missing locally and not downloadable.
        CheckpointError: the model is missing or unusable.
    """
    task, split = _read(task, data)
    embedder = model if isinstance(model, Embedder) else Embedder.load(model)
    return evaluate_split(task, split, embedder, name=name, batch_size=batch_size, dimension=dimension, is_int8=is_int8)


def evaluate_split(
    task: Task,
    split: Split,
    embedder: Embedder,
    *,
    name: str | None = None,
    batch_size: int = BATCH_SIZE,
    dimension: int | None = None,
    is_int8: bool = False,
) -> Result:
    """Score an embedder on loaded pairs; see `evaluate_embedder`."""

    def cosines(one: Sequence[str], two: Sequence[str]) -> FloatArray:
        vectors = embedder.encode([*one, *two], batch_size=batch_size)
        vectors = shorten(vectors, dimension) if dimension else vectors
        compared = (as_int8(vectors) if is_int8 else vectors).astype(np.float64)  # (2N, D)
        first, second = compared[: len(one)], compared[len(one) :]
        lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1) if is_int8 else 1.0
        return np.asarray((first * second).sum(axis=1) / lengths)

    recipe = (
        ({"dimension": dimension} if dimension else {})
        | ({"precision": "int8"} if is_int8 else {})
        | {
            "embedder_sha256": embedder.sha256,
            "max_length": embedder.max_length,
            "versions": versions("torch", "transformers", "tokenizers"),
        }
    )
    return _score(
        task,
        split,
        cosines,
        name or embedder.folder.name,
        recipe,
        device=embedder.device.partition(":")[0],
        num_parameters=embedder.num_parameters,
    )


def evaluate_lexical(task: str | Task, measure: str, *, data: Path | None = None) -> Result:
    """Score a lexical baseline on the same pairs.

    Args:
        task: as for `evaluate_embedder`.
        measure: `tfidf` or `jaccard`, keys of `LEXICAL`.
        data: data root.

    Raises:
        UsageError: the task is not a similarity task.
        DataUnavailableError: the split is missing locally and not downloadable.
    """
    return lexical_split(*_read(task, data), measure)


def lexical_split(task: Task, split: Split, measure: str) -> Result:
    """Score a lexical baseline on loaded pairs; see `evaluate_lexical`."""
    recipe = {"measure": measure, "ngrams": list(NGRAMS), "versions": versions("scikit-learn", "numpy")}
    return _score(task, split, LEXICAL[measure], f"lexical-{measure}", recipe, device="cpu")


def _read(task: str | Task, data: Path | None) -> tuple[Task, Split]:
    task = similarity_task(task)
    return task, task.read_split(task.eval_split, data_root(data))


def similarity_task(task: str | Task) -> Task:
    """Return a similarity task with Pearson and Spearman added to its metrics.

    Raises:
        UsageError: the task is not a similarity task.
    """
    task = get_task(task) if isinstance(task, str) else task
    if not isinstance(task.family, Regression):
        raise UsageError(
            task.name, "its examples are not pairs with a similarity score", "give a task such as korsts or klue-sts"
        )
    keys = {metric.key for metric in task.metrics}
    missing = tuple(metric for metric in (pearson, spearman) if metric.key not in keys)
    return dataclasses.replace(task, metrics=task.metrics + missing)


def _score(
    task: Task,
    split: Split,
    similarities: Callable[[Sequence[str], Sequence[str]], FloatArray],
    name: str,
    recipe: dict[str, Any],
    *,
    device: str,
    num_parameters: int = 0,
) -> Result:
    assert isinstance(task.family, Regression)
    pairs: Sequence[TextExample] = split.examples
    started = time.perf_counter()
    values = similarities([pair.text for pair in pairs], [pair.pair or "" for pair in pairs])  # (N,)
    low, high = task.family.low, task.family.high
    recipe = {"model": name, "task": task.name, "data_sha256": split.sha256} | recipe
    return score(
        task,
        split,
        [float(low + (high - low) * value) for value in values],
        model=name,
        seed=0,
        data_sha256=split.sha256,
        recipe=recipe,
        recipe_sha256=fingerprint(recipe),
        train_s=0.0,
        eval_s=time.perf_counter() - started,
        device=device,
        num_parameters=num_parameters,
    )


def tfidf_similarities(one: Sequence[str], two: Sequence[str]) -> FloatArray:
    """Return the cosines (N,) of the TF-IDF vectors of character n-grams; the pairs are the corpus."""
    from downstream.finetuning.ngrams import vectorizer

    weights = vectorizer(*NGRAMS).fit([*one, *two])
    product = weights.transform(one).multiply(weights.transform(two))
    return np.asarray(product.sum(axis=1), dtype=np.float64).ravel()


def jaccard_similarities(one: Sequence[str], two: Sequence[str]) -> FloatArray:
    """Return the Jaccard index (N,) of the character n-grams of each pair, spaces removed; 0 without any n-gram."""
    return np.array([_jaccard(_ngrams(a), _ngrams(b)) for a, b in zip(one, two, strict=True)], dtype=np.float64)


def _jaccard(one: set[str], two: set[str]) -> float:
    return len(one & two) / max(1, len(one | two))


def _ngrams(text: str) -> set[str]:
    characters = "".join(text.split())
    return {characters[k : k + n] for n in range(NGRAMS[0], NGRAMS[1] + 1) for k in range(len(characters) - n + 1)}


LEXICAL: Mapping[str, Callable[[Sequence[str], Sequence[str]], FloatArray]] = {
    "tfidf": tfidf_similarities,
    "jaccard": jaccard_similarities,
}
