"""Write headlines: beams of a network without those that invent a number or a name, and a sentence of the lead."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corpora.characters import nfc
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
    """In (0, 1]: geometric mean of the probabilities of its tokens; of an extractive one the probability that an editor
    would choose the sentence."""
    is_extractive: bool
    """Whether it is a sentence of the text, word for word."""


@dataclass(frozen=True)
class Candidate:
    """A generated headline and what the text does not support."""

    text: str
    score: float
    invented: tuple[str, ...]
    """Numbers and names; a headline with any is refused."""


class HeadlineWriter:
    """A loaded model; without a network it writes extractive headlines alone."""

    def __init__(self, generate: "Callable[[str, int], Sequence[tuple[str, float]]] | None" = None) -> None:
        """Use a network.

        Args:
            generate: body and number of beams → titles with their mean log-probability, the best first.
        """
        self._generate = generate
        self._summarizer = Summarizer.load()

    @classmethod
    def load(cls, folder: str | Path) -> "HeadlineWriter":
        """Load a folder that `python -m downstream.headline train` saved.

        Raises:
            CheckpointError: it is none.
        """
        network = HeadlineNetwork.load(Path(folder), read_settings(Path(folder)).max_title)
        return cls(lambda body, num_beams: network.generate(body, num_beams=num_beams))

    def candidates(self, article: str, num_beams: int = NUM_BEAMS) -> list[Candidate]:
        """Return the network's headlines, the most probable first, with what they invent; none without a network."""
        body = nfc(article).strip()
        if self._generate is None or not body:
            return []
        found: dict[str, Candidate] = {}
        facts = facts_of(body)
        for raw, log_probability in self._generate(body, num_beams):
            text = spaced_like(nfc(raw).strip(), body)
            if text and "[UNK]" not in text and text not in found:
                found[text] = Candidate(text, min(1.0, math.exp(log_probability)), facts.invented(text))
        return list(found.values())

    def extractive(self, article: str) -> Headline | None:
        """Return the best sentence of the lead; None if the article has no sentence."""
        sentences = self._summarizer.summarize(article, 1, explain=True).candidates[:LEAD]
        if not sentences:
            return None
        best = max(sentences, key=lambda sentence: sentence.score)
        return Headline(" ".join(best.text.split()), best.score, is_extractive=True)

    def write(self, article: str, count: int = 3, num_beams: int = NUM_BEAMS) -> list[Headline]:
        """Return at most COUNT generated headlines whose numbers and names are the text's, and an extractive one.

        Args:
            article: raw text.
            count: number of generated headlines.
            num_beams: of the search, at least `count`.

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
