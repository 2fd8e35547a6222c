"""Words of titles that distinguish events: nouns, names and numbers.

>>> found = next(words_of(["얀센 백신 예약 18시간 만에 90만명분 마감"]))
>>> sorted(found.numbers)
['18시', '90만']
>>> "얀센" in found.nouns
True
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from apps.stories.keywords import NOUNS, analyse

NAMES = frozenset({"NNP", "SL", "SH"})
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?[가-힣%\uff05]?")


@dataclass(frozen=True)
class Words:
    """The words of a title."""

    nouns: frozenset[str]
    """Nouns of two letters or more, names included."""
    names: frozenset[str]
    """Proper nouns, Latin and Hanja words."""
    numbers: frozenset[str]
    """Numbers with the letter behind them, as in 45년 and 90만."""

    @property
    def all(self) -> frozenset[str]:
        """Nouns and numbers; the two never have an element in common."""
        return self.nouns | self.numbers


def words_of(texts: Sequence[str]) -> Iterator[Words]:
    """Yield the words of each text."""
    for text, tokens in zip(texts, analyse(texts), strict=True):
        forms = [(token.form.casefold(), token.tag) for token in tokens if token.tag in NOUNS]
        yield Words(
            nouns=frozenset(form for form, tag in forms if len(form) > 1 or tag in ("SH", "NNP")),
            names=frozenset(form for form, tag in forms if tag in NAMES and len(form) > 1),
            numbers=frozenset(number.replace(",", "") for number in NUMBER.findall(text)),
        )
