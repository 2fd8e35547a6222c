"""Learnt vectors of character n-grams: a small network without an encoder (after Joulin et al. 2017, fastText).

A text is the mean of the vectors of its n-grams, which are hashed into a table. Vectors and a linear classifier are
trained together by stochastic gradient descent. To compare it, add to `leaderboard.toml`:

    [models.ngram-vectors]
    kind = "ngram_vectors"
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.feature_extraction.text import HashingVectorizer

from downstream.families.classification import Classification
from downstream.task import Prediction, Task, TextExample
from eval.contestants.contestant import Baseline, Fitted

SETTINGS: dict[str, Any] = {
    "ngrams": [1, 4],
    "hash_bits": 16,
    "dimensions": 16,
    "epochs": 10,
    "batch_size": 16,
    "peak_lr": 0.5,
}


class NgramVectors(Baseline):
    """Averaged vectors of hashed character n-grams under a linear classifier; deterministic."""

    kind = "ngram_vectors"

    def applies_to(self, task: Task) -> bool:
        """Whether TASK has a label for a single text."""
        return isinstance(task.family, Classification) and not task.takes_pairs

    def constants(self) -> dict[str, Any]:
        """Return everything that decides the predictions."""
        return SETTINGS

    def libraries(self) -> tuple[str, ...]:
        """Return what hashes and learns."""
        return "numpy", "scikit-learn", "scipy"

    def fit(self, task: Task, train: Sequence[TextExample]) -> Fitted:
        """Train vectors and classifier on the labels of a training split."""
        assert isinstance(task.family, Classification)
        names = task.family.labels
        hasher = HashingVectorizer(
            analyzer="char_wb",
            ngram_range=tuple(SETTINGS["ngrams"]),
            n_features=1 << SETTINGS["hash_bits"],
            lowercase=False,
            alternate_sign=False,
            norm="l1",  # rows sum to one, so that a product with the vectors is their mean
        )
        shares = hasher.transform([example.text for example in train])  # (N, buckets)
        labels = np.array([names.index(str(example.label)) for example in train])
        vectors, weights = _train(shares, labels, num_labels=len(names))

        def predict(examples: Sequence[TextExample]) -> list[Prediction]:
            logits = hasher.transform([example.text for example in examples]) @ vectors @ weights  # (N, C)
            return [names[k] for k in logits.argmax(axis=1)]

        return Fitted(predict, num_parameters=vectors.size + weights.size)


def _train(shares: Any, labels: Any, *, num_labels: int) -> tuple[Any, Any]:
    """Return the vectors of n-grams, float (buckets, D), and the weights of the classifier, float (D, C).

    Args:
        shares: sparse float (N, buckets); share of each n-gram in a text.
        labels: int (N,).
        num_labels: C.
    """
    generator = np.random.default_rng(0)
    dimensions, size = SETTINGS["dimensions"], SETTINGS["batch_size"]
    vectors = generator.uniform(-1 / dimensions, 1 / dimensions, (shares.shape[1], dimensions))
    weights = np.zeros((dimensions, num_labels))
    targets = np.eye(num_labels)[labels]
    starts = [(epoch, start) for epoch in range(SETTINGS["epochs"]) for start in range(0, len(labels), size)]
    for step, (_, start) in enumerate(starts):
        if start == 0:
            order = generator.permutation(len(labels))
        batch = order[start : start + size]
        seen = np.unique(shares[batch].indices)
        texts = shares[batch][:, seen]
        means = texts @ vectors[seen]  # (B, D)
        error = softmax(means @ weights, axis=1) - targets[batch]  # (B, C)
        learning_rate = SETTINGS["peak_lr"] * (1 - step / len(starts))
        gradient = texts.T @ (error @ weights.T)
        weights -= learning_rate * (means.T @ error)
        vectors[seen] -= learning_rate * gradient
    return vectors, weights


CONTESTANT = NgramVectors
