"""What an update of an article changed: numbers, names and statements.

Sentences of the old and the new article are compared. Those that are in one only are paired by their words where they
say nearly the same; of a pair the numbers and names that differ are named. What is left over was added or removed.
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from corpora.sentences import Sentence, split_article

Kind: TypeAlias = Literal["number", "name", "added", "removed", "reworded"]
LEAST_SHARED = 0.5
"""Share of the pairs of letters that two sentences have in common which are one statement in two wordings."""
NUMBER = re.compile(
    r"(?:\d[\d,]*(?:\.\d+)?)(?:[ \t]?(?:조|억|만|천|백)+(?:[ \t]?\d[\d,]*(?:조|억|만|천|백)?)*)?[ \t]?"
    r"(?:%|퍼센트|포인트|명|원|건|년|월|일|시|분|초|개|곳|대|회|차|층|세|살|톤|kg|km|㎞|m|㎡|도|배|위|마리|척|가구)?"
)
NAME_TAGS = frozenset({"NNP", "SL"})
MAX_SENTENCES = 2_000


@dataclass(frozen=True)
class Change:
    """A difference: `old[old_start:old_end] == old_text`, and likewise of the new article."""

    kind: Kind
    old_start: int
    old_end: int
    old_text: str
    new_start: int
    new_end: int
    new_text: str


@dataclass(frozen=True)
class _Part:
    """A part of a text."""

    text: str
    start: int
    end: int


def changes(old: str, new: str) -> list[Change]:
    """Return what an update of an article changed, in the order of the new article.

    A number or name that replaced another one has both texts. `added` and `reworded` are sentences of the new article,
    `removed` of the old one; the other side of `added` and `removed` is empty, where the sentence would stand.

    Args:
        old: the earlier text.
        new: the later text.

    Raises:
        ValueError: an argument is no string.
    """
    for text, name in ((old, "old"), (new, "new")):
        if not isinstance(text, str):
            raise ValueError(f"{name} is {text!r:.40}, not a string")
    before, after = split_article(old), split_article(new)
    matcher = difflib.SequenceMatcher(None, [_plain(s) for s in before], [_plain(s) for s in after], autojunk=False)
    found: list[Change] = []
    left_old: list[tuple[Sentence, int]] = []
    left_new: list[tuple[Sentence, int]] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag != "equal":
            # Where the other article goes on, for what has no counterpart there.
            left_old += [(s, after[k].start if k < len(after) else len(new)) for s in before[i:j]]
            left_new += [(s, before[i].start if i < len(before) else len(old)) for s in after[k:m]]
    pairs = _pair([s for s, _ in left_old], [s for s, _ in left_new])
    for number, (sentence, at) in enumerate(left_old):
        if number not in pairs:
            found.append(Change("removed", sentence.start, sentence.end, sentence.text, at, at, ""))
    paired = {b: a for a, b in pairs.items()}
    for number, (sentence, at) in enumerate(left_new):
        if number in paired:
            found += _compare(left_old[paired[number]][0], sentence)
        else:
            found.append(Change("added", at, at, "", sentence.start, sentence.end, sentence.text))
    return sorted(found, key=lambda change: (change.new_start, change.old_start, change.kind))


def _plain(sentence: Sentence) -> str:
    return " ".join(sentence.text.split())


def _bigrams(text: str) -> Counter[str]:
    letters = [c for c in text if c.isalnum()]
    return Counter(a + b for a, b in pairwise(letters))


def _pair(old: Sequence[Sentence], new: Sequence[Sentence]) -> dict[int, int]:
    """Return which old sentence is which new one, the most similar first; each has one counterpart at most."""
    ours, theirs = [_bigrams(s.text) for s in old[:MAX_SENTENCES]], [_bigrams(s.text) for s in new[:MAX_SENTENCES]]
    similar = []
    for a, first in enumerate(ours):
        for b, second in enumerate(theirs):
            total = first.total() + second.total()
            share = 2 * (first & second).total() / total if total else float(old[a].text == new[b].text)
            if share >= LEAST_SHARED:
                similar.append((-share, abs(a - b), a, b))
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for _, _, a, b in sorted(similar):
        if a not in pairs and b not in taken:
            pairs[a] = b
            taken.add(b)
    return pairs


def _compare(old: Sentence, new: Sentence) -> Iterator[Change]:
    """Yield the numbers and names that differ in two wordings; a difference in neither is a rewording."""
    if _plain(old) == _plain(new):
        return  # it only stands elsewhere
    any_fact = False
    kinds: tuple[tuple[Kind, list[_Part], list[_Part]], ...] = (
        ("number", _numbers(old), _numbers(new)),
        ("name", _names(old), _names(new)),
    )
    for kind, ours, theirs in kinds:
        for change in _differences(kind, ours, theirs, old, new):
            any_fact = True
            yield change
    if not any_fact:
        yield Change("reworded", old.start, old.end, old.text, new.start, new.end, new.text)


def _differences(
    kind: Kind, ours: Sequence[_Part], theirs: Sequence[_Part], old: Sentence, new: Sentence
) -> Iterator[Change]:
    matcher = difflib.SequenceMatcher(None, [p.text for p in ours], [p.text for p in theirs], autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            continue
        for step in range(max(j - i, m - k)):
            first = ours[i + step] if i + step < j else None
            second = theirs[k + step] if k + step < m else None
            yield Change(
                kind,
                first.start if first else old.end,
                first.end if first else old.end,
                first.text if first else "",
                second.start if second else new.end,
                second.end if second else new.end,
                second.text if second else "",
            )


def _numbers(sentence: Sentence) -> list[_Part]:
    found = []
    for match in NUMBER.finditer(sentence.text):
        text = match[0].rstrip()
        found.append(_Part(text, sentence.start + match.start(), sentence.start + match.start() + len(text)))
    return found


def _names(sentence: Sentence) -> list[_Part]:
    """Return the proper nouns of a sentence as Kiwi finds them, neighbours as one."""
    from apps.stories.keywords import analyse

    [tokens] = analyse([sentence.text])
    parts: list[_Part] = []
    for token in tokens:
        if token.tag not in NAME_TAGS:
            continue
        start, end = sentence.start + token.start, sentence.start + token.start + token.len
        if parts and parts[-1].end == start:
            start = parts.pop().start
        parts.append(_Part(sentence.text[start - sentence.start : end - sentence.start], start, end))
    return parts
