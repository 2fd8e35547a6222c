"""Neighbours of texts.

Hard negatives: for every article the article of the same day that is most like it, but not of the same story. Pairs
without labels: every text with some of those that are most like it.
"""

from collections.abc import Sequence

import numpy as np

from downstream.embeddings.pooling import Vectors

NGRAMS = (2, 4)
"""Shortest and longest character n-grams."""
READ = 1000
"""Characters of a text that are compared."""
RANKS = (1, 2, 3, 4, 6, 9, 14, 25, 50)
"""Ranks of the neighbours that make pairs: near ones more often, so that there are similar and different pairs."""
BLOCK = 1024
"""Texts that are compared with all others at a time."""


def same_day_negatives(days: Sequence[str], texts: Sequence[str], max_likeness: float) -> list[int | None]:
    """Return for each of N texts the number of the most similar one of its day, None without one.

    Args:
        days: N days; empty if unknown, which gives no negatives.
        texts: N texts.
        max_likeness: cosine of the TF-IDF of character n-grams above which two texts may tell the same story.
    """
    from downstream.finetuning.ngrams import vectorizer

    of_day: dict[str, list[int]] = {}
    for number, day in enumerate(days):
        if day:
            of_day.setdefault(day, []).append(number)
    negatives: list[int | None] = [None] * len(texts)
    if max(map(len, of_day.values()), default=0) < 2:
        return negatives
    weights = vectorizer(*NGRAMS).fit_transform([text[:READ] for text in texts])
    for numbers in of_day.values():
        likeness = (weights[numbers] @ weights[numbers].T).toarray()
        np.fill_diagonal(likeness, np.inf)
        likeness[likeness > max_likeness] = -np.inf
        for number, row in zip(numbers, likeness, strict=True):
            best = int(row.argmax())
            if np.isfinite(row[best]):
                negatives[number] = numbers[best]
    return negatives


def similar_pairs(vectors: Vectors, per_text: int, seed: int = 0) -> list[tuple[int, int]]:
    """Return pairs of texts, each text with PER_TEXT of its neighbours, in random order and without repetitions.

    The neighbours of a text are drawn from `RANKS` of the other texts by cosine. Semantic-search sampling in Thakur et
    al. 2021, “Augmented SBERT”, section 3.1, takes the nearest ones alone.

    Args:
        vectors: (N, D), of length 1.
        per_text: at most the number of `RANKS`.
        seed: of the ranks, the order of the pairs, and of the two texts of each.
    """
    generator = np.random.default_rng(seed)
    ranks = np.array([rank for rank in RANKS if rank < len(vectors)], dtype=int)
    per_text = min(per_text, len(ranks))
    pairs: set[tuple[int, int]] = set()
    for first in range(0, len(vectors) if per_text else 0, BLOCK):
        block = vectors[first : first + BLOCK]
        own = np.arange(first, first + len(block))
        cosines = block @ vectors.T
        cosines[np.arange(len(block)), own] = -np.inf
        best = np.argpartition(-cosines, ranks[-1] - 1, axis=1)[:, : ranks[-1]]
        best = np.take_along_axis(best, np.argsort(-np.take_along_axis(cosines, best, 1), 1, "stable"), 1)  # (B, rank)
        for number, neighbours in zip(own.tolist(), best, strict=True):
            for other in neighbours[generator.choice(ranks, per_text, replace=False) - 1].tolist():
                pairs.add((min(number, other), max(number, other)))
    found = np.array(sorted(pairs), dtype=int).reshape(-1, 2)
    return [(a, b) for a, b in generator.permuted(generator.permutation(found), axis=1).tolist()]
