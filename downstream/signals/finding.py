"""Signals: parts of a text with a kind, found by words and patterns."""

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from corpora.foundation.config import load_toml
from corpora.foundation.files import package_path

Part: TypeAlias = Literal["title", "text"]
LEXICON = package_path("downstream", "signals", "lexicon.toml")
PER = 1000
"""Characters that densities refer to."""


@dataclass(frozen=True)
class Signal:
    """A part of a title or text: `text[start:end]` in code points."""

    kind: str
    start: int
    end: int
    text: str
    part: Part = "text"
    """What the offsets count in."""
    detail: str = ""
    """What else is known, e.g. the speaker of a quote."""


@dataclass(frozen=True)
class Findings:
    """The signals of an article, in the order of its title and text, with figures."""

    signals: tuple[Signal, ...]
    measures: dict[str, float]
    """Figures by name: counts for 1,000 characters of each kind of signal, shares and similarities."""

    def of_kind(self, *kinds: str) -> tuple[Signal, ...]:
        """Return the signals of some kinds."""
        return tuple(signal for signal in self.signals if signal.kind in kinds)


@functools.cache
def lexicon(tool: str) -> Mapping[str, Sequence[str]]:
    """Return the words of a tool by kind."""
    words: dict[str, list[str]] = load_toml(LEXICON)[tool]
    return words


@functools.cache
def pattern_of(tool: str, kind: str, *, at_start: bool = True) -> re.Pattern[str]:
    """Return a pattern of the words of a kind, the longest first; AT_START: at the beginning of an eojeol."""
    words = sorted(lexicon(tool)[kind], key=len, reverse=True)
    # Blanks between words may be left out or doubled.
    joined = "|".join(re.escape(word).replace(r"\ ", r"[ \t]*") for word in words)
    return re.compile(rf"(?<![가-힣\w])(?:{joined})" if at_start else f"(?:{joined})")


def find(pattern: re.Pattern[str], text: str, kind: str, part: Part = "text") -> Iterator[Signal]:
    """Yield the matches of a pattern as signals."""
    for found in pattern.finditer(text):
        if found.end() > found.start():
            yield Signal(kind, found.start(), found.end(), found[0], part)


def in_order(signals: Iterable[Signal]) -> tuple[Signal, ...]:
    """Return signals in the order of title and text; of those of one kind that overlap, the first and longest stays."""
    kept: list[Signal] = []
    ends: dict[tuple[str, str], int] = {}
    for signal in sorted(signals, key=lambda s: (s.part != "title", s.start, -s.end)):
        key = signal.kind, signal.part
        if signal.start >= ends.get(key, 0):
            kept.append(signal)
            ends[key] = signal.end
    return tuple(kept)


def densities(signals: Sequence[Signal], kinds: Sequence[str], length: int) -> dict[str, float]:
    """Return the number of signals of each kind for 1,000 characters."""
    counts = Counter(signal.kind for signal in signals)
    return {kind: PER * counts[kind] / max(length, 1) for kind in kinds}


def check_text(text: object, name: str = "text") -> str:
    """Return a text if it is a string.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(text, str):
        raise ValueError(f"{name} is {text!r:.40}, not a string")
    return text
