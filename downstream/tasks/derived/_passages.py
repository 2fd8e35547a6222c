"""The sentences of derived tasks: a splitter that never changes, so that the tasks keep their examples."""

import re
from collections.abc import Collection
from itertools import pairwise

from corpora.readers.lines import LINE
from corpora.sentences import Sentence, ends_sentence

# Where a blank was forgotten: 했다.그리고 했다.“그런데
GLUED = re.compile(r"(?<=[가-힣][다요죠까])[.!?](?=[가-힣“\"‘(\[])")
OPENING = re.compile("[“‘\"'「『]")
QUOTES = {"“": "”", "‘": "’", '"': '"', "'": "'", "「": "」", "『": "』"}
# “가자.” 하고, “왜?” 라는
CONTINUES = re.compile(r"\s(?:이?라[고며는]|하[고며는])\s")
LONGEST_QUOTE = 400
"""Characters that a quotation has at most; a closing mark farther on belongs to another one."""
LONG = 150
"""Characters from which on a sentence is searched for ends that have no full stop."""
# 했다 시장은, 있습니다 다만: but not 했다 하더라도, 있다 보니.
BARE_ENDING = re.compile(
    r"(?<=[가-힣])다(?=\s++(?!보니|하더라도|해도|해서|하면|하고|싶|시피|치고|치더라도|[는고며](?:\s|$)))"
)
BEFORE_DA = frozenset("니이없같") | {chr(code) for last in (4, 20) for code in range(0xAC00 + last, 0xD7A4, 28)}
"""Syllables that make a following 다 a final ending: those that end in ㄴ or ㅆ, and a few more."""


def split_passage(text: str) -> list[Sentence]:
    """Split a passage into sentences, by the rule that is part of the definition of derived tasks.

    `corpora.sentences.split_article` is the better splitter and may improve; this one is fixed, because another split
    would make other examples, whose scores cannot be compared. A quotation inside a sentence (“갔다. 왔다.”라고) is not
    cut, and a long stretch without full stops is split at verb endings.

    Args:
        text: any string of any length; Hangul is understood in its composed form (NFC).

    Returns:
        Sentences in order, without the white space around them; nothing but white space lies between them.
    """
    sentences: list[Sentence] = []
    for line in LINE.finditer(text):
        for start, end in pairwise([0, *_ends(line.group()), len(line.group())]):
            piece = line.group()[start:end]
            if stripped := piece.strip():
                at = line.start() + start + len(piece) - len(piece.lstrip())
                sentences.append(Sentence(stripped, at, at + len(stripped)))
    return sentences


def _ends(line: str) -> list[int]:
    """Return where sentences end in a line, in order; its own end need not be among them."""
    ends = [word.end() for word in re.finditer(r"\S+", line) if ends_sentence(word.group())]
    ends = sorted({*ends, *(glue.end() for glue in GLUED.finditer(line))})
    if not ends and len(line) <= LONG:
        return []
    inside = _quoted(line, ends)
    ends = [end for end in ends if not inside[end]]
    for start, end in pairwise([0, *ends, len(line)]):
        if end - start > LONG:
            bare = (
                ending for ending in BARE_ENDING.finditer(line, start, end) if line[ending.start() - 1] in BEFORE_DA
            )
            ends += [ending.end() for ending in bare if not inside[ending.end()]]
    return sorted(ends)


def _quoted(line: str, ends: Collection[int]) -> bytearray:
    """Mark positions inside quotations that belong to a sentence: it began before them or continues after (”라고).

    Returns:
        A byte for each position between characters, `len(line) + 1` of them.
    """
    marks = bytearray(len(line) + 1)
    known_ends = frozenset(ends)
    cursor = 0
    for opening in OPENING.finditer(line):
        start = opening.start()
        close = line.find(QUOTES[opening.group()], start + 1, start + LONGEST_QUOTE) if start >= cursor else -1
        # Straight marks look alike at both ends, and one of them is an apostrophe.
        if close < 0 or (opening.group() in "\"'" and line[start - 1 : start].isalnum()):
            continue
        cursor = close + 1
        before = start
        while before and line[before - 1].isspace():
            before -= 1
        behind = line[cursor : cursor + 1]
        if behind.isalpha() or behind == "," or (before and before not in known_ends):
            marks[start + 1 : cursor] = b"\1" * (close - start)
            marks[cursor] = CONTINUES.match(line, cursor) is not None
    return marks
