"""Awkward wording in Korean text: translationese, doubled passives, piles of nouns, wordiness; and unlikely words.

    python -m downstream.awkward article.txt
    python -m downstream.awkward --unlikely article.txt

>>> [(found.text, found.rule) for found in awkward("시민들로 하여금 떠나게 했다. 이름이 잊혀졌다.")]
[('로 하여금', '로 하여금'), ('잊혀졌다', '잊혀지다')]

The rules of `rules.toml` are opinions of editors, not errors of grammar. An unlikely word is one that the bundled
masked language model does not expect between its neighbours; it may be wrong, or only new.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from corpora.characters import compose
from corpora.sentences import split_article
from downstream.awkward.rules import all_rules
from downstream.writing.edits import protected_spans
from downstream.writing.likelihood import WordLikelihood, bundled_scorer

Kind = Literal["passive", "translationese", "nouns", "wordiness", "unlikely"]
UNLIKELY = -12.75
"""Log-probability in nats below which the stem of a word is unlikely in its place."""
MOST_TOKENS = 2
"""A word of more tokens is a name or a compound, of which the encoder knows little."""
STEM = re.compile(r"[가-힣]{2}")
"""How the stem of a word begins; a syllable alone has too many senses."""
LONGEST_SCORED = 200
"""Characters of a sentence whose words are scored."""
UNLIKELY_REASON = "이 자리에서 보기 드문 말입니다."


@dataclass(frozen=True)
class Awkward:
    """Wording that an editor would change: `text` is exactly `source[start:end]`, in code points."""

    start: int
    end: int
    text: str
    kind: Kind
    rule: str
    """Name of the rule; `unlikely` for a word that the model does not expect."""
    reason: str
    """Why, and what to write, in Korean."""


def awkward(text: str, *, unlikely: bool = False, quotations: bool = False) -> list[Awkward]:
    """Find awkward wording in a text of any length.

    Args:
        text: any string.
        unlikely: whether words that the bundled encoder does not expect are found, too.
        quotations: whether quotations and titles in marks are judged, too.

    Returns:
        What is awkward, in order; of overlapping findings the longest.
    """
    composed, offsets = compose(text)
    protected = protected_spans(composed, with_quotations=not quotations)
    found = [*_by_rule(composed), *(_unlikely(composed) if unlikely else ())]
    kept: list[Awkward] = []
    for one in sorted(found, key=lambda f: (f.kind == "unlikely", f.start - f.end, f.start)):
        if all(one.end <= start or end <= one.start for start, end in protected) and all(
            one.end <= other.start or other.end <= one.start for other in kept
        ):
            kept.append(one)
    kept.sort(key=lambda f: f.start)
    if offsets is None:
        return kept
    placed = ((one, offsets[one.start], offsets[one.end]) for one in kept)
    return [replace(one, start=start, end=end, text=text[start:end]) for one, start, end in placed]


def _by_rule(text: str) -> Iterator[Awkward]:
    for compiled in all_rules():
        rule = compiled.rule
        for start, end in compiled.spans(text):
            end = _word_end(text, end)
            yield Awkward(start, end, text[start:end], rule.kind, rule.name, rule.reason)


def _word_end(text: str, end: int) -> int:
    """Return the end of the word that a match cuts."""
    while 0 < end < len(text) and "가" <= text[end - 1] <= "힣" and "가" <= text[end] <= "힣":
        end += 1
    return end


def _unlikely(text: str) -> Iterator[Awkward]:
    sentences = [s for s in split_article(text) if len(s.text) <= LONGEST_SCORED]
    for sentence, words in zip(sentences, score_words([s.text for s in sentences]), strict=True):
        for start, end, log_probability in words:
            if log_probability < UNLIKELY:
                start, end = sentence.start + start, sentence.start + end
                yield Awkward(start, end, text[start:end], "unlikely", "unlikely", UNLIKELY_REASON)


def score_words(sentences: Sequence[str]) -> list[list[tuple[int, int, float]]]:
    """Return words of each sentence: offsets, and the log-probability of the stem in its place.

    Words of more than `MOST_TOKENS` tokens are left out, stems that do not begin with two syllables, and words whose
    letters the tokenizer changed.
    """
    scored = zip(sentences, bundled_scorer().stems(sentences), strict=True)
    return [
        [(start, end, word.log_probability) for start, end, word in _placed_words(sentence, words)]
        for sentence, words in scored
    ]


def _placed_words(sentence: str, words: Sequence[WordLikelihood]) -> Iterator[tuple[int, int, WordLikelihood]]:
    """Yield the words that are scored, with their offsets."""
    cursor = 0
    for word in words:
        letters = "".join(token.removeprefix("##") for token in word.tokens)
        at = sentence.find(letters, cursor)
        if at >= 0:
            cursor = at + len(letters)
            if len(word.tokens) <= MOST_TOKENS and STEM.match(word.tokens[0]):
                yield at, cursor, word
