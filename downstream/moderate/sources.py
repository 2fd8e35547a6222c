"""What a model of comments is trained on: labelled comments of several sources, neutral text, names of people."""

import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from corpora.characters import nfc
from corpora.documents import RejectedRecord, read_documents
from corpora.foundation.config import Config, load_toml
from corpora.foundation.errors import DataError, DataUnavailableError
from corpora.sentences import split_by_rules
from downstream.moderate.softening import WORDS
from downstream.readers import read_tsv_rows, unquote

logger = logging.getLogger(__name__)

LABELS = ("none", "offensive", "hate")
UNGRADED = "harmful"
"""Label of a comment that is offensive or hateful, without saying which."""
NO_HATE = "8"
"""K-MHaS' class of comments without hate."""
SHORTEST, LONGEST = 10, 120
"""Characters of a neutral sentence."""


@dataclass(frozen=True)
class Comment:
    """A labelled comment."""

    text: str
    label: str
    source: str = ""
    """Name of the source; empty for neutral text of none."""
    headline: str | None = None


class CommentSource(Config):
    """A file of labelled comments."""

    name: str = Field(min_length=1)
    path: str
    """Below the data root."""
    layout: Literal["beep", "kmhas"]
    headlines: str = ""
    """File of the headlines, line by line; empty: none."""


class NeutralSource(Config):
    """A file of neutral text."""

    path: str
    """Below the data root."""
    number: int = Field(ge=1)
    """Sentences that are drawn."""


def read_comments(source: CommentSource, root: Path) -> list[Comment]:
    """Read a file of labelled comments, in its order.

    Raises:
        DataUnavailableError: a file is missing.
        DataError: a file is malformed, or headlines and comments differ in number.
    """
    path = _existing(root / source.path)
    comments = list(_beep(path, source.name) if source.layout == "beep" else _kmhas(path, source.name))
    if not source.headlines:
        return comments
    above = _existing(root / source.headlines).read_text(encoding="utf-8").splitlines()
    if len(above) != len(comments):
        what = f"{len(above):,} headlines for {len(comments):,} comments"
        raise DataError(root / source.headlines, what, "give the file that belongs to the comments")
    return [replace(c, headline=nfc(line.strip().strip('"'))) for c, line in zip(comments, above, strict=True)]


def _beep(path: Path, name: str) -> Iterator[Comment]:
    for number, (_, (text, label)) in enumerate(read_tsv_rows(path, "comments", "hate"), start=1):
        if label not in LABELS:
            raise DataError(f"{path}, comment {number}", f"label '{label}'", f"use one of {', '.join(LABELS)}")
        yield Comment(nfc(unquote(text)), label, name)


def _kmhas(path: Path, name: str) -> Iterator[Comment]:
    for _, (text, classes) in read_tsv_rows(path, "document", "label"):
        yield Comment(nfc(unquote(text)), "none" if classes == NO_HATE else UNGRADED, name)


def read_neutral(source: NeutralSource, root: Path, draw: random.Random) -> list[Comment]:
    """Read sentences of neutral text, drawn from the whole file.

    Raises:
        DataUnavailableError: the file is missing.
    """
    path = _existing(root / source.path)
    sentences: list[str] = []
    rejected: list[RejectedRecord] = []
    for document in read_documents(path, text_unit="line", rejected=rejected):
        for words in split_by_rules(document.text):
            sentence = " ".join(words)
            if SHORTEST <= len(sentence) <= LONGEST:
                sentences.append(nfc(sentence))
    if rejected:
        logger.warning("%s: %d records without text are left out", path, len(rejected))
    chosen = draw.sample(sentences, min(source.number, len(sentences)))
    return [Comment(sentence, "none") for sentence in chosen]


def identity_sentences() -> list[Comment]:
    """Return neutral sentences with names of people by origin, sex, age, faith, body or conviction."""
    words = load_toml(WORDS)
    frames: Sequence[str] = words["frames"]
    # Every name stands in a third of the sentences, every sentence is used.
    return [
        Comment(frame.format(name), "none")
        for k, name in enumerate(words["identities"])
        for j, frame in enumerate(frames)
        if (k + j) % 3 == 0
    ]


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise DataUnavailableError(path, "no such file", "give the data root with --data, or another recipe")
    return path
