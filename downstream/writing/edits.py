"""Changes of a text, and the corrections that a reader is shown: changes of the same words together.

>>> [correction.suggestions for correction in group("안되요 그래도", [Edit(1, 1, " "), Edit(1, 2, "돼")])]
[('안 돼요',)]
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["spelling", "grammar", "spacing", "punctuation", "numbers", "style"]
KINDS: tuple[Kind, ...] = get_args(Kind)
AROUND = " \t\n\r\f\v.,!?…~\"'“”‘’()[]<>《》「」"
"""Stands around words and is shown only where it changes."""


@dataclass(frozen=True)
class Edit:
    """One change of a text: `text[start:end]` becomes `replacement`."""

    start: int
    end: int
    replacement: str
    kind: Kind = "spelling"
    reason: str = ""
    confidence: float = 1.0
    alternatives: tuple[str, ...] = ()
    """Other replacements, the likeliest first."""


@dataclass(frozen=True)
class Correction:
    """Words of a text that are wrong: `text` is exactly `source[start:end]`, in code points."""

    start: int
    end: int
    text: str
    suggestions: tuple[str, ...]
    """What may stand there instead, the likeliest first."""
    kind: Kind
    reason: str
    """Why, in Korean."""
    confidence: float
    """That this is an error, in [0, 1]."""


def select(edits: Iterable[Edit]) -> list[Edit]:
    """Return the surest of edits that overlap, in the order of the text."""
    chosen: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (-e.confidence, e.kind == "spacing", e.start - e.end, e.start)):
        if all(not _collide(edit, other) for other in chosen):
            chosen.append(edit)
    return sorted(chosen, key=lambda e: (e.start, e.end))


def _collide(one: Edit, other: Edit) -> bool:
    if one.start == one.end and other.start == other.end:
        return one.start == other.start
    if one.start == one.end or other.start == other.end:
        empty, wide = (one, other) if one.start == one.end else (other, one)
        # A blank may stand directly before or behind a changed word, unless that change brings one itself.
        inside = wide.start < empty.start < wide.end
        brings = empty.start in (wide.start, wide.end) and " " in wide.replacement
        return inside or brings
    return one.start < other.end and other.start < one.end


def group(text: str, edits: Sequence[Edit]) -> list[Correction]:
    """Return a correction for each run of words in which something changes.

    Args:
        text: that the edits belong to.
        edits: in order, without overlaps.
    """
    return [_correction(text, batch) for batch in _batches(text, edits)]


def _batches(text: str, edits: Sequence[Edit]) -> Iterator[list[Edit]]:
    batch: list[Edit] = []
    end = -1
    for edit in edits:
        start, last = _word_around(text, edit)
        if batch and start >= end:
            yield batch
            batch = []
        batch.append(edit)
        end = max(end, last)
    if batch:
        yield batch


def _word_around(text: str, edit: Edit) -> tuple[int, int]:
    """Return the borders of the words in which an edit lies."""
    start, end = edit.start, edit.end
    while start > 0 and not text[start - 1].isspace():
        start -= 1
    while end < len(text) and not text[end].isspace():
        end += 1
    return start, end


def _correction(text: str, edits: Sequence[Edit]) -> Correction:
    start, end = min(_word_around(text, edit)[0] for edit in edits), max(_word_around(text, edit)[1] for edit in edits)
    first, last = edits[0].start, max(edit.end for edit in edits)
    while start < first and text[start] in AROUND:
        start += 1
    while end > last and text[end - 1] in AROUND:
        end -= 1
    suggestions = [_changed(text, start, end, edits)]
    if len(edits) == 1:
        [edit] = edits
        suggestions += [text[start : edit.start] + other + text[edit.end : end] for other in edit.alternatives]
    main = next((edit for edit in edits if edit.kind != "spacing"), edits[0])
    confidence = min(edit.confidence for edit in edits)
    return Correction(
        start, end, text[start:end], tuple(dict.fromkeys(suggestions)), main.kind, main.reason, confidence
    )


def _changed(text: str, start: int, end: int, edits: Sequence[Edit]) -> str:
    parts = []
    for edit in edits:
        parts += [text[start : edit.start], edit.replacement]
        start = edit.end
    return "".join([*parts, text[start:end]])


def apply(text: str, corrections: Iterable[Correction]) -> str:
    """Return TEXT with the first suggestion of each correction; line breaks stay where they are.

    Args:
        text: that was checked.
        corrections: of it, in order.
    """
    parts, done = [], 0
    for correction in corrections:
        parts += [text[done : correction.start], correction.suggestions[0]]
        done = correction.end
    return "".join([*parts, text[done:]])


PROTECTED = re.compile(
    r"https?://\S+|www\.\S+|[\w.+-]+@[\w-]+\.[\w.]+|[#@]\w+|[A-Za-z0-9_./\\-]+\.[A-Za-z]{2,5}(?![A-Za-z])|`[^`\n]+`|\{[^{}\n]*\}|<[^<>\n]*>"
)
"""Addresses, tags, files and code."""
QUOTATIONS = re.compile(
    r"“[^”\n]{1,400}”|‘[^’\n]{1,200}’|「[^」\n]{1,200}」|『[^』\n]{1,200}』|《[^》\n]{1,200}》|〈[^〉\n]{1,200}〉|\"[^\"\n]{1,400}\"|(?<!\w)'[^'\n]{1,200}'"
)


def protected_spans(text: str, *, with_quotations: bool) -> list[tuple[int, int]]:
    """Return the spans in which nothing is corrected.

    Args:
        text: that is checked.
        with_quotations: whether quotations and titles are among them.
    """
    spans = [found.span() for found in PROTECTED.finditer(text)]
    if with_quotations:
        spans += [found.span() for found in QUOTATIONS.finditer(text)]
    return sorted(spans)
