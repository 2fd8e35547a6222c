"""The baseline: a model of n-grams of syllables with stupid backoff.

Source: Brants et al. 2007.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

ORDER = 5
BACKOFF = 0.4
START = "\x02"


@dataclass(frozen=True)
class SyllableNgrams:
    """Counts of n-grams up to `ORDER`."""

    counts: Counter[str]
    total: int

    @classmethod
    def of(cls, sentences: Iterable[str]) -> "SyllableNgrams":
        """Count the n-grams of sentences."""
        counts: Counter[str] = Counter()
        total = 0
        for sentence in sentences:
            text = START * (ORDER - 1) + sentence
            total += len(sentence)
            for size in range(1, ORDER + 1):
                counts.update(text[k : k + size] for k in range(len(text) - size + 1))
        return cls(counts, total)

    def log_likelihood(self, sentence: str) -> float:
        """Return the score of a sentence; stupid backoff is no probability, but ranks as one."""
        text = START * (ORDER - 1) + sentence
        return sum(self._log_score(text[k - ORDER + 1 : k], text[k]) for k in range(ORDER - 1, len(text)))

    def _log_score(self, history: str, letter: str) -> float:
        penalty = 0.0
        while history:
            found, context = self.counts[history + letter], self.counts[history]
            if found and context:
                return penalty + math.log(found / context)
            history = history[1:]
            penalty += math.log(BACKOFF)
        return penalty + math.log((self.counts[letter] + 0.1) / (self.total + 1))
