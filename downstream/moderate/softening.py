"""Softer wordings of a comment: heavy words are masked, replaced by neutral ones, or left out, until it passes.

Single words, pairs and triples of the heaviest are tried first. Where they do not suffice, words are edited one by one,
the heaviest of the rest weighed again after each, and every word is put back without which the comment passes all the
same. An eojeol of several content words is edited in parts. An edit changes no other character, so line breaks and the
words around it stay. A proposal says what remains of the comment, and whether it passes: an editor decides.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, pairwise
from typing import Literal, TypeAlias, get_args

import numpy as np

from corpora.foundation.config import load_toml
from corpora.foundation.files import package_path
from downstream.moderate.model import MAX_OCCLUSIONS, Moderator, Probabilities, units_of
from downstream.writing.morphemes import analyze

Manner: TypeAlias = Literal["mask", "neutral", "omit"]
Unit: TypeAlias = tuple[int, int]
"""Offsets of a part of a comment."""
Edits: TypeAlias = Mapping[Unit, str]
"""Offsets → what stands there."""
MANNERS: tuple[Manner, ...] = get_args(Manner)
MASK = "○"
MASKED = re.compile(r"[^\W_]")
"""Letters and digits, which may stand for letters."""
MAX_EDITS = 12
SCORED_CHARACTERS, LATER_CHARACTERS, FEWEST_UNITS = 12_000, 1_200, 4
"""Characters that are scored in the first steps and in each later one, which bounds the time for a long comment; the
units that are tried in any case."""
LARGEST_SEARCH = (MAX_OCCLUSIONS, 10, 7)
"""Units of which all sets of one, two and three are tried, before edits are added one by one."""
CONTENT_TAGS = frozenset({"NNG", "NNP", "NR", "XR", "VV", "VA", "MAG"})
"""Kiwi's tags of content words: nouns, numerals, roots, verbs, adjectives and adverbs."""
WORDS = package_path("downstream", "moderate", "words.toml")
BLANKS = re.compile(r"[ \t]{2,}")


@dataclass(frozen=True)
class Edit:
    """A change of a comment: `text[start:end]` becomes the replacement."""

    start: int
    end: int
    text: str
    replacement: str


@dataclass(frozen=True)
class Softened:
    """A proposal."""

    manner: Manner
    text: str
    """The comment with all edits."""
    edits: tuple[Edit, ...]
    """In the order of the text; offsets into the original comment."""
    probabilities: dict[str, float]
    """Of the softened text."""
    score: float
    is_below: bool
    """Whether the score is below the threshold."""
    kept: float
    """Share of the content words (`CONTENT_TAGS`) that are unchanged; 1 for a text without any."""


@functools.cache
def neutral_words() -> Mapping[str, str]:
    """Return insults and what stands for them, the longest first."""
    words: dict[str, str] = load_toml(WORDS)["neutral"]
    return dict(sorted(words.items(), key=lambda pair: -len(pair[0])))


@dataclass(frozen=True)
class _Flagged:
    """A comment at or above the threshold, and the parts of it that may be edited."""

    moderator: Moderator
    text: str
    headline: str | None
    threshold: float
    words: Sequence[Unit]
    """Its content words."""
    units: Sequence[Unit]

    def scored(self, tried: Sequence[Edits], manner: Manner) -> tuple[Probabilities, Probabilities]:
        """Return the probabilities of the labels after each of some edits, (N, C), and the scores, (N,)."""
        texts = [apply(self.text, each, manner) for each in tried]
        rows = self.moderator.probabilities(texts, [self.headline] * len(tried))
        return rows, self.moderator.scores(rows)

    def is_below(self, row: Probabilities) -> bool:
        """Whether a comment with these probabilities passes."""
        return float(row @ self.moderator.severities()) < self.threshold


def soften_with(
    moderator: Moderator, text: str, headline: str | None = None, *, precision: float = 0.8
) -> tuple[Softened, ...]:
    """Propose softer wordings with a model; see `downstream.moderate.soften`."""
    threshold = moderator.threshold(precision)
    [row] = moderator.probabilities([text], [headline])
    if float(row @ moderator.severities()) < threshold:
        return ()
    words = content_words(text)
    units = _heaviest(moderator, text, [p for unit in units_of(text) for p in parts_of(unit, words)], headline)
    comment = _Flagged(moderator, text, headline, threshold, words, units)
    return tuple(_soften(comment, manner, row) for manner in MANNERS)


def _soften(comment: _Flagged, manner: Manner, row: Probabilities) -> Softened:
    text = comment.text
    ranked, found = _fewest(comment, manner)
    edits, row = found or ({}, row)
    most = max(FEWEST_UNITS, LATER_CHARACTERS // max(1, len(text)))
    for _ in range(MAX_EDITS - len(edits)):
        tried = list(islice(_next_edits(text, ranked, edits, manner), most))
        if comment.is_below(row) or not tried:
            break
        edits, row = _mildest(comment, manner, tried)
    while len(edits) > 1 and comment.is_below(row):
        lightest = sorted(edits, key=ranked.index, reverse=True)[:most]
        fewer = [{unit: new for unit, new in edits.items() if unit != left_out} for left_out in lightest]
        remaining, other = _mildest(comment, manner, fewer)
        if not comment.is_below(other):
            break
        edits, row = remaining, other
    ordered = sorted(edits.items())
    return Softened(
        manner=manner,
        text=apply(text, edits, manner),
        edits=tuple(Edit(s, e, text[s:e], new) for (s, e), new in ordered),
        probabilities=dict(zip(comment.moderator.labels, map(float, row), strict=True)),
        score=float(row @ comment.moderator.severities()),
        is_below=comment.is_below(row),
        kept=share_kept(comment.words, [unit for unit, _ in ordered]),
    )


def _fewest(comment: _Flagged, manner: Manner) -> tuple[list[Unit], tuple[dict[Unit, str], Probabilities] | None]:
    """Return the units that can be edited, and the edits of one, two or three that suffice; None if none do.

    The units come in the order of what editing one alone saves, the edits with the probabilities after them: of those
    of one size, the edits that touch the fewest content words, and of these the mildest. Pairs and triples are made of
    the first units, so many as there is time for.
    """
    text = comment.text
    new = {unit: replacement(text[slice(*unit)], manner) for unit in comment.units}
    ranked = [unit for unit in comment.units if new[unit] != text[slice(*unit)]]
    for size, most in enumerate(LARGEST_SEARCH, start=1):
        tried = [{unit: new[unit] for unit in chosen} for chosen in combinations(ranked[:most], size)]
        if not tried or (size > 1 and len(tried) * len(text) > SCORED_CHARACTERS):
            break
        rows, scores = comment.scored(tried, manner)
        enough = np.flatnonzero(scores < comment.threshold)
        if len(enough):
            best = min(map(int, enough), key=lambda k: (-share_kept(comment.words, list(tried[k])), float(scores[k])))
            return ranked, (tried[best], rows[best])
        if size == 1:
            ranked = [ranked[k] for k in scores.argsort()]
    return ranked, None


def _heaviest(moderator: Moderator, text: str, units: Sequence[Unit], headline: str | None) -> list[Unit]:
    """Return at most `MAX_OCCLUSIONS` units, fewer of a long text: those of the heaviest groups of neighbours."""
    most = max(FEWEST_UNITS, min(MAX_OCCLUSIONS, SCORED_CHARACTERS // max(1, len(text))))
    size = -(-len(units) // most)
    if size <= 1:
        return list(units)
    groups = [units[k : k + size] for k in range(0, len(units), size)]
    weights = moderator.weigh(text, [(group[0][0], group[-1][1]) for group in groups], headline)
    heavy = [unit for k in (-weights).argsort() for unit in groups[int(k)]]
    return sorted(heavy[:most])


def _mildest(
    comment: _Flagged, manner: Manner, tried: Sequence[dict[Unit, str]]
) -> tuple[dict[Unit, str], Probabilities]:
    """Return those edits that leave the lowest score, and the probabilities after them."""
    rows, scores = comment.scored(tried, manner)
    best = int(scores.argmin())
    return tried[best], rows[best]


def _next_edits(text: str, units: Sequence[Unit], edits: Edits, manner: Manner) -> Iterator[dict[Unit, str]]:
    """Yield the edits with one more; a word whose neutral one did not suffice is masked."""
    for unit in units:
        word = text[slice(*unit)]
        new = replacement(word, manner) if unit not in edits else replacement(word, "mask")
        if new != word and (unit not in edits or (manner == "neutral" and new != edits[unit])):
            yield {**edits, unit: new}


def replacement(word: str, manner: Manner) -> str:
    """Return what stands for a word: nothing, a neutral word with the rest of the word, or circles for its letters."""
    if manner == "omit":
        return ""
    if manner == "neutral":
        for insult, neutral in neutral_words().items():
            if insult in word:
                return word.replace(insult, neutral)
    return MASKED.sub(MASK, word)


def apply(text: str, edits: Edits, manner: Manner) -> str:
    """Return a text with the parts at some offsets replaced; blanks around words that are left out become one."""
    parts, end = [], 0
    for (start, stop), new in sorted(edits.items()):
        parts += [text[end:start], new]
        end = stop
    edited = "".join((*parts, text[end:]))
    return BLANKS.sub(" ", edited).strip() if manner == "omit" else edited


def content_words(text: str) -> list[Unit]:
    """Return the content words of a text as offsets, in order."""
    [morphemes] = analyze([(0, text)])
    tagged = ((m.start, m.end) for m in morphemes if m.tag.partition("-")[0] in CONTENT_TAGS)
    return sorted({(start, end) for start, end in tagged if start < end})


def parts_of(unit: Unit, words: Sequence[Unit]) -> list[Unit]:
    """Divide a unit before each but the first of its content words."""
    start, end = unit
    cuts = [start, *[first for first, _ in words if start <= first < end][1:], end]
    return [(a, b) for a, b in pairwise(cuts) if a < b]


def share_kept(words: Sequence[Unit], edited: Sequence[Unit]) -> float:
    """Return the share of words that no edit touches; 1 if there are none."""
    touched = sum(any(start < e and s < end for s, e in edited) for start, end in words)
    return 1 - touched / len(words) if words else 1.0
