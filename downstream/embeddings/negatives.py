"""Hard negatives: for every article the article of the same day that is most like it, but not of the same story."""

from collections.abc import Sequence

import numpy as np

NGRAMS = (2, 4)
"""Shortest and longest character n-grams."""
READ = 1000
"""Characters of a text that are compared."""


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
