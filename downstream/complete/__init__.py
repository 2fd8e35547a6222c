"""The rest of the word that is being written, or the next one.

    echo -n "이번 행사는 시민들의 많은 관" | python -m downstream.complete

>>> [completion.text for completion in complete("전라남도는 올해 예산을 확보했다고 밝", 1)]
['혔다.']

Candidates are eojeol that occur in news, after the two before; a masked language model that reads what is written ranks
them, with the word left blank. Texts of the model's own domain, news and public notices, are completed best.
"""

import functools
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from corpora.characters import nfc
from corpora.foundation.files import package_path
from downstream.complete.ngrams import EojeolNgrams
from downstream.writing.likelihood import MaskedScorer, bundled_scorer

NUM_CANDIDATES = 24
"""Candidates that the model ranks."""
WEIGHT = 0.35
"""Of the model's log-probability beside that of the counts; chosen on texts that the benchmark does not report on."""
SHARE_WRITTEN = 0.4
"""Of the words of the text itself, which repeat, in the mixture with the counts."""
LONGEST_READ = 4_000
"""Characters of the text that are read."""
PARTICLES = re.compile(
    r"(?:에서는|에서도|으로|에서|에게|까지|부터|이라고|라고|이며|이고|하고|하는|한다|했다|하며|하기|해|은|는|이|가|을|를|의|에|로|와|과|도|만)$"
)
"""What a noun may end in; it is offered without it, too."""
SHORTEST_STEM = 2
EOJEOL = re.compile(r"\S+")


@dataclass(frozen=True)
class Completion:
    """What may be written next: TEXT is appended to what is there."""

    text: str
    probability: float
    """Among the candidates, in [0, 1]."""


@dataclass(frozen=True)
class Completer:
    """Counts, and the model that ranks. Not for several threads at a time."""

    ngrams: EojeolNgrams
    scorer: MaskedScorer | None = field(default_factory=bundled_scorer)
    """None: the counts alone rank."""

    @classmethod
    def load(cls, path: Path | None = None, *, with_model: bool = True) -> "Completer":
        """Load counts, by default those that come with the package, and the bundled encoder."""
        ngrams = EojeolNgrams.load(path or package_path("downstream", "complete", "ngrams.safetensors"))
        return cls(ngrams, bundled_scorer() if with_model else None)

    def complete(self, text: str, num_completions: int = 3) -> list[Completion]:
        """Complete a text; see `downstream.complete.complete`."""
        if num_completions < 1:
            raise ValueError(f"num_completions={num_completions} is less than 1")
        composed = nfc(text[-LONGEST_READ:])
        words = EOJEOL.findall(composed.rpartition("\n")[2])
        begun = words.pop() if words and not composed[-1:].isspace() else ""
        found = self._mixed(EOJEOL.findall(composed), words, begun)
        if not found:
            return []
        scores = np.array([score for _, score in found])
        if self.scorer is not None and len(found) > 1:
            scores = scores + WEIGHT * self._model_scores(" ".join(words), [word for word, _ in found])
        chances = np.exp(scores - scores.max())
        chances /= chances.sum()
        order = np.argsort(-chances, kind="stable")[:num_completions]
        return [Completion(found[k][0][len(begun) :], float(chances[k])) for k in order.tolist()]

    def _mixed(self, written: list[str], words: list[str], begun: str) -> list[tuple[str, float]]:
        """Return candidates with log-scores: from the counts, and from what is written already."""
        counted = self.ngrams.candidates(words, begun, NUM_CANDIDATES)
        chances = {word: (1 - SHARE_WRITTEN) * math.exp(score) for word, score in counted}
        if begun:
            own = Counter(
                form for word in written for form in forms_of(word) if form.startswith(begun) and form != begun
            )
            total = sum(own.values())
            for word, number in own.items():
                chances[word] = chances.get(word, 0.0) + SHARE_WRITTEN * number / total
        best = sorted(chances.items(), key=lambda item: (-item[1], item[0]))[:NUM_CANDIDATES]
        return [(word, math.log(chance)) for word, chance in best if chance > 0]

    def _model_scores(self, before: str, words: list[str]) -> np.ndarray:
        """Return the log-probability of the first token of each word behind a text, (n,)."""
        assert self.scorer is not None
        return self.scorer.first_tokens(before, words)


def forms_of(word: str) -> tuple[str, ...]:
    """Return an eojeol as it is and without its particle or ending, punctuation left out."""
    bare = word.strip(".,!?\"'“”‘’()[]…·")
    stem = PARTICLES.sub("", bare)
    return (bare, stem) if SHORTEST_STEM <= len(stem) < len(bare) else (bare,)


@functools.cache
def bundled_completer() -> Completer:
    """Return the completer that comes with the package, loaded once."""
    return Completer.load()


def complete(text: str, num_completions: int = 3) -> list[Completion]:
    """Return what may be written next.

    Args:
        text: what is written so far; the end counts.
        num_completions: of them.

    Returns:
        The likeliest first, each to be appended to the text; none if nothing is known to follow.

    Raises:
        ValueError: no completion is asked for.
    """
    return bundled_completer().complete(text, num_completions)
