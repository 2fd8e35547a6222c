"""Morphemes of sentences with their spans in the text, by kiwipiepy."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kiwipiepy import Kiwi, Token


@functools.cache
def analyzer() -> "Kiwi":
    """Load the analyzer without its dictionary of phrases: half the time and two thirds of the memory."""
    from kiwipiepy import Kiwi

    return Kiwi(num_workers=1, load_multi_dict=False, load_typo_dict=False)


@dataclass(frozen=True, slots=True)
class Morpheme:
    """A morpheme and the letters it comes from: `text[start:end]`; those of a contraction share theirs."""

    form: str
    tag: str
    start: int
    end: int
    is_known: bool = True
    """Whether it is in the dictionary and common enough there; a guess of the analyzer is not."""


def analyze(sentences: Sequence[tuple[int, str]]) -> Iterator[list[Morpheme]]:
    """Yield the morphemes of each sentence.

    Args:
        sentences: offset in the text, and the sentence itself.
    """
    # What the analyzer's own code points cannot hold.
    texts = (sentence.translate(REPLACED) for _, sentence in sentences)
    for (offset, _), tokens in zip(sentences, analyzer().tokenize(texts), strict=True):
        yield [Morpheme(t.form, t.tag, offset + t.start, offset + t.start + t.len, _is_known(t)) for t in tokens]


def _is_known(token: "Token") -> bool:
    if token.id == UNKNOWN_NOUN or token.tag == "Z_CODA":
        return False
    return token.len > 1 or token.tag not in {"NNG", "MM", "MAG", "IC"} or token.score > RARE_SYLLABLE


UNKNOWN_NOUN = 2
"""The analyzer's number for a common noun that it does not have; names have another one."""
RARE_SYLLABLE = -13.0
"""Log-probability below which a noun of one syllable is a remnant of something misspelt."""


REPLACED = dict.fromkeys(range(0xD800, 0xE000), "\ufffd") | {0: " "}


def score(texts: Sequence[str]) -> list[float]:
    """Return the log-probability that the analyzer gives to its best reading of each text."""
    found = analyzer().analyze((text.translate(REPLACED) for text in texts), top_n=1)
    return [float(readings[0][1]) for readings in found]
