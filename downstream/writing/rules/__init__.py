"""Rules of `words.toml` and `patterns.toml`, made ready to run.

A misspelt word is found by its first two letters, so that the number of words costs no time.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from corpora.foundation.config import Config, load_recipe
from corpora.foundation.files import package_path
from downstream.writing.edits import Edit, Kind
from downstream.writing.hangul import FINAL_JAMO, is_syllable, with_final, with_finals

PLACEHOLDER = re.compile(r"\{(\d)(?::(.)|/(\w+)/(\w+))?\}")
LONGEST_RIGHT = 4
"""Letters of a right word that is looked for around a wrong one."""
SURROUNDINGS = 12
"""Characters around a match in which its exceptions are searched."""


class WordGroup(Config):
    """Misspelt words with the same reason."""

    kind: Kind
    confidence: float
    reason: str
    words: str
    """Pairs wrong=right; see `words.toml`."""


class PatternGroup(Config):
    """Patterns with the same reason."""

    kind: Kind
    confidence: float
    reason: str
    find: tuple[str, ...]
    to: tuple[str, ...]
    but: tuple[str, ...] = ()


class Words(Config):
    """`words.toml`."""

    groups: tuple[WordGroup, ...]


class Patterns(Config):
    """`patterns.toml`."""

    patterns: tuple[PatternGroup, ...]


@dataclass(frozen=True)
class _Word:
    wrong: str
    right: str
    is_anywhere: bool
    is_whole: bool
    group: WordGroup


@dataclass(frozen=True)
class _Pattern:
    find: re.Pattern[str]
    to: str
    but: re.Pattern[str] | None
    group: PatternGroup


class Rules:
    """All rules, compiled."""

    def __init__(self, words: Words, patterns: Patterns) -> None:
        """Compile the rules."""
        self._words: dict[str, list[_Word]] = {}
        self._right: set[str] = set()
        for group in words.groups:
            for word in _words_of(group):
                if word.wrong == word.right:
                    self._right.add(word.right)
                else:
                    self._words.setdefault(word.wrong[:2], []).append(word)
        for known in self._words.values():
            known.sort(key=lambda word: -len(word.wrong))
        self._patterns = [
            _Pattern(
                re.compile(expand(find)),
                to,
                re.compile("|".join(f"(?:{expand(but)})" for but in group.but)) if group.but else None,
                group,
            )
            for group in patterns.patterns
            for find, to in zip(group.find, group.to, strict=True)
        ]

    @classmethod
    @functools.cache
    def load(cls) -> "Rules":
        """Read the rules that come with the package."""
        folder = package_path("downstream", "writing", "rules")
        return cls(load_recipe(folder / "words.toml", Words), load_recipe(folder / "patterns.toml", Patterns))

    def edits(self, text: str) -> Iterator[Edit]:
        """Yield what the rules change, in no order; edits may overlap."""
        yield from self._word_edits(text)
        for pattern in self._patterns:
            for found in pattern.find.finditer(text):
                if pattern.but and pattern.but.search(_surroundings(text, found.start(), found.end())):
                    continue
                to = _fill(pattern.to, found)
                if to is not None and to != found.group():
                    group = pattern.group
                    edit = Edit(found.start(), found.end(), to, group.kind, group.reason, group.confidence)
                    yield from _pieces(text, edit)

    def _word_edits(self, text: str) -> Iterator[Edit]:
        known = self._words
        for start in range(len(text) - 1):
            for word in known.get(text[start : start + 2], ()):
                end = start + len(word.wrong)
                if text[start:end] != word.wrong:
                    continue
                if not word.is_anywhere and start and text[start - 1].isalnum():
                    continue
                if word.is_whole and is_syllable(text[end : end + 1]):
                    continue
                if self._is_right(text, start, end):
                    continue
                group = word.group
                yield from _pieces(text, Edit(start, end, word.right, group.kind, group.reason, group.confidence))
                break

    def _is_right(self, text: str, start: int, end: int) -> bool:
        """Whether a right word covers or crosses a wrong one; pairs of equals in `words.toml` name them."""
        first = max(0, start - LONGEST_RIGHT)
        return any(
            text[at : at + size] in self._right and at + size > start
            for at in range(first, end)
            for size in range(2, LONGEST_RIGHT + 1)
            if (at < start or at + size > end)
        )


def _words_of(group: WordGroup) -> Iterator[_Word]:
    for pair in group.words.split():
        wrong, right = pair.replace("_", " ").split("=")
        bare = wrong.strip("~|")
        yield _Word(bare, right, wrong.startswith("~"), wrong.endswith("|"), group)


def _surroundings(text: str, start: int, end: int) -> str:
    """Return a match with what is left of its words, and the word before."""
    return text[max(0, start - SURROUNDINGS if start and text[start - 1] != "\n" else start) : end + 3]


def expand(pattern: str) -> str:
    """Return a pattern with its letters for classes of syllables, e.g. <ᆯ>, spelt out; see `patterns.toml`."""
    for macro, letters in _macros().items():
        pattern = pattern.replace(macro, letters)
    return pattern


@functools.cache
def _macros() -> Mapping[str, str]:
    none = "".join(with_finals(0))
    finals = {f"<{chr(FINAL_JAMO + k)}>": f"[{''.join(with_finals(k))}]" for k in range(1, 28)}
    words = {"«": "(?<![가-힣])", "»": "(?![가-힣])"}
    return {"<->": f"[{none}]", "<+>": f"(?:(?![{none}])[가-힣])", **finals, **words}


def _fill(template: str, found: re.Match[str]) -> str | None:
    """Return a replacement with its groups filled in."""

    def fill(place: re.Match[str]) -> str:
        text = found[int(place[1])] or ""
        if place[2]:
            return with_final(text, 0 if place[2] == "-" else ord(place[2]) - FINAL_JAMO)
        if place[3]:
            return text.translate(str.maketrans(place[3], place[4]))
        return text

    return PLACEHOLDER.sub(fill, template)


def _pieces(text: str, edit: Edit) -> Iterator[Edit]:
    """Yield an edit in its smallest parts, so that edits side by side do not collide."""
    old, new = text[edit.start : edit.end], edit.replacement
    if "".join(old.split()) == "".join(new.split()):
        yield from _blanks(text, edit)
        return
    front = 0
    while front < min(len(old), len(new)) and old[front] == new[front]:
        front += 1
    back = 0
    while back < min(len(old), len(new)) - front and old[-1 - back] == new[-1 - back]:
        back += 1
    yield replace(edit, start=edit.start + front, end=edit.end - back, replacement=new[front : len(new) - back])


def _blanks(text: str, edit: Edit) -> Iterator[Edit]:
    """Yield an edit that changes blanks alone as one edit for each gap."""
    at, k, new = edit.start, 0, edit.replacement
    while at < edit.end or k < len(new):
        start, first = at, k
        while at < edit.end and text[at].isspace():
            at += 1
        while k < len(new) and new[k].isspace():
            k += 1
        if text[start:at] != new[first:k]:
            yield replace(edit, start=start, end=at, replacement=new[first:k])
        at, k = at + 1, k + 1
