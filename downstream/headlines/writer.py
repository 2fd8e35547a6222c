"""Write headlines: candidates of a model without those that invent a number or a name, and a sentence of the lead."""

import functools
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from corpora.characters import nfc
from downstream.headlines.compression import WEIGHTS_FILE, Compressor
from downstream.headlines.facts import facts_of
from downstream.headlines.network import HeadlineNetwork
from downstream.headlines.settings import read_settings
from downstream.summaries.summarizer import Summarizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LEAD = 3
"""Sentences among which the extractive headline is chosen."""
NUM_BEAMS = 8
ATTACHED_LEFT, ATTACHED_RIGHT, ATTACHED_BOTH = ".,%!?:;)]}’”」』…℃", "([{‘“「『", "·/-~"
SPACE = re.compile(r"(?<=(.)) (?=(.))")
"""A space with the characters around it."""


@dataclass(frozen=True)
class Headline:
    """A headline for a text."""

    text: str
    score: float
    """In (0, 1]: of a shortened sentence the F1 that is expected with an editor's headline, over morphemes; of a
    generated one the geometric mean of the probabilities of its tokens; of an extractive one the probability that an
    editor would choose the sentence."""
    is_extractive: bool
    """Whether it is a sentence of the text, word for word."""


@dataclass(frozen=True)
class Candidate:
    """A headline of a model and what the text does not support."""

    text: str
    score: float
    invented: tuple[str, ...]
    """Numbers and names; a headline with any is refused."""


Propose: TypeAlias = "Callable[[str, int], Sequence[tuple[str, float]]]"
"""Body and number → at most as many titles with their scores, the best first."""


class HeadlineWriter:
    """A loaded model, by default the one that comes with the package and shortens sentences."""

    def __init__(self, propose: "Propose | None" = None) -> None:
        """Use a model; default: the one that comes with the package."""
        self._propose = propose or _shortening(Compressor.load())
        self._summarizer = Summarizer.load()

    @classmethod
    def load(cls, folder: str | Path) -> "HeadlineWriter":
        """Load a folder that `python -m downstream.headline train` saved.

        Raises:
            CheckpointError: it is none.
        """
        path = Path(folder)
        if (path / WEIGHTS_FILE).is_file():
            return cls(_shortening(Compressor.load(path)))
        network = HeadlineNetwork.load(path, read_settings(path).max_title)

        def generate(body: str, num_beams: int) -> list[tuple[str, float]]:
            found = network.generate(body, num_beams=num_beams)
            return [(spaced_like(nfc(title), body), min(1.0, math.exp(log_p))) for title, log_p in found]

        return cls(generate)

    def candidates(self, article: str, number: int = NUM_BEAMS) -> list[Candidate]:
        """Return the model's headlines, the best first, with what they invent."""
        body = nfc(article).strip()
        if not body:
            return []
        found: dict[str, Candidate] = {}
        facts = facts_of(body)
        for title, score in self._propose(body, number):
            text = title.strip()
            if text and "[UNK]" not in text and text not in found:
                found[text] = Candidate(text, score, facts.invented(text))
        return list(found.values())

    def extractive(self, article: str) -> Headline | None:
        """Return the best sentence of the lead; None if the article has no sentence."""
        sentences = self._summarizer.summarize(article, 1, explain=True).candidates[:LEAD]
        if not sentences:
            return None
        best = max(sentences, key=lambda sentence: sentence.score)
        return Headline(" ".join(best.text.split()), best.score, is_extractive=True)

    def write(self, article: str, count: int = 3, num_beams: int = NUM_BEAMS) -> list[Headline]:
        """Return at most COUNT headlines of the model whose numbers and names are the text's, and an extractive one.

        Args:
            article: raw text.
            count: headlines of the model.
            num_beams: candidates of the model, at least `count`; of a generating one also the beams.

        Raises:
            ValueError: an argument is out of range.
        """
        if not isinstance(article, str):
            raise ValueError(f"article must be a string, not {type(article).__name__}")
        if count < 1 or num_beams < count:
            raise ValueError(f"count={count}, num_beams={num_beams}: give 1 ≤ count ≤ num_beams")
        accepted = [found for found in self.candidates(article, num_beams) if not found.invented][:count]
        headlines = [Headline(found.text, found.score, is_extractive=False) for found in accepted]
        sentence = self.extractive(article)
        return [*headlines, sentence] if sentence else headlines


@functools.cache
def bundled_writer() -> HeadlineWriter:
    """Return the writer that comes with the package, loaded once."""
    return HeadlineWriter()


def _shortening(compressor: Compressor) -> Propose:
    return lambda body, number: [(found.text, found.expected_f1) for found in compressor.compress(body, number)]


def spaced_like(headline: str, text: str) -> str:
    """Remove the spaces that a tokenizer puts around punctuation, unless the text has them.

    >>> spaced_like("수출 3 . 5 % 늘어 … “ 최대 ”", "수출이 3.5% 늘어 “최대”라고 했다.")
    '수출 3.5% 늘어… “최대”'
    """

    def mend(found: re.Match[str]) -> str:
        left, right = found[1], found[2]
        if left.isalnum() and right.isalnum():
            return " "
        if left + right in text or left + " " + right in text:
            return "" if text.count(left + right) >= text.count(left + " " + right) else " "
        is_attached = right in ATTACHED_LEFT + ATTACHED_BOTH or left in ATTACHED_RIGHT + ATTACHED_BOTH
        return "" if is_attached else " "

    return SPACE.sub(mend, " ".join(headline.split()))
