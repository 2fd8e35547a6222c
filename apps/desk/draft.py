"""What the tools say of a draft: summary, bullets, headlines, signals, similar earlier stories, copies."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from apps.desk.checkers import Correction, check
from apps.stories.duplicates import find_duplicates
from downstream.advertorial import advertorial
from downstream.clickbait import clickbait
from downstream.embed import encode
from downstream.headlines.writer import HeadlineWriter, bundled_writer
from downstream.signals.finding import Findings
from downstream.stance import stance
from downstream.summarize import summarize

LONGEST_BULLET = 80
NUM_BULLETS, NUM_HEADLINES, NUM_SIMILAR = 4, 3, 5
LONGEST_HEADLINE = 45
READ_CHARACTERS = 1_000
"""Of an article that is compared by its vector."""
CLAUSE = re.compile(r"(?<=[가-힣](?:고|며|서|만|데|자|면|나))(?:,)?[ \t]+|,[ \t]+")


@dataclass(frozen=True)
class Earlier:
    """An article that was published before."""

    title: str
    text: str = ""


@dataclass(frozen=True)
class Part:
    """A part of the draft: `draft[start:end] == text`, in code points."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Similar:
    """An earlier article that is similar to the draft."""

    index: int
    """In the archive."""
    title: str
    similarity: float
    """Cosine of the embeddings."""
    is_copy: bool
    """Whether it prints the same text."""


@dataclass(frozen=True)
class Examined:
    """What the tools say of a draft."""

    title: str
    text: str
    corrections: tuple[Correction, ...]
    summary: tuple[Part, ...]
    bullets: tuple[Part, ...]
    """Of at most `LONGEST_BULLET` characters."""
    headlines: tuple[Part, ...]
    """Parts of the draft that may serve as a headline."""
    similar: tuple[Similar, ...]
    """The most similar first."""
    signals: dict[str, Findings]
    """Tool → what it found."""
    written_headlines: tuple[str, ...] = ()
    """Of a model that writes headlines; those with numbers or names that the draft does not have are left out."""

    @property
    def copies(self) -> tuple[Similar, ...]:
        """The earlier articles that print the same text."""
        return tuple(each for each in self.similar if each.is_copy)


def examine(
    text: str, title: str = "", archive: Sequence[Earlier] = (), *, writer: HeadlineWriter | None = None
) -> Examined:
    """Ask every tool about a draft.

    Args:
        text: the draft.
        title: its headline, if it has one.
        archive: earlier articles that it is compared with.
        writer: model of `python -m downstream.headline train`; default: the one that comes with the package.

    Raises:
        ValueError: an argument is no string.
    """
    for value, name in ((text, "text"), (title, "title")):
        if not isinstance(value, str):
            raise ValueError(f"{name} is {value!r:.40}, not a string")
    chosen = [Part(s.text, s.start, s.end) for s in summarize(text, title=title).sentences]
    return Examined(
        title=title,
        text=text,
        corrections=tuple(check(text)),
        summary=tuple(chosen),
        bullets=tuple(bullets(text, title)),
        headlines=tuple(headlines(text, title)),
        similar=tuple(similar(text, title, archive)),
        signals={
            "stance": stance(text, title),
            "advertorial": advertorial(text, title),
            "clickbait": clickbait(title, text),
        },
        written_headlines=tuple(written(text, writer)),
    )


def bullets(text: str, title: str = "") -> list[Part]:
    """Return the most important statements of a draft, each of at most 80 characters and a part of the draft."""
    ranked = sorted(summarize(text, title=title, explain=True).candidates, key=lambda s: -s.score)
    found = [shortened(text, Part(s.text, s.start, s.end), LONGEST_BULLET) for s in ranked[: 2 * NUM_BULLETS]]
    kept = [part for part in found if part is not None][:NUM_BULLETS]
    return sorted(kept, key=lambda part: part.start)


def headlines(text: str, title: str = "") -> list[Part]:
    """Return parts of the draft that may serve as a headline: short clauses of its most important sentences."""
    ranked = sorted(summarize(text, title=title, explain=True).candidates, key=lambda s: -s.score)
    found = [shortened(text, Part(s.text, s.start, s.end), LONGEST_HEADLINE) for s in ranked]
    return [part for part in found if part is not None][:NUM_HEADLINES]


def written(text: str, writer: HeadlineWriter | None) -> list[str]:
    """Return the headlines that a model writes, by default the one that comes with the package."""
    found = (writer or bundled_writer()).write(text, NUM_HEADLINES) if text.strip() else []
    return [each.text for each in found if not each.is_extractive]


def shortened(text: str, part: Part, longest: int) -> Part | None:
    """Return a sentence, or its longest run of whole clauses of at most LONGEST characters; None if there is none."""
    if "\n" not in part.text and len(part.text) <= longest:
        return part
    cuts = [0, *(found.end() for found in CLAUSE.finditer(part.text)), len(part.text)]
    best: tuple[int, int] | None = None
    for first in range(len(cuts) - 1):
        for last in range(first + 1, len(cuts)):
            piece = part.text[cuts[first] : cuts[last]].rstrip(" \t,")
            if len(piece) <= longest and "\n" not in piece and (best is None or len(piece) > best[1] - best[0]):
                best = cuts[first], cuts[first] + len(piece)
    if best is None or best[1] - best[0] < longest // 4:
        return None
    start, end = part.start + best[0], part.start + best[1]
    return Part(text[start:end], start, end)


def similar(text: str, title: str, archive: Sequence[Earlier]) -> list[Similar]:
    """Return the earlier articles that are most similar to a draft, and all that print the same text."""
    given = [(k, each) for k, each in enumerate(archive) if (each.title + each.text).strip()]
    if not given or not (title + text).strip():
        return []
    read = [
        f"{title}\n{text}"[:READ_CHARACTERS],
        *(f"{each.title}\n{each.text}"[:READ_CHARACTERS] for _, each in given),
    ]
    vectors = encode(read)
    cosines = vectors[1:] @ vectors[0]
    bodies = [text, *(each.text or each.title for _, each in given)]
    copies = {k for group in find_duplicates(bodies) if 0 in group.members for k in group.members}
    copies |= {k for k, body in enumerate(bodies) if k and title.strip() and body.strip() == title.strip()}
    order = sorted(range(len(given)), key=lambda k: (k + 1 not in copies, -cosines[k]))
    kept = order[: max(NUM_SIMILAR, len(copies - {0}))]
    return [
        Similar(
            given[k][0], given[k][1].title or given[k][1].text[:60], float(np.clip(cosines[k], -1, 1)), k + 1 in copies
        )
        for k in kept
    ]
